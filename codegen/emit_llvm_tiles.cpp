// The part of FunctionEmitter that reads what lies across the vector loop: tile by tile, each turned around in registers on its way to the
// stack, from where whole vectors are loaded.
#include "codegen/emit_llvm_function.h"
#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {
namespace {

using llvm::Value;

// The rows of a square of as many vectors as each has lanes become its columns: as often as the number of lanes halves, the first and the
// second half of the vectors are merged, lane by lane (a perfect shuffle moves the highest bit of a place to its lowest; after half of all
// bits have moved, row and column have changed places).
std::vector<Value*> Transposed(llvm::IRBuilder<>& builder, std::vector<Value*> rows) {
  const int n = static_cast<int>(rows.size());
  llvm::SmallVector<int, 64> low, high;
  for (int k = 0; k < n / 2; ++k) {
    low.append({k, n + k});
    high.append({n / 2 + k, n + n / 2 + k});
  }
  for (int left = n; left > 1; left /= 2) {
    std::vector<Value*> merged;
    for (int k = 0; k < n / 2; ++k) {
      merged.push_back(builder.CreateShuffleVector(rows[k], rows[n / 2 + k], low));
      merged.push_back(builder.CreateShuffleVector(rows[k], rows[n / 2 + k], high));
    }
    rows = std::move(merged);
  }
  return rows;
}

}  // namespace

// Whether the tile of a packed load is on the stack [index in the innermost loop][lane]. Otherwise it is as in memory.
bool FunctionEmitter::IsTurned(int i) const {
  return plan_.kernel.sizes[plan_.rank - 1] >= plan_.lanes && plan_.lanes > 1 && ElementBytes(inst(i).type) > 1;
}

// Ahead of the innermost loop of a tiled kernel: how far that goes, and what packed loads find.
void FunctionEmitter::PackTiles() {
  const int inner = plan_.rank - 1;
  const int64_t tile = plan_.kernel.sizes[inner];
  if (plan_.tiled_size % tile != 0) {
    Value* left = builder_.CreateSub(Number(plan_.tiled_size), builder_.CreateMul(index_[inner - 2], builder_.getInt64(tile)));
    Value* whole = builder_.getInt64(tile);
    ranges_[inner].end = builder_.CreateSelect(builder_.CreateICmpSLT(left, whole), left, whole);
  }
  for (int i = 0; i < num_insts(); ++i) {
    if (!plan_.packed[i] || !kept_needs_[i]) continue;
    if (IsTurned(i)) {
      PackTurned(i);
    } else {
      PackRows(i);
    }
  }
}

// Row by row: whole cache lines, where vectors would touch one element of each.
void FunctionEmitter::PackRows(int i) {
  const Slot& slot = slots_[inst(i).imm];
  const int64_t bytes = ElementBytes(slot.dtype), row_bytes = plan_.kernel.sizes[plan_.rank - 1] * bytes;
  if (tiles_[i] == nullptr) {
    tiles_[i] = memory_.StackSlot(llvm::ArrayType::get(builder_.getInt8Ty(), plan_.lanes * row_bytes), 64);
  }
  Value* rows = tail_.count != nullptr ? tail_.count : builder_.getInt64(plan_.lanes);
  EmitLoop(builder_.getInt64(0), rows, 1, [&](Value* row) {
    Value* from = memory_.Offset(slot.pointer, builder_.CreateMul(row, Number(slot.strides[plan_.vector_dim], bytes)));
    Value* to = memory_.Offset(tiles_[i], builder_.CreateMul(row, builder_.getInt64(row_bytes)));
    Value* length = builder_.CreateMul(ranges_[plan_.rank - 1].end, builder_.getInt64(bytes));
    builder_.CreateMemCpy(to, llvm::Align(bytes), from, llvm::Align(bytes), length);
  });
}

// Square by square, of which the last one may begin within the one before, or, in the last tile, in the tile before: the rows have at least
// as many elements. Lanes behind the end read the last row.
void FunctionEmitter::PackTurned(int i) {
  const Slot& slot = slots_[inst(i).imm];
  const int lanes = plan_.lanes;
  const int64_t bytes = ElementBytes(slot.dtype), vector_bytes = lanes * bytes;
  auto* type = llvm::FixedVectorType::get(ops_.MemoryType(slot.dtype), static_cast<unsigned>(lanes));
  if (tiles_[i] == nullptr) {
    const int64_t tile = plan_.kernel.sizes[plan_.rank - 1];
    tiles_[i] = memory_.StackSlot(llvm::ArrayType::get(builder_.getInt8Ty(), (tile + lanes) * vector_bytes), 64);
  }
  std::vector<Value*> rows;
  for (int lane = 0; lane < lanes; ++lane) {
    Value* row = builder_.getInt64(lane);
    if (tail_.count != nullptr) {
      Value* last = builder_.CreateSub(tail_.count, builder_.getInt64(1));
      row = builder_.CreateSelect(builder_.CreateICmpSLT(row, last), row, last);
    }
    rows.push_back(memory_.Offset(slot.pointer, builder_.CreateMul(row, Number(slot.strides[plan_.vector_dim], bytes))));
  }
  Value* end = ranges_[plan_.rank - 1].end;
  Value* last = builder_.CreateSub(end, builder_.getInt64(lanes));
  EmitLoop(builder_.getInt64(0), end, lanes, [&](Value* begin) {
    Value* at = builder_.CreateSelect(builder_.CreateICmpSLT(begin, last), begin, last);
    Value* offset = builder_.CreateMul(at, builder_.getInt64(bytes));
    std::vector<Value*> square;
    for (Value* row : rows) square.push_back(builder_.CreateAlignedLoad(type, memory_.Offset(row, offset), llvm::Align(bytes)));
    square = Transposed(builder_, std::move(square));
    Value* to = memory_.Offset(TurnedTile(i), builder_.CreateMul(at, builder_.getInt64(vector_bytes)));
    for (int k = 0; k < lanes; ++k) {
      builder_.CreateAlignedStore(square[static_cast<size_t>(k)], memory_.Offset(to, k * vector_bytes), llvm::Align(vector_bytes));
    }
  });
}

// Room for what a square that begins in the tile before has of that comes first.
Value* FunctionEmitter::TurnedTile(int i) {
  return memory_.Offset(tiles_[i], static_cast<int64_t>(plan_.lanes) * plan_.lanes * ElementBytes(inst(i).type));
}

void FunctionEmitter::LoadPacked(int i) {
  const int64_t bytes = ElementBytes(inst(i).type);
  const bool turned = IsTurned(i);
  Slot packed{inst(i).type, c10::DimVector(plan_.rank, 0), nullptr};
  packed.strides[plan_.vector_dim] = turned ? 1 : plan_.kernel.sizes[plan_.rank - 1];
  Value* offset = builder_.CreateMul(index_[plan_.rank - 1], builder_.getInt64(turned ? plan_.lanes * bytes : bytes));
  Value* tile = turned ? TurnedTile(i) : static_cast<Value*>(tiles_[i]);
  // All lanes are there, whichever count.
  const Tail tail = turned ? std::exchange(tail_, Tail()) : tail_;
  LoadSlot(i, packed, memory_.Offset(tile, offset));
  tail_ = tail;
}

}  // namespace lazuli::codegen
