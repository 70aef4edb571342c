// Vector loads and stores of any stride, whole or partial.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {

// The valid lanes of a partial vector: the first `count` (i64), also as a mask. Both null when all lanes are valid.
struct Tail {
  llvm::Value* mask = nullptr;
  llvm::Value* count = nullptr;
};

class MemoryEmitter {
 public:
  MemoryEmitter(llvm::IRBuilder<>& builder, const IsaInfo& isa, int lanes) : builder_(builder), isa_(isa), lanes_(lanes) {}

  // `pointer` is lane 0's; lanes lie `stride` (i64) elements apart. Lanes beyond the tail are zero and their memory is not touched.
  llvm::Value* Load(llvm::Type* element, llvm::Value* pointer, llvm::Value* stride, const Tail& tail);
  // Lane i is `offsets`' element i (i64) elements past `base`.
  llvm::Value* Gather(llvm::Type* element, llvm::Value* base, llvm::Value* offsets, const Tail& tail);
  void Store(llvm::Value* vector, llvm::Value* pointer, llvm::Value* stride, const Tail& tail);
  // Stores past the caches to where StreamAlignment() allows it. Fence() makes what was stored so visible in program order.
  void Stream(llvm::Value* vector, llvm::Value* pointer);
  uint64_t StreamAlignment(int64_t element_bytes) const;
  void Fence();
  // Asks for the `bytes` at `pointer`, which need not exist.
  void Prefetch(llvm::Value* pointer, int64_t bytes, bool to_write);

  // `pointer` plus a number of bytes.
  llvm::Value* Offset(llvm::Value* pointer, llvm::Value* bytes);
  llvm::Value* Offset(llvm::Value* pointer, int64_t bytes);

  // A slot of the stack frame, allocated once per call of the function.
  llvm::AllocaInst* StackSlot(llvm::Type* type, uint64_t align);

 private:
  llvm::Value* LoadNear(llvm::FixedVectorType* type, llvm::Value* pointer, int64_t stride);
  bool HasMaskedMemory(int64_t element_bytes) const;
  // Copies the tail's elements between memory and a packed stack slot.
  void CopyTail(llvm::Type* element, llvm::Value* memory, llvm::Value* packed, llvm::Value* stride, const Tail& tail, bool to_memory);
  // Where lane `lane` lies.
  llvm::Value* LanePointer(llvm::Type* element, llvm::Value* pointer, llvm::Value* stride, int lane);
  llvm::Value* Staging();

  llvm::IRBuilder<>& builder_;
  IsaInfo isa_;
  int lanes_;
  llvm::Value* staging_ = nullptr;
};

}  // namespace lazuli::codegen
