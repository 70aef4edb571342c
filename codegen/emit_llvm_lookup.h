// Functions of floats by tables that registers hold: log, log2, log10 and erfc with AVX-512. Inlined.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {

// `op` of the floats `x`; null when it is not one of these functions, `x` are not floats, or there is no AVX-512.
llvm::Value* EmitByLookup(llvm::IRBuilder<>& builder, const IsaInfo& isa, KOp op, llvm::Value* x);

}  // namespace lazuli::codegen
