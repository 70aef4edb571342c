// Tests of programs on a GPU, and of those in one mode or another. Skipped without a GPU; each starts with an empty cache.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <string>

#include "tests/support/gpu.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {

class OnGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LAZULI_SKIP_WITHOUT_GPU();
    lazuli::reset();
  }

  static torch::TensorOptions OnGpu(torch::Dtype dtype = torch::kFloat) { return torch::TensorOptions(dtype).device(torch::kCUDA); }

  // Runs `program`, which takes a dtype, and compares it with itself in double: it may be off by no more than twice as much as eager is, or
  // by `allowed` times the largest element.
  static void ExpectAsGoodAsEager(const std::function<Tensors(torch::Dtype)>& program, torch::Dtype dtype, const Options& options,
                                  double allowed = 0) {
    const Tensors exact = program(torch::kDouble), eager = program(dtype);
    for (int run = 0; run < 3; ++run) {
      Tensors lazy;
      {
        const DeviceMode device_mode(options);
        lazy = program(dtype);
        lazuli::sync();
      }
      for (size_t i = 0; i < exact.size(); ++i) {
        const auto off = [&](const torch::Tensor& x) { return (x.to(torch::kDouble) - exact[i]).abs(); };
        ASSERT_EQ(lazy[i].scalar_type(), dtype);
        EXPECT_EQ(lazy[i].strides(), eager[i].strides()) << i;
        const double floor = allowed * exact[i].abs().max().item<double>();
        EXPECT_LE(off(lazy[i]).max().item<double>(), std::max(floor, 2 * off(eager[i]).max().item<double>())) << dtype << " " << i;
        EXPECT_LE(off(lazy[i]).mean().item<double>(), std::max(floor, 2 * off(eager[i]).mean().item<double>())) << dtype << " " << i;
      }
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
