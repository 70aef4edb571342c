// Powers, inlined.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {

// x^y of floats or doubles, with the special values of C's pow.
llvm::Value* EmitPow(llvm::IRBuilder<>& builder, const IsaInfo& isa, llvm::Value* x, llvm::Value* y);

}  // namespace lazuli::codegen
