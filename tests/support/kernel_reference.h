// A plain interpreter of KernelIR: one point at a time, one lane, the definition that compiled kernels are tested against.
#pragma once

#include "codegen/kernel_ir.h"

namespace lazuli::testing {

// Runs `kernel`, which must verify, over memory as CompiledKernel::Run does. Float sums and products are accumulated in double.
void RunReference(const codegen::KernelIR& kernel, void* const* buffers, const uint64_t* scalars);

// The double whose bits a Const or a floating Scalar carries.
uint64_t BitsOf(double value);

}  // namespace lazuli::testing
