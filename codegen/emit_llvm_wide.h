// Functions of floats computed in double arithmetic, so that rounding to float is nearly their only error.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {

// `op` of the floats `a` and `b` (null for unary ops); null when it is not one of these functions.
llvm::Value* EmitWide(llvm::IRBuilder<>& builder, const IsaInfo& isa, KOp op, llvm::Value* a, llvm::Value* b);

}  // namespace lazuli::codegen
