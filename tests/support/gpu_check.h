// How kernels are checked on this machine's GPU.
#pragma once

#include <string>

#include "tests/support/gpu.h"
#include "tests/support/kernel_check.h"

namespace lazuli::testing {

inline CheckOptions GpuCheck() {
  CheckOptions options;
  std::string why;
  options.target.cuda_arch = GpuArch(&why);
  return options;
}

// Of whole numbers from -most to most, so that sums are exact in any order.
inline CheckOptions GpuCheckInAnyOrder(double most) {
  CheckOptions options = GpuCheck();
  options.low = -most;
  options.high = most;
  options.whole = true;
  options.absolute = 1e-30;  // 0 and -0 are equal.
  options.cpu_oracle = true;
  return options;
}

}  // namespace lazuli::testing
