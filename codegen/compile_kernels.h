// The kernels of one program, several at a time where that pays.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "codegen/kernel_compiler.h"

namespace lazuli::codegen {

struct KernelRequest {
  const KernelIR* kernel = nullptr;
  KernelTarget target;
};

struct ProgramKernel {
  std::shared_ptr<const CompiledKernel> kernel;
  KernelOrigin origin = KernelOrigin::kFound;
};

// Makes the kernels in order, as CompileKernel does; the first error ends it. Those of GPUs, of which each takes NVRTC some 50 ms, are made
// on all of the machine's threads before. Equal ones count once as compiled.
absl::StatusOr<std::vector<ProgramKernel>> CompileKernels(absl::Span<const KernelRequest> requests);

}  // namespace lazuli::codegen
