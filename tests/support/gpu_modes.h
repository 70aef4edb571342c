// Tests of programs on a GPU, and of those in one mode or another. Skipped without a GPU; each starts with an empty cache.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>

#include "tests/support/as_good_as_eager.h"
#include "tests/support/gpu.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {

class OnGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LAZULI_SKIP_WITHOUT_GPU();
    lazuli::reset();
    torch::manual_seed(0);
  }

  static torch::TensorOptions OnGpu(torch::Dtype dtype = torch::kFloat) { return torch::TensorOptions(dtype).device(torch::kCUDA); }

  // What `program` gives in a mode in its third run, in which kernels compute all of it.
  static Tensors ByKernels(const Program& program) {
    Tensors results;
    lazuli::reset();
    for (int run = 0; run < 3; ++run) {
      const StatsDelta stats;
      const DeviceMode mode(Options().disk_cache(false).async(false));
      results = program();
      lazuli::sync();
      if (run == 2) EXPECT_EQ(stats.of(&Stats::aten_calls), 0);
      if (run == 2) EXPECT_GE(stats.of(&Stats::kernel_launches), 1);
    }
    return results;
  }

  // Bit by bit what it is eagerly.
  static void ExpectEqualByKernels(const Program& program) {
    const Tensors eager = program(), lazy = ByKernels(program);
    ASSERT_EQ(eager.size(), lazy.size());
    for (size_t i = 0; i < eager.size(); ++i) {
      EXPECT_EQ(eager[i].scalar_type(), lazy[i].scalar_type()) << "result " << i;
      EXPECT_TRUE(torch::equal(eager[i], lazy[i])) << "result " << i;
    }
  }
};

class GpuModesTest : public OnGpuTest {
 protected:
  // Runs `program` eagerly and four times in a mode; graphs are captured at the second and launched from the third on.
  static void ExpectSameAsEager(const Program& program, const std::string& mode, bool exact = false) {
    const Tensors eager = program();
    for (int run = 0; run < 4; ++run) {
      Tensors lazy;
      {
        const DeviceMode device_mode(Options().mode(mode).disk_cache(false));
        lazy = program();
        lazuli::sync();
      }
      ASSERT_EQ(eager.size(), lazy.size());
      for (size_t i = 0; i < eager.size(); ++i) {
        ExpectSame(eager[i].detach().cpu(), lazy[i].detach().cpu(), exact, mode + ", result " + std::to_string(i));
      }
    }
  }
};

}  // namespace lazuli::testing
