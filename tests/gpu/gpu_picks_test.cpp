// Elements of rows that are picked by their number, by kernels of which most vectors hold none. Skipped without a GPU.
#include <torch/torch.h>

#include <string>
#include <vector>

#include "tests/support/gpu_modes.h"

namespace lazuli::testing {
namespace {

namespace F = torch::nn::functional;

class GpuPicksTest : public GpuModesTest {
 protected:
  static constexpr int64_t kRows = 64;

  // Where vectors begin and end, rows too, and anywhere.
  static torch::Tensor Numbers(int64_t columns) {
    auto numbers = torch::randint(columns, {kRows}, OnGpu(torch::kLong));
    for (int64_t i = 0; i < 18; ++i) numbers[i] = i;
    for (int64_t i = 18; i < 36; ++i) numbers[i] = columns - (i - 17);
    return numbers;
  }
};

TEST_F(GpuPicksTest, CrossEntropies) {
  for (const int64_t columns : {12001, 50257, 50304, 131072, 300007}) {
    auto target = Numbers(columns);
    target[40] = -100;
    const auto numbers = torch::randn({kRows, columns}, OnGpu(torch::kBFloat16)).to(torch::kDouble);
    const auto program = [&](torch::Dtype dtype) {
      const auto x = numbers.to(dtype).requires_grad_();
      const auto loss = F::cross_entropy(x.to(dtype == torch::kDouble ? torch::kDouble : torch::kFloat), target);
      return Tensors{loss.detach().to(dtype), torch::autograd::grad({loss}, {x})[0]};
    };
    for (const auto dtype : {torch::kBFloat16, torch::kHalf, torch::kFloat}) {
      lazuli::reset();
      const StatsDelta stats;
      ExpectAsGoodAsEager(program, dtype, Options().disk_cache(false), /*allowed=*/dtype == torch::kFloat ? 1e-6 : 1e-3);
      EXPECT_GE(stats.of(&Stats::cache_hits), 1) << dtype;
      EXPECT_EQ(stats.of(&Stats::compile_failures), 0) << dtype;
    }
  }
}

// Bit by bit: one term of each sum is not 0.
TEST_F(GpuPicksTest, SumsOfOneElement) {
  for (const int64_t columns : {16384, 50257, 131072}) {
    for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kInt}) {
      const auto x =
          dtype == torch::kInt ? torch::randint(-100, 100, {kRows, columns}, OnGpu(dtype)) : torch::randn({kRows, columns}, OnGpu(dtype));
      const auto at = Numbers(columns).unsqueeze(1), all = torch::arange(columns, OnGpu(torch::kLong));
      ExpectEqualByKernels([&] {
        const auto is_at = all == at;
        const auto doubled = x * 2;
        const auto picked = torch::where(is_at, doubled, 0).sum(-1, /*keepdim=*/true, dtype);
        return Tensors{picked, torch::where(is_at, doubled + picked, doubled), torch::where(all != at, doubled, picked)};
      });
    }
  }
}

}  // namespace
}  // namespace lazuli::testing
