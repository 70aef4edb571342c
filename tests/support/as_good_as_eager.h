// Programs whose results depend on the order in which they add up: no further from what is exact than eager's are.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>

#include "lazuli/lazuli.h"
#include "tests/support/tensor_diff.h"

namespace lazuli::testing {

// Runs `program`, which takes a dtype, and compares it with itself in double: it may be off by no more than twice as much as eager is, or
// by `allowed` times the largest element.
inline void ExpectAsGoodAsEager(const std::function<Tensors(torch::Dtype)>& program, torch::Dtype dtype, const Options& options,
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

}  // namespace lazuli::testing
