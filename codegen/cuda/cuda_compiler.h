// KernelIR to kernels that run on NVIDIA GPUs: the part of kernel_compiler.h behind KernelTarget::cuda_arch.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "codegen/kernel_compiler.h"
#include "codegen/made_kernel.h"

namespace lazuli::codegen {

// Compiles `kernel`, which verifies and has work to do, or loads it.
absl::StatusOr<MadeKernel> MakeCudaKernel(const KernelIR& kernel, const KernelTarget& target, KernelOrigin* origin);

// `symbols`: as ExplainKernel's.
std::string ExplainCudaKernel(const KernelIR& kernel, absl::Span<const int64_t> symbols);
std::string CudaSource(const KernelIR& kernel, const KernelTarget& target);

}  // namespace lazuli::codegen
