// The part of FunctionEmitter that reads at computed places, and checks them.
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

}  // namespace lazuli::codegen
