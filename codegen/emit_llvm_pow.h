// Powers, inlined.
#pragma once

#include <llvm/IR/IRBuilder.h>

namespace lazuli::codegen {

// x^y of floats or doubles, with the special values of C's pow.
llvm::Value* EmitPow(llvm::IRBuilder<>& builder, llvm::Value* x, llvm::Value* y);

}  // namespace lazuli::codegen
