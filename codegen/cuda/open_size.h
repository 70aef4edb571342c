// One kernel for all sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "codegen/kernel_ir.h"

namespace lazuli::codegen {

// Makes a symbol of the size of a kernel for a GPU that walks memory from end to end, element by element or for sums of all of them, so
// that the kernels of parameters of all sizes are one: compiled once, and run in one launch (CudaLaunch::batch). `symbols`: what the
// kernel's symbols stand for; the size's is added. Where the size is a symbol already, its hint becomes the same as all others'. Other
// kernels stay as they are. Returns whether the size is a symbol now.
bool OpenSize(KernelIR* kernel, std::vector<int64_t>* symbols);

struct SizedKernel {
  KernelIR* kernel;
  std::vector<int64_t>* symbols;
};

// The same for all kernels of a program; those that reduce stay as they are, too, where no two become one: a kernel of any size is split,
// which takes a second launch.
void OpenSizes(absl::Span<const SizedKernel> kernels);

}  // namespace lazuli::codegen
