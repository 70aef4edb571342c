// Kernels for a GPU that need not be there.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "codegen/kernel_compiler.h"

namespace lazuli::testing {

inline constexpr const char* kTestedArch = "sm_90";

inline codegen::KernelTarget GpuTarget(const std::string& precision = "eager") {
  codegen::KernelTarget target{"avx512", precision};
  target.cuda_arch = kTestedArch;
  return target;
}

// The CUDA text of `kernel`; empty, and a failure of the test, if there is none.
inline std::string GpuSource(const codegen::KernelIR& kernel, const std::string& precision = "eager") {
  const absl::StatusOr<std::string> source = codegen::KernelSource(kernel, GpuTarget(precision));
  EXPECT_TRUE(source.ok()) << source.status();
  return source.ok() ? *source : "";
}

}  // namespace lazuli::testing
