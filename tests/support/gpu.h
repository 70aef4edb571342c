// The GPU of this machine, for tests that need one.
#pragma once

#include <string>

namespace lazuli::testing {

// "sm_90", after LibTorch's CUDA libraries are loaded; empty where there is no GPU that LibTorch can use, and then `why` says why.
std::string GpuArch(std::string* why);

// Waits until the GPU has done all that it was asked to.
void SynchronizeGpu();

}  // namespace lazuli::testing

// Skips the test where there is no GPU.
#define LAZULI_SKIP_WITHOUT_GPU() \
  if (std::string why; ::lazuli::testing::GpuArch(&why).empty()) GTEST_SKIP() << why
