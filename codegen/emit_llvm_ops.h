// One kernel instruction as LLVM IR, on scalars or vectors alike. Knows arithmetic, not loops or memory.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "codegen/emit_llvm_math.h"
#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {

class InstEmitter {
 public:
  InstEmitter(llvm::IRBuilder<>& builder, llvm::Module& module, const IsaInfo& isa, std::string precision)
      : builder_(builder), isa_(isa), math_(builder, module, isa, std::move(precision)) {}

  // The type of a value of `type` in registers (Bool is i1; BFloat16 and Half are their bits), and in memory.
  llvm::Type* RegisterType(c10::ScalarType type) const;
  llvm::Type* MemoryType(c10::ScalarType type) const;

  // Arithmetic of `inst`, whose operands have type `in_type`. `mask` (may be null) tells the lanes that hold values: others must not trap.
  llvm::Value* Emit(const KInst& inst, c10::ScalarType in_type, llvm::Value* a, llvm::Value* b, llvm::Value* c, llvm::Value* mask);

  // A scalar constant from the bits of KOp::kConst.
  llvm::Value* Constant(c10::ScalarType type, int64_t bits) const;

  // One step of a reduction, and the value it starts from.
  llvm::Value* Combine(KOp reduce, c10::ScalarType type, llvm::Value* acc, llvm::Value* value);
  llvm::Value* Identity(KOp reduce, c10::ScalarType type) const;

  // Between registers and memory (Bool: i1 and i8).
  llvm::Value* ToMemory(c10::ScalarType type, llvm::Value* value);
  llvm::Value* FromMemory(c10::ScalarType type, llvm::Value* value);

 private:
  llvm::Value* EmitFloating(const KInst& inst, c10::ScalarType type, llvm::Value* a, llvm::Value* b, llvm::Value* c);
  llvm::Value* EmitIntegral(const KInst& inst, c10::ScalarType type, llvm::Value* a, llvm::Value* b, llvm::Value* mask);
  llvm::Value* EmitShift(KOp op, c10::ScalarType type, llvm::Value* a, llvm::Value* b);
  llvm::Value* EmitDivision(KOp op, c10::ScalarType type, llvm::Value* a, llvm::Value* b, llvm::Value* mask);
  llvm::Value* EmitCompare(KOp op, c10::ScalarType type, llvm::Value* a, llvm::Value* b);
  llvm::Value* EmitMinMax(KOp op, c10::ScalarType type, llvm::Value* a, llvm::Value* b);
  llvm::Value* EmitCast(c10::ScalarType from, c10::ScalarType to, llvm::Value* value);
  llvm::Value* BFloat16FromFloat(llvm::Value* value);
  llvm::Value* HalfFromFloat(llvm::Value* value);
  llvm::Value* WidenToFloat(c10::ScalarType from, llvm::Value* value);

  // `scalar` with the shape (scalar or vector length) of `like`.
  llvm::Type* Like(llvm::Type* element, llvm::Value* like) const;

  llvm::IRBuilder<>& builder_;
  IsaInfo isa_;
  MathEmitter math_;
};

bool IsFloatingType(c10::ScalarType type);
bool IsSignedType(c10::ScalarType type);

}  // namespace lazuli::codegen
