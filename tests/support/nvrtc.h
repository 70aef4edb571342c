// For tests that compile CUDA code, which takes no GPU.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "codegen/cuda/cuda_plan.h"
#include "codegen/cuda/emit_cuda.h"
#include "codegen/cuda/nvrtc_compiler.h"
#include "codegen/kernel_ir.h"
#include "tests/support/gpu_target.h"

namespace lazuli::testing {

// "" where NVRTC compiles the text of `kernel`, what it says otherwise.
inline std::string Compiles(const codegen::KernelIR& kernel, bool wide = false, const codegen::CudaSchedule& schedule = {}) {
  if (const absl::Status status = codegen::VerifyKernel(kernel); !status.ok()) return std::string(status.message());
  const std::string text = codegen::EmitCuda(codegen::PlanCuda(kernel, wide, false, schedule));
  const auto code = codegen::CompileCuda(text, kTestedArch, false);
  return code.ok() ? "" : absl::StrCat(std::string(code.status().message()), "\n", text, codegen::PrintKernel(kernel));
}

}  // namespace lazuli::testing

// Without NVRTC nothing is compiled; the test says so.
#define LAZULI_SKIP_WITHOUT_NVRTC() \
  if (const auto version = ::lazuli::codegen::NvrtcVersion(); !version.ok()) GTEST_SKIP() << version.status()
