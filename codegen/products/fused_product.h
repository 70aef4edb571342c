// A product together with kernels on the rows of its operand (a prologue) and of its result (an epilogue): rows are made, multiplied and
// used while they are in a core's cache.
#pragma once

#include <string>
#include <vector>

#include "codegen/products/direct_calls.h"
#include "runtime/executor.h"

namespace lazuli::codegen {

// By step of a program: which product it is. `describe` is null for what is none.
using ProductSteps = std::vector<ProductCall>;

// Finds products in `spec` that kernels can run with, brings such steps together, and sets StepSpec::fused. Memories have no place in the
// arena yet. Returns lines that say what was found, for the log.
std::vector<std::string> FuseProducts(const ProductSteps& products, runtime::ProgramSpec* spec);

}  // namespace lazuli::codegen
