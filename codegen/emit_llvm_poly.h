// Float functions inlined as polynomials: within 1 ulp of the true value everywhere, special values as in C, no memory and no calls.
// They need FMA; lanes do not influence each other.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "codegen/kernel_ir.h"

namespace lazuli::codegen {

// `op` of the float scalar or vector `x`; null when the function is not implemented here.
llvm::Value* EmitPolynomial(llvm::IRBuilder<>& builder, KOp op, llvm::Value* x);

}  // namespace lazuli::codegen
