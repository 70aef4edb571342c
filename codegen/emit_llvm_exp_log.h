// Functions made of exp and log, inlined in their type's own arithmetic.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {

// `op` of the floats or doubles `x`; null when it is not one of these functions (of asinh, acosh, atanh: of doubles).
llvm::Value* EmitExpLog(llvm::IRBuilder<>& builder, const IsaInfo& isa, KOp op, llvm::Value* x);

}  // namespace lazuli::codegen
