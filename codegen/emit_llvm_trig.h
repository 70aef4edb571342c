// Sine, cosine and tangent, inlined.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <functional>

#include "codegen/emit_llvm_plan.h"
#include "codegen/kernel_ir.h"

namespace lazuli::codegen {

// Emits libm's function `name` of doubles, lane by lane.
using CallPerLane = std::function<llvm::Value*(llvm::IRBuilder<>& builder, const char* name, llvm::Value* x)>;

// `op` of the floats or doubles `x`; null when it is another function. `call` is for huge arguments.
llvm::Value* EmitTrig(llvm::IRBuilder<>& builder, const IsaInfo& isa, KOp op, llvm::Value* x, const CallPerLane& call);

}  // namespace lazuli::codegen
