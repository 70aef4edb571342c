// Programs whose first steps run while their trace is still recorded: results, what is taken back, and when it is given up.

#include <torch/torch.h>

#include <algorithm>

#include "tests/support/log_file.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

using torch::Tensor;

class HeadStartTest : public BackendTest {
 protected:
  Options options() const { return BackendTest::options().head_start("1").async(false).step_aside(false); }

  // Forty operators that write two inputs on their way, one of them larger than what is saved; then one of two ends.
  struct State {
    Tensor count = torch::zeros({4}), large = torch::zeros({1 << 16}), x = torch::arange(32.0) * 0.01;

    float Step(bool other_end) {
      Tensor y = x;
      for (int i = 0; i < 10; ++i) y = y * 0.9 + 0.05;
      count.add_(y.mean());
      for (int i = 0; i < 10; ++i) y = torch::relu(y) + count.slice(0, 0, 1) * 0.001;
      large.add_(1);
      y = y + large.slice(0, 0, 32);
      if (other_end) y = torch::sin(y) * count.mean();
      return y.mean().item<float>();
    }
    Tensors All() const { return {count.clone(), large.clone(), x.clone()}; }
  };

  // Steps of which those in `others` end otherwise, eagerly and in the mode.
  void Compare(int steps, const std::vector<int>& others, const Options& options) {
    const torch::NoGradGuard no_grad;
    State eager, lazy;
    std::vector<float> expected, results;
    const auto is_other = [&](int i) { return std::find(others.begin(), others.end(), i) != others.end(); };
    for (int i = 0; i < steps; ++i) expected.push_back(eager.Step(is_other(i)));
    {
      const lazuli::DeviceMode mode(options);
      for (int i = 0; i < steps; ++i) results.push_back(lazy.Step(is_other(i)));
    }
    for (int i = 0; i < steps; ++i) EXPECT_NEAR(results[static_cast<size_t>(i)], expected[static_cast<size_t>(i)], 1e-3) << i;
    ExpectSame(eager.All(), lazy.All(), exact(), "what was written");
  }
};

TEST_P(HeadStartTest, ExpectedTracesGetOne) {
  const StatsDelta delta;
  Compare(8, {}, options());
  EXPECT_GE(delta.of(&Stats::head_starts), 4);
  EXPECT_EQ(delta.of(&Stats::head_starts_in_vain), 0);
  EXPECT_EQ(delta.of(&Stats::compile_failures), 0);
}

TEST_P(HeadStartTest, NoneWhereTheOptionsSaySo) {
  const StatsDelta delta;
  Compare(8, {}, options().head_start("0"));
  EXPECT_EQ(delta.of(&Stats::head_starts), 0);
}

TEST_P(HeadStartTest, WhatAnotherTraceOverwroteIsRestored) {
  const StatsDelta delta;
  Compare(8, {5}, options());
  EXPECT_GE(delta.of(&Stats::head_starts_in_vain), 1);
  EXPECT_LE(delta.of(&Stats::head_starts_in_vain), 2);  // What comes next may be expected to be like it.
  EXPECT_GE(delta.of(&Stats::head_starts), 4);
}

TEST_P(HeadStartTest, TracesThatAreOftenOthersGetNoMore) {
  const LogFile log;
  const StatsDelta delta;
  Compare(60, {5, 8, 11, 14, 17, 20, 23, 26, 29, 32, 35, 38, 41, 44, 47, 50}, options().logs("perf_hints").log_file(log.path()));
  EXPECT_GE(delta.of(&Stats::head_starts_in_vain), 3);
  EXPECT_LE(delta.of(&Stats::head_starts_in_vain), 10);
  EXPECT_GE(CountOf(log.text(), "often turns out to be another one"), 1);
}

LAZULI_FOR_EACH_BACKEND(HeadStartTest);

}  // namespace
}  // namespace lazuli::testing
