// Functions of floats and doubles inlined as polynomials: within 1 ulp of the true value everywhere, special values as in C. They need FMA;
// lanes do not influence each other.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "codegen/emit_llvm_plan.h"
#include "codegen/emit_llvm_trig.h"

namespace lazuli::codegen {

// `op` of the scalars or vectors `a` and `b` (null for unary ops) of floats or doubles; null when the function is not implemented here.
// `call` is what a few rare arguments take.
llvm::Value* EmitPolynomial(llvm::IRBuilder<>& builder, const IsaInfo& isa, KOp op, llvm::Value* a, llvm::Value* b,
                            const CallPerLane& call);

}  // namespace lazuli::codegen
