// Counts what compiled programs launch.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "lazuli/lazuli.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {

// Fails the test unless `step`, which ends with lazuli::sync(), is one program of so many kernels and none of ATen's once it has been run
// before.
inline void ExpectLaunches(int64_t launches, const std::function<void()>& step) {
  lazuli::reset();
  DeviceMode mode(Options().backend("llvm"));
  step();
  const StatsDelta delta;
  step();
  EXPECT_EQ(delta.of(&Stats::kernel_launches), launches);
  EXPECT_EQ(delta.of(&Stats::aten_calls), 0);
  EXPECT_EQ(delta.of(&Stats::cache_hits), 1);
}

}  // namespace lazuli::testing
