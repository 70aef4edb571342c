// Runs a compiled kernel and the reference interpreter on equal random memory and compares every byte of it; and once more the same
// kernel compiled with symbols for all its sizes and strides.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/kernel_compiler.h"
#include "codegen/kernel_ir.h"

namespace lazuli::testing {

// Gathers may reach so many elements beyond their buffer's window.
constexpr int64_t kGatherReach = 16384;

struct CheckOptions {
  codegen::KernelTarget target{"avx512", "eager"};
  uint64_t seed = 1;
  // Floating values are drawn from [low, high], except for one in eight (when `specials`) of NaN, infinities, zeros, denormals and huge
  // ones.
  double low = -4;
  double high = 4;
  bool specials = false;
  bool whole = false;  // Floating values are whole numbers, so that sums are exact in any order.
  bool zeros = true;   // Whether integers may be 0.
  // Allowed difference of floating results: that many units in the last place of the larger, or `absolute`.
  double ulps = 0;
  double absolute = 0;
  std::vector<uint64_t> scalars;
  bool with_symbols = true;  // Also compiles the kernel with symbols.
  int misaligned = 0;        // Elements between the beginning of memory and each buffer.
  bool cpu_oracle = false;   // The kernel compiled for the CPU says what is right: for what is too large for the interpreter.
};

// With `target.cuda_arch` the kernel runs on the GPU of LibTorch, which must have one. Empty when equal, else the first difference with the
// kernel's text.
std::string CheckKernel(const codegen::KernelIR& kernel, const CheckOptions& options);

// "avx512", "avx2", "sse4", from the widest on that the CPU has.
const std::vector<std::string>& AllIsas();

}  // namespace lazuli::testing
