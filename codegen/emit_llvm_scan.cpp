// The part of FunctionEmitter that evaluates scans. Along the vector loop, each vector is scanned in registers in as many steps as its
// number of lanes has bits (Hillis and Steele, "Data parallel algorithms", 1986), and what came before it is added to all of it: only that
// waits for the vector before.
#include "codegen/emit_llvm_function.h"

namespace lazuli::codegen {

using llvm::Value;

// One vector that has it in each lane, or one for each vector of kept points, or one number.
void FunctionEmitter::BeginScans(int pass) {
  for (int i = 0; i < num_insts(); ++i) {
    if (!IsScan(inst(i).op) || !plan_.IsComputedIn(i, pass)) continue;
    Value* start = ops_.Identity(inst(i).op, inst(i).type);
    const bool scalar = plan_.IsUniform(i);
    if (!scalar) start = builder_.CreateVectorSplat(plan_.lanes, start);
    scanned_[i].clear();
    for (int u = 0; u < (scalar || plan_.VectorIsReduced() ? 1 : width_); ++u) {
      scanned_[i].push_back(memory_.StackSlot(start->getType(), 0));
      builder_.CreateStore(start, scanned_[i].back());
    }
  }
}

// Lanes of `vector` past the last point, if any, come after all others, or are nothing.
Value* FunctionEmitter::ScanLanes(int i, Value* vector) {
  Value* nothing = builder_.CreateVectorSplat(plan_.lanes, ops_.Identity(inst(i).op, inst(i).type));
  if (plan_.from_end && tail_.mask != nullptr) vector = builder_.CreateSelect(tail_.mask, vector, nothing);
  for (int shift = 1; shift < plan_.lanes; shift *= 2) {
    llvm::SmallVector<int, 64> lanes;
    for (int lane = 0; lane < plan_.lanes; ++lane) {
      const int from = plan_.from_end ? lane + shift : lane - shift;
      lanes.push_back(from >= 0 && from < plan_.lanes ? from : plan_.lanes + lane);
    }
    vector = ops_.Combine(inst(i).op, inst(i).type, vector, builder_.CreateShuffleVector(vector, nothing, lanes));
  }
  return vector;
}

void FunctionEmitter::EmitScan(int i) {
  const KOp op = inst(i).op;
  const c10::ScalarType type = inst(i).type;
  const int in = inst(i).in[0];
  const auto further = [&](llvm::AllocaInst* slot, Value* value) {
    Value* scanned = ops_.Combine(op, type, builder_.CreateLoad(slot->getAllocatedType(), slot), value);
    builder_.CreateStore(scanned, slot);
    return scanned;
  };
  if (plan_.IsUniform(i)) return Define(i, further(scanned_[i][0], values_[in].scalar));
  Values result;
  result.vectors.resize(static_cast<size_t>(width_));
  for (int k = 0; k < width_; ++k) {
    const int u = plan_.from_end && plan_.VectorIsReduced() ? width_ - 1 - k : k;
    if (!plan_.VectorIsReduced()) {
      result.vectors[u] = further(scanned_[i][u], Vector(in, u));
      continue;
    }
    Value* vector = ScanLanes(i, Vector(in, u));
    const llvm::SmallVector<int, 64> last(plan_.lanes, plan_.from_end ? 0 : plan_.lanes - 1);
    llvm::AllocaInst* slot = scanned_[i][0];
    result.vectors[u] = ops_.Combine(op, type, builder_.CreateLoad(slot->getAllocatedType(), slot), vector);
    further(slot, builder_.CreateShuffleVector(vector, last));
  }
  values_[i] = std::move(result);
}

}  // namespace lazuli::codegen
