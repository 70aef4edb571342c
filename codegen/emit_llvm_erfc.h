// erfc of doubles. Inlined.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {

// exp(t^2) erfc(t) = high + low + d p(d), d = t - center, by the exponent and the three highest bits of 1 + t: center, high, low, and the
// coefficients of p, lowest power first. scripts/fit_polynomials.py computes them.
constexpr int kScaledErfcIntervals = 39;
constexpr int kScaledErfcColumns = 14;
extern const double kScaledErfcRows[kScaledErfcIntervals][kScaledErfcColumns];

// Of a scalar or a vector of doubles.
llvm::Value* EmitErfcOfDouble(llvm::IRBuilder<>& builder, const IsaInfo& isa, llvm::Value* x);

}  // namespace lazuli::codegen
