// Arcsine, arccosine and arctangent of floats, inlined in float arithmetic.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {

// `op` of the floats `x`; null when it is not one of these functions, or `x` are not floats.
llvm::Value* EmitInverseTrig(llvm::IRBuilder<>& builder, const IsaInfo& isa, KOp op, llvm::Value* x);

}  // namespace lazuli::codegen
