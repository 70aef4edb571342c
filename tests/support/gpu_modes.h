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
