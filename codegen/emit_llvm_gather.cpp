// The part of FunctionEmitter that reads and writes at computed places, and checks them.
#include <llvm/IR/Module.h>

#include "codegen/emit_llvm_function.h"

namespace lazuli::codegen {

using llvm::Value;

// A load from where the offsets point. Whole vectors are loaded where all lanes have one offset.
void FunctionEmitter::EmitGather(int i) {
  const Slot& slot = slots_[inst(i).imm];
  const int offset = inst(i).in[0];
  const int64_t bytes = ElementBytes(slot.dtype);
  if (plan_.IsUniform(offset)) {
    return LoadSlot(i, slot, memory_.Offset(slot.pointer, builder_.CreateMul(values_[offset].scalar, builder_.getInt64(bytes))));
  }
  Value* stride = Number(slot.strides[plan_.vector_dim]);
  llvm::Type* element = ops_.MemoryType(slot.dtype);
  values_[i] = Values();
  for (int u = 0; u < width_; ++u) {
    llvm::SmallVector<llvm::Constant*, 64> ids;
    for (int lane = 0; lane < plan_.lanes; ++lane) ids.push_back(builder_.getInt64(u * plan_.lanes + lane));
    Value* along = builder_.CreateMul(builder_.CreateVectorSplat(plan_.lanes, stride), llvm::ConstantVector::get(ids));
    Value* offsets = builder_.CreateAdd(Vector(offset, u), along);
    values_[i].vectors.push_back(ops_.FromMemory(slot.dtype, memory_.Gather(element, slot.pointer, offsets, tail_)));
  }
}

// Tells once and for all when the operand is false somewhere.
void FunctionEmitter::EmitCheck(int i) {
  const int in = inst(i).in[0];
  const bool uniform = plan_.IsUniform(in);
  Value* fails = nullptr;
  for (int u = 0; u < (uniform ? 1 : width_); ++u) {
    Value* here = builder_.CreateNot(uniform ? values_[in].scalar : Vector(in, u));
    if (!uniform && tail_.mask != nullptr) here = builder_.CreateAnd(here, tail_.mask);
    fails = fails == nullptr ? here : builder_.CreateOr(fails, here);
  }
  if (!uniform) fails = builder_.CreateOrReduce(fails);
  auto* failed = llvm::BasicBlock::Create(module_.getContext(), "failed", function_);
  auto* next = llvm::BasicBlock::Create(module_.getContext(), "next");
  builder_.CreateCondBr(fails, failed, next);
  builder_.SetInsertPoint(failed);
  // Other threads may say the same at the same time.
  builder_.CreateAlignedStore(builder_.getInt8(1), slots_[inst(i).imm].pointer, llvm::Align(1))->setAtomic(llvm::AtomicOrdering::Monotonic);
  builder_.CreateBr(next);
  next->insertInto(function_);
  builder_.SetInsertPoint(next);
}

// Whole vectors where all lanes have one offset and none meets another, else lane by lane, in order.
void FunctionEmitter::EmitScatter(int i) {
  const Slot& slot = slots_[inst(i).imm];
  const int offset = inst(i).in[1], condition = inst(i).in[2];
  const bool together = plan_.IsUniform(offset) && plan_.IsUniform(condition) && slot.strides[plan_.vector_dim] == 1;
  if (plan_.VectorIsReduced() || !together) return ScatterLanes(i);
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

void FunctionEmitter::ScatterLanes(int i) {
  const Slot& slot = slots_[inst(i).imm];
  const llvm::Align align(ElementBytes(slot.dtype));
  llvm::Type* element = ops_.MemoryType(slot.dtype);
  llvm::Type* i64 = builder_.getInt64Ty();
  Value* stride = Number(slot.strides[plan_.vector_dim]);
  Value* values = memory_.StackSlot(llvm::ArrayType::get(element, plan_.lanes), 64);
  Value* offsets = memory_.StackSlot(llvm::ArrayType::get(i64, plan_.lanes), 64);
  llvm::Type* flag = builder_.getInt8Ty();
  Value* conditions = memory_.StackSlot(llvm::ArrayType::get(flag, plan_.lanes), 64);
  for (int u = 0; u < width_; ++u) {
    builder_.CreateAlignedStore(ops_.ToMemory(slot.dtype, Vector(inst(i).in[0], u)), values, llvm::Align(64));
    builder_.CreateAlignedStore(Vector(inst(i).in[1], u), offsets, llvm::Align(64));
    builder_.CreateAlignedStore(ops_.ToMemory(c10::ScalarType::Bool, Vector(inst(i).in[2], u)), conditions, llvm::Align(64));
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
    const auto scatter_some = [&] {
      Value* count = tail_.count != nullptr ? tail_.count : builder_.getInt64(plan_.lanes);
      EmitLoop(builder_.getInt64(0), count, 1, [&](Value* lane) {
        Value* condition = builder_.CreateLoad(flag, builder_.CreateGEP(flag, conditions, lane));
        Either(
            builder_.CreateICmpNE(condition, builder_.getInt8(0)), [&] { scatter(lane); }, [] {});
      });
    };
    if (tail_.count != nullptr) {
      scatter_some();
      continue;
    }
    const auto scatter_all = [&] {
      for (int lane = 0; lane < plan_.lanes; ++lane) scatter(builder_.getInt64(lane));
    };
    Either(builder_.CreateAndReduce(Vector(inst(i).in[2], u)), scatter_all, scatter_some);
  }
}

}  // namespace lazuli::codegen
