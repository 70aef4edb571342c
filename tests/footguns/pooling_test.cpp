// Pooling in fused kernels: what they choose in a window is what eager mode chooses, to the bit.

#include <limits>

#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

class PoolingTest : public BackendTest {
 protected:
  struct Window {
    std::vector<int64_t> kernel, stride, padding;
  };
  static std::vector<Window> Windows() {
    return {{{3, 3}, {2, 2}, {1, 1}}, {{2, 2}, {}, {0, 0}}, {{2, 2}, {1, 1}, {1, 1}}, {{3, 2}, {1, 3}, {1, 0}},
            {{1, 5}, {2, 1}, {0, 2}}, {{2}, {3}, {1}},      {{4, 4}, {4, 4}, {2, 2}}, {{3, 3}, {1, 1}, {0, 1}}};
  }

  // Values and places, of windows over `x` as a kernel makes it.
  static Tensors Pool(const torch::Tensor& x, const Window& window) {
    const auto [values, places] = torch::max_pool2d_with_indices(x * 1, window.kernel, window.stride, window.padding);
    return {values, places};
  }

  static Tensors Average(const torch::Tensor& x, const Window& window) { return {torch::avg_pool2d(x * 1, window.kernel, window.stride)}; }

  void ExpectEqual(const torch::Tensor& x, Tensors (*pool)(const torch::Tensor&, const Window&) = &Pool) const {
    for (const Window& window : Windows()) {
      const Tensors eager = pool(x, window);
      lazuli::reset();  // Each has a program of its own.
      const StatsDelta delta;
      Tensors lazy;
      {
        const DeviceMode mode(options());
        lazy = pool(x, window);
        lazuli::sync();
      }
      ExpectSame(eager, lazy, /*exact=*/true, "kernel " + std::to_string(window.kernel[0]));
      if (exact()) continue;
      EXPECT_GE(delta.of(&Stats::kernel_launches), 1);
      EXPECT_EQ(delta.of(&Stats::aten_calls), 0) << "kernel " << window.kernel[0];
    }
  }
};

TEST_P(PoolingTest, Maxima) {
  torch::manual_seed(3);
  const auto x = torch::randn({2, 3, 9, 10});
  ExpectEqual(x);
  ExpectEqual(x.contiguous(torch::MemoryFormat::ChannelsLast));
  ExpectEqual(x.to(torch::kDouble));
  ExpectEqual(x[0]);
  ExpectEqual(x.narrow(3, 1, 8).transpose(2, 3));
  ExpectEqual(torch::randn({1, 70, 33, 40}));
}

TEST_P(PoolingTest, Averages) {
  torch::manual_seed(5);
  const auto x = torch::randn({2, 3, 9, 10});
  ExpectEqual(x, &Average);
  ExpectEqual(x.contiguous(torch::MemoryFormat::ChannelsLast), &Average);
  ExpectEqual(x.to(torch::kDouble), &Average);
  ExpectEqual(x * -0.0, &Average);
}

// The first of equal ones, whatever the sign of a zero, and the last NaN.
TEST_P(PoolingTest, TiesAndSpecialNumbers) {
  torch::manual_seed(4);
  const auto few = torch::randint(0, 3, {2, 2, 9, 12}).to(torch::kFloat) - 1;
  ExpectEqual(few);
  ExpectEqual(torch::where(few > 0, torch::full({}, -0.0F), few * 0));
  ExpectEqual(torch::full({1, 2, 6, 6}, -std::numeric_limits<float>::infinity()));
  ExpectEqual(torch::where(torch::rand({2, 2, 9, 12}) < 0.2, torch::full({}, std::numeric_limits<float>::quiet_NaN()), few));
}

// Beyond the row: large windows, gaps in them, and sizes rounded up.
TEST_P(PoolingTest, OthersAreLeftToAten) {
  ExpectSameAsEager([] {
    const auto x = torch::linspace(-1, 1, 2 * 11 * 12).view({2, 11, 12}).sin();
    return Tensors{torch::max_pool2d(x, 5), torch::max_pool2d(x, 3, 2, 1, 2), torch::max_pool2d(x, 3, 2, 1, 1, true),
                   torch::avg_pool2d(x, 3, 2, 1), torch::avg_pool2d(x, 2, 2, 0, true)};
  });
}

// The places found by a kernel serve the gradient.
TEST_P(PoolingTest, Gradients) {
  ExpectSameAsEager([] {
    const auto x = torch::linspace(-3, 3, 2 * 3 * 8 * 9).view({2, 3, 8, 9}).sin().requires_grad_();
    torch::max_pool2d(x.relu(), 3, 2, 1).square().sum().backward();
    return Tensors{x.grad() * 1};
  });
}

LAZULI_FOR_EACH_BACKEND(PoolingTest);

}  // namespace
}  // namespace lazuli::testing
