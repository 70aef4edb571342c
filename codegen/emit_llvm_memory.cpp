#include "codegen/emit_llvm_memory.h"

#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>

namespace lazuli::codegen {
namespace {

using llvm::Align;
using llvm::Type;
using llvm::Value;

int64_t BytesOf(Type* element) { return element->getPrimitiveSizeInBits() / 8; }

bool IsOne(Value* number) {
  auto* constant = llvm::dyn_cast<llvm::ConstantInt>(number);
  return constant != nullptr && constant->isOne();
}

bool IsMinusOne(Value* number) {
  auto* constant = llvm::dyn_cast<llvm::ConstantInt>(number);
  return constant != nullptr && constant->isMinusOne();
}

// A stride up to kNearStride; 0: any other.
int64_t NearStride(Value* stride) {
  auto* constant = llvm::dyn_cast<llvm::ConstantInt>(stride);
  return constant != nullptr && constant->getSExtValue() > 1 && constant->getSExtValue() <= kNearStride ? constant->getSExtValue() : 0;
}

}  // namespace

Value* MemoryEmitter::Offset(Value* pointer, Value* bytes) { return builder_.CreateGEP(builder_.getInt8Ty(), pointer, bytes); }

Value* MemoryEmitter::Offset(Value* pointer, int64_t bytes) {
  return bytes == 0 ? pointer : builder_.CreateConstGEP1_64(builder_.getInt8Ty(), pointer, bytes);
}

llvm::AllocaInst* MemoryEmitter::StackSlot(Type* type, uint64_t align) {
  llvm::BasicBlock& entry = builder_.GetInsertBlock()->getParent()->getEntryBlock();
  llvm::IRBuilder<> at_entry(&entry, entry.begin());
  llvm::AllocaInst* slot = at_entry.CreateAlloca(type);
  if (align != 0) slot->setAlignment(Align(align));
  return slot;
}

bool MemoryEmitter::HasMaskedMemory(int64_t element_bytes) const {
  return isa_.masked_memory || (isa_.vector_bytes >= 32 && element_bytes >= 4);
}

Value* MemoryEmitter::Staging() {
  if (staging_ == nullptr) staging_ = StackSlot(llvm::ArrayType::get(builder_.getInt64Ty(), lanes_), 64);
  return staging_;
}

Value* MemoryEmitter::LanePointer(Type* element, Value* pointer, Value* stride, int lane) {
  return Offset(pointer, builder_.CreateMul(stride, builder_.getInt64(lane * BytesOf(element))));
}

Value* MemoryEmitter::Load(Type* element, Value* pointer, Value* stride, const Tail& tail) {
  auto* type = llvm::FixedVectorType::get(element, lanes_);
  const Align align(BytesOf(element));
  if (tail.mask == nullptr && IsOne(stride)) return builder_.CreateAlignedLoad(type, pointer, align);
  if (IsMinusOne(stride) && (tail.mask == nullptr || HasMaskedMemory(BytesOf(element)))) {
    Value* first = Offset(pointer, -(lanes_ - 1) * BytesOf(element));
    if (tail.mask == nullptr) return builder_.CreateVectorReverse(builder_.CreateAlignedLoad(type, first, align));
    Value* mask = builder_.CreateVectorReverse(tail.mask);
    return builder_.CreateVectorReverse(builder_.CreateMaskedLoad(type, first, align, mask, llvm::Constant::getNullValue(type)));
  }
  if (tail.mask == nullptr && lanes_ > 1 && NearStride(stride) > 1) return LoadNear(type, pointer, NearStride(stride));
  if (tail.mask == nullptr) {
    Value* result = llvm::PoisonValue::get(type);
    for (int lane = 0; lane < lanes_; ++lane) {
      Value* value = builder_.CreateAlignedLoad(element, LanePointer(element, pointer, stride, lane), align);
      result = builder_.CreateInsertElement(result, value, static_cast<uint64_t>(lane));
    }
    return result;
  }
  if (IsOne(stride) && HasMaskedMemory(BytesOf(element))) {
    return builder_.CreateMaskedLoad(type, pointer, align, tail.mask, llvm::Constant::getNullValue(type));
  }
  builder_.CreateAlignedStore(llvm::Constant::getNullValue(type), Staging(), Align(64));
  CopyTail(element, pointer, Staging(), stride, tail, /*to_memory=*/false);
  return builder_.CreateAlignedLoad(type, Staging(), Align(64));
}

// All of the memory that the lanes lie in, as whole vectors, of which the last one ends with the last lane; then what is wanted out of
// them.
Value* MemoryEmitter::LoadNear(llvm::FixedVectorType* type, Value* pointer, int64_t stride) {
  const int64_t bytes = BytesOf(type->getElementType()), end = (lanes_ - 1) * stride + 1;
  Value* result = nullptr;
  int found = 0;
  for (int64_t k = 0; k < stride; ++k) {
    const int64_t begin = std::min(k * lanes_, end - lanes_);
    Value* part = builder_.CreateAlignedLoad(type, Offset(pointer, begin * bytes), Align(bytes));
    llvm::SmallVector<int, 64> from(static_cast<size_t>(lanes_), llvm::PoisonMaskElem);
    for (int lane = 0; lane < found; ++lane) from[lane] = lane;
    for (; found < lanes_ && found * stride < begin + lanes_; ++found) {
      from[found] = static_cast<int>(found * stride - begin) + (result == nullptr ? 0 : lanes_);
    }
    result = builder_.CreateShuffleVector(result == nullptr ? part : result, part, from);
  }
  return result;
}

Value* MemoryEmitter::Gather(Type* element, Value* base, Value* offsets, const Tail& tail) {
  auto* type = llvm::FixedVectorType::get(element, lanes_);
  Value* pointers = builder_.CreateGEP(element, base, offsets);
  return builder_.CreateMaskedGather(type, pointers, Align(BytesOf(element)), tail.mask, llvm::Constant::getNullValue(type));
}

void MemoryEmitter::Store(Value* vector, Value* pointer, Value* stride, const Tail& tail) {
  Type* element = vector->getType()->getScalarType();
  const Align align(BytesOf(element));
  if (tail.mask == nullptr && IsOne(stride)) {
    builder_.CreateAlignedStore(vector, pointer, align);
  } else if (tail.mask == nullptr) {
    for (int lane = 0; lane < lanes_; ++lane) {
      Value* value = builder_.CreateExtractElement(vector, static_cast<uint64_t>(lane));
      builder_.CreateAlignedStore(value, LanePointer(element, pointer, stride, lane), align);
    }
  } else if (IsOne(stride) && HasMaskedMemory(BytesOf(element))) {
    builder_.CreateMaskedStore(vector, pointer, align, tail.mask);
  } else {
    builder_.CreateAlignedStore(vector, Staging(), Align(64));
    CopyTail(element, pointer, Staging(), stride, tail, /*to_memory=*/true);
  }
}

uint64_t MemoryEmitter::StreamAlignment(int64_t element_bytes) const {
  return static_cast<uint64_t>(std::min<int64_t>(isa_.vector_bytes, lanes_ * element_bytes));
}

void MemoryEmitter::Stream(Value* vector, Value* pointer) {
  const uint64_t align = StreamAlignment(BytesOf(vector->getType()->getScalarType()));
  llvm::StoreInst* store = builder_.CreateAlignedStore(vector, pointer, Align(align));
  auto* one = llvm::ConstantAsMetadata::get(builder_.getInt32(1));
  store->setMetadata(llvm::LLVMContext::MD_nontemporal, llvm::MDNode::get(builder_.getContext(), one));
}

void MemoryEmitter::Fence() { builder_.CreateIntrinsic(builder_.getVoidTy(), llvm::Intrinsic::x86_sse_sfence, {}); }

void MemoryEmitter::Prefetch(Value* pointer, int64_t bytes, bool to_write) {
  constexpr int64_t kLine = 64;
  for (int64_t line = 0; line < bytes; line += kLine) {
    Value* at = Offset(pointer, line);
    builder_.CreateIntrinsic(llvm::Intrinsic::prefetch, {at->getType()},
                             {at, builder_.getInt32(to_write ? 1 : 0), builder_.getInt32(3), builder_.getInt32(1)});
  }
}

void MemoryEmitter::CopyTail(Type* element, Value* memory, Value* packed, Value* stride, const Tail& tail, bool to_memory) {
  const int64_t bytes = BytesOf(element);
  const Align align(bytes);
  if (IsOne(stride)) {
    Value* length = builder_.CreateMul(tail.count, builder_.getInt64(bytes));
    builder_.CreateMemCpy(to_memory ? memory : packed, align, to_memory ? packed : memory, align, length);
    return;
  }
  llvm::Function* function = builder_.GetInsertBlock()->getParent();
  llvm::BasicBlock* before = builder_.GetInsertBlock();
  auto* loop = llvm::BasicBlock::Create(builder_.getContext(), "copy", function);
  auto* done = llvm::BasicBlock::Create(builder_.getContext(), "copied", function);
  builder_.CreateBr(loop);
  builder_.SetInsertPoint(loop);
  llvm::PHINode* lane = builder_.CreatePHI(builder_.getInt64Ty(), 2);
  lane->addIncoming(builder_.getInt64(0), before);
  Value* in_memory = Offset(memory, builder_.CreateMul(lane, builder_.CreateMul(stride, builder_.getInt64(bytes))));
  Value* in_packed = Offset(packed, builder_.CreateMul(lane, builder_.getInt64(bytes)));
  Value* value = builder_.CreateAlignedLoad(element, to_memory ? in_packed : in_memory, align);
  builder_.CreateAlignedStore(value, to_memory ? in_memory : in_packed, align);
  Value* next = builder_.CreateAdd(lane, builder_.getInt64(1));
  lane->addIncoming(next, loop);
  builder_.CreateCondBr(builder_.CreateICmpULT(next, tail.count), loop, done);
  builder_.SetInsertPoint(done);
}

}  // namespace lazuli::codegen
