// The part of FunctionEmitter that writes at computed places.
#include <llvm/IR/Module.h>

#include "codegen/emit_llvm_function.h"

namespace lazuli::codegen {

using llvm::Value;

namespace {

// Places so close together belong to one part: a cache line or more.
constexpr int kPlaceBits = 6;

constexpr int64_t kRowBlock = 128;

}  // namespace

// Units are kept points, chunks of columns and parts, the last innermost. A run of them is cut where a chunk's parts begin or end, but
// whole chunks stay together, so that threads that have enough of them write whole rows.
void FunctionEmitter::EmitParts(const Body& leaf) {
  llvm::Type* i64 = builder_.getInt64Ty();
  const auto min = [&](Value* a, Value* b) { return builder_.CreateSelect(builder_.CreateICmpULT(a, b), a, b); };
  Value* num_parts = builder_.getInt64(plan_.num_parts);
  Value* length = builder_.getInt64(plan_.column_chunk);
  Value* columns = plan_.scatters_rows ? Number(plan_.kernel.sizes[plan_.vector_dim]) : builder_.getInt64(1);
  Value* chunks = CeilDiv(columns, plan_.column_chunk);
  Value* end = function_->getArg(4);
  Value* place = memory_.StackSlot(i64, 0);
  builder_.CreateStore(function_->getArg(3), place);
  EmitWhile([&] { return builder_.CreateICmpSLT(builder_.CreateLoad(i64, place), end); },
            [&] {
              Value* unit = builder_.CreateLoad(i64, place);
              Value* left = builder_.CreateSub(end, unit);
              Value* part = builder_.CreateURem(unit, num_parts);
              Value* chunk = builder_.CreateUDiv(unit, num_parts);
              Value* column = builder_.CreateURem(chunk, chunks);
              Value* whole = builder_.CreateAnd(builder_.CreateIsNull(part), builder_.CreateICmpUGE(left, num_parts));
              Value* run = min(builder_.CreateUDiv(left, num_parts), builder_.CreateSub(chunks, column));
              Value* next_column = builder_.CreateAdd(column, builder_.CreateSelect(whole, run, builder_.getInt64(1)));
              Value* next_part = min(builder_.CreateAdd(part, left), num_parts);
              parts_ = {part, next_part};
              if (plan_.scatters_rows) {
                ranges_[plan_.vector_dim] = {builder_.CreateMul(column, length), min(builder_.CreateMul(next_column, length), columns)};
              }
              EmitUnit(builder_.CreateUDiv(chunk, chunks), leaf);
              Value* done = builder_.CreateMul(builder_.CreateSub(next_column, column), builder_.CreateSub(next_part, part));
              builder_.CreateStore(builder_.CreateAdd(unit, done), place);
            });
}

// Whether the function is to write at the offset, or for each of a vector of them.
Value* FunctionEmitter::IsInParts(Value* offset) {
  llvm::Type* type = offset->getType();
  const auto all = [&](Value* number) { return type->isVectorTy() ? builder_.CreateVectorSplat(plan_.lanes, number) : number; };
  const auto constant = [&](uint64_t number) { return llvm::ConstantInt::get(type, number); };
  // Fibonacci hashing: rows that lie next to each other, or at any one distance, are spread evenly.
  Value* line = builder_.CreateAnd(builder_.CreateLShr(offset, constant(kPlaceBits)), constant(0xffffffffu));
  Value* hash = builder_.CreateLShr(builder_.CreateMul(line, constant(0x9e3779b1u)), constant(32 - llvm::Log2_64(plan_.num_parts)));
  Value* part = builder_.CreateAnd(hash, constant(static_cast<uint64_t>(plan_.num_parts) - 1));
  return builder_.CreateICmpULT(builder_.CreateSub(part, all(parts_.begin)), all(builder_.CreateSub(parts_.end, parts_.begin)));
}

Value* FunctionEmitter::AreAllParts() {
  return builder_.CreateICmpEQ(builder_.CreateSub(parts_.end, parts_.begin), builder_.getInt64(plan_.num_parts));
}

// The loop over rows, for those that are the function's: block by block these are listed first, without a branch that would often be
// mispredicted, and then written.
void FunctionEmitter::EmitOwnRows(int pass, int dim) {
  llvm::Type* i64 = builder_.getInt64Ty();
  const Range rows = ranges_[dim];
  Value* list = memory_.StackSlot(llvm::ArrayType::get(i64, kRowBlock), 64);
  Value* count = memory_.StackSlot(i64, 0);
  EmitLoop(rows.begin, rows.end, kRowBlock, [&](Value* begin) {
    Value* end = builder_.CreateAdd(begin, builder_.getInt64(kRowBlock));
    builder_.CreateStore(builder_.getInt64(0), count);
    EmitLoop(begin, builder_.CreateSelect(builder_.CreateICmpSLT(end, rows.end), end, rows.end), 1, [&](Value* row) {
      AtIndex(dim, row, [&] {
        for (int i = 0; i < num_insts(); ++i) {
          if (plan_.pass_needs[pass][i] && !HasEffect(inst(i).op) && plan_.Depth(i) == dim + 1) EmitInst(i);
        }
        Value* listed = builder_.CreateLoad(i64, count);
        builder_.CreateStore(row, builder_.CreateGEP(i64, list, listed));
        Value* own = builder_.CreateZExt(IsInParts(values_[plan_.scattered_offset].scalar), i64);
        builder_.CreateStore(builder_.CreateAdd(listed, own), count);
      });
    });
    EmitLoop(builder_.getInt64(0), builder_.CreateLoad(i64, count), 1, [&](Value* k) {
      Value* row = builder_.CreateLoad(i64, builder_.CreateGEP(i64, list, k));
      AtIndex(dim, row, [&] { EmitFull(pass, dim + 1); });
    });
  });
}

// Whole vectors where all lanes have one offset and none meets another, else lane by lane, in order.
void FunctionEmitter::EmitScatter(int i) {
  const Slot& slot = slots_[inst(i).imm];
  const int offset = inst(i).in[1], condition = inst(i).in[2];
  const bool together = plan_.IsUniform(offset) && plan_.IsUniform(condition) && slot.strides[plan_.vector_dim] == 1;
  if (!together || (plan_.VectorIsReduced() && !plan_.scatters_rows)) return ScatterLanes(i);
  Either(
      values_[condition].scalar, [&] { ScatterVectors(i); }, [] {});
}

void FunctionEmitter::ScatterVectors(int i) {
  const Slot& slot = slots_[inst(i).imm];
  const int offset = inst(i).in[1];
  const int64_t bytes = ElementBytes(slot.dtype);
  Value* pointer = memory_.Offset(slot.pointer, builder_.CreateMul(values_[offset].scalar, builder_.getInt64(bytes)));
  for (int u = 0; u < width_; ++u) {
    Value* at = memory_.Offset(pointer, int64_t{u} * plan_.lanes * bytes);
    Value* value = Vector(inst(i).in[0], u);
    if (inst(i).op == KOp::kScatterAdd) {
      Value* old = memory_.Load(ops_.MemoryType(slot.dtype), at, builder_.getInt64(1), tail_);
      value = ops_.Combine(KOp::kReduceSum, slot.dtype, ops_.FromMemory(slot.dtype, old), value);
    }
    memory_.Store(ops_.ToMemory(slot.dtype, value), at, builder_.getInt64(1), tail_);
  }
}

// In the order of the lanes.
void FunctionEmitter::ScatterLanes(int i) {
  const Slot& slot = slots_[inst(i).imm];
  const llvm::Align align(ElementBytes(slot.dtype));
  llvm::Type* element = ops_.MemoryType(slot.dtype);
  llvm::Type* i64 = builder_.getInt64Ty();
  Value* stride = Number(slot.strides[plan_.vector_dim]);
  Value* values = memory_.StackSlot(llvm::ArrayType::get(element, plan_.lanes), 64);
  Value* offsets = memory_.StackSlot(llvm::ArrayType::get(i64, plan_.lanes), 64);
  for (int u = 0; u < width_; ++u) {
    Value* condition = Vector(inst(i).in[2], u);
    if (tail_.mask != nullptr) condition = builder_.CreateAnd(condition, tail_.mask);
    if (plan_.IsParted()) condition = builder_.CreateAnd(condition, IsInParts(Vector(inst(i).in[1], u)));
    builder_.CreateAlignedStore(ops_.ToMemory(slot.dtype, Vector(inst(i).in[0], u)), values, llvm::Align(64));
    builder_.CreateAlignedStore(Vector(inst(i).in[1], u), offsets, llvm::Align(64));
    const auto scatter = [&](Value* lane) {
      Value* along = builder_.CreateMul(stride, builder_.CreateAdd(lane, builder_.getInt64(int64_t{u} * plan_.lanes)));
      Value* offset = builder_.CreateLoad(i64, builder_.CreateGEP(i64, offsets, lane));
      Value* at = builder_.CreateGEP(element, slot.pointer, builder_.CreateAdd(offset, along));
      Value* value = builder_.CreateAlignedLoad(element, builder_.CreateGEP(element, values, lane), align);
      if (inst(i).op == KOp::kScatterAdd) {
        value = ops_.Combine(KOp::kReduceSum, slot.dtype, builder_.CreateAlignedLoad(element, at, align), value);
      }
      builder_.CreateAlignedStore(value, at, align);
    };
    const auto scatter_all = [&] {
      for (int lane = 0; lane < plan_.lanes; ++lane) scatter(builder_.getInt64(lane));
    };
    const auto scatter_some = [&] { EachLane(condition, scatter); };
    if (tail_.mask != nullptr) {
      scatter_some();
    } else {
      Either(builder_.CreateAndReduce(condition), scatter_all, scatter_some);
    }
  }
}

// The lanes where `mask` is true, in order.
void FunctionEmitter::EachLane(Value* mask, const std::function<void(Value*)>& body) {
  llvm::Type* i64 = builder_.getInt64Ty();
  Value* bits = memory_.StackSlot(i64, 0);
  Value* all = builder_.CreateBitCast(mask, builder_.getIntNTy(static_cast<unsigned>(plan_.lanes)));
  builder_.CreateStore(builder_.CreateZExt(all, i64), bits);
  EmitWhile([&] { return builder_.CreateIsNotNull(builder_.CreateLoad(i64, bits)); },
            [&] {
              Value* left = builder_.CreateLoad(i64, bits);
              body(builder_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, left, builder_.getTrue()));
              builder_.CreateStore(builder_.CreateAnd(left, builder_.CreateSub(left, builder_.getInt64(1))), bits);
            });
}

}  // namespace lazuli::codegen
