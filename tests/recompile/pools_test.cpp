// Pools and their gradients are kernels, one program for all sizes.

#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

class PoolsTest : public ::testing::Test {
 protected:
  void SetUp() override { lazuli::reset(); }

  // Calls per run of `program`, which must do what it does eagerly.
  static int64_t Calls(const Program& program) {
    const Tensors eager = program();
    const DeviceMode mode(Options().backend("llvm").step_aside(false));
    Stats before, after;
    for (int i = 0; i < 4; ++i) {
      before = lazuli::stats();
      const Tensors lazy = program();
      lazuli::sync();
      after = lazuli::stats();
      ExpectSame(eager, lazy, /*exact=*/true, "pool");
    }
    EXPECT_EQ(after.programs_compiled, before.programs_compiled);
    EXPECT_GT(after.kernel_launches, before.kernel_launches);
    return after.aten_calls - before.aten_calls;
  }
};

torch::Tensor Image(bool channels_last, int64_t size = 11) {
  torch::manual_seed(5);
  const auto image = torch::randn({2, 8, size, size + 1});
  return channels_last ? image.contiguous(torch::MemoryFormat::ChannelsLast) : image;
}

TEST_F(PoolsTest, PaddedAverages) {
  const auto x = Image(false);
  EXPECT_EQ(Calls([&] { return Tensors{torch::avg_pool2d(x, 3, 2, 1, true, false), torch::avg_pool2d(x, 2, 2, 1, false, true, 3)}; }), 0);
}

TEST_F(PoolsTest, GradientsOfAverages) {
  const auto x = Image(false);
  const auto gradient = [&](const torch::Tensor& y, int64_t kernel, int64_t stride, int64_t padding, bool ceil_mode) {
    return at::avg_pool2d_backward(y, x, kernel, stride, padding, ceil_mode, /*count_include_pad=*/false, std::nullopt);
  };
  EXPECT_EQ(Calls([&] {
              const auto y = torch::avg_pool2d(x, 3, 2, 1, true, false), z = torch::avg_pool2d(x, 2);
              return Tensors{gradient(y * 2, 3, 2, 1, true), gradient(z, 2, 2, 0, false) + x};
            }),
            0);
}

TEST_F(PoolsTest, GradientsOfMaximaAreKernelsWhereThatIsFaster) {
  const auto backward = [](const torch::Tensor& x, int64_t kernel, bool relu) {
    return [=] {
      const auto [y, indices] = torch::max_pool2d_with_indices(x, kernel, 2);
      const auto gradient = at::max_pool2d_with_indices_backward(y, x, kernel, 2, 0, 1, false, indices);
      return Tensors{relu ? at::threshold_backward(gradient, x, 0) : gradient};
    };
  };
  EXPECT_EQ(Calls(backward(Image(true), 2, false)), 0);
  EXPECT_EQ(Calls(backward(Image(true), 3, false)), 0);
  EXPECT_EQ(Calls(backward(Image(false), 2, true)), 0);
  EXPECT_EQ(Calls(backward(Image(false), 2, false)), 1);
  EXPECT_EQ(Calls(backward(Image(false), 3, true)), 1);
}

// The operator adds to wherever indices say, in a window or not.
TEST_F(PoolsTest, GradientsAtOtherIndicesAreLeftToATen) {
  const auto x = Image(true);
  const auto indices = torch::randint(0, 11 * 12, {2, 8, 5, 6}, torch::kLong).contiguous(torch::MemoryFormat::ChannelsLast);
  const auto y = torch::randn({2, 8, 5, 6}).contiguous(torch::MemoryFormat::ChannelsLast);
  const auto gradient = [&](const torch::Tensor& indices) {
    return at::max_pool2d_with_indices_backward(y * 2, x, 2, 2, 0, 1, false, indices);
  };
  EXPECT_EQ(Calls([&] { return Tensors{gradient(indices)}; }), 1);
  EXPECT_EQ(Calls([&] { return Tensors{gradient(std::get<1>(torch::max_pool2d_with_indices(x, 4, 2, 1)))}; }), 1);
  EXPECT_EQ(Calls([&] { return Tensors{gradient(std::get<1>(torch::max_pool2d_with_indices(x, 2, 2)).flip({0}))}; }), 1);
}

TEST_F(PoolsTest, OneProgramForAllSizes) {
  const auto program = [](int64_t size) {
    const auto x = Image(false, size);
    const auto y = torch::avg_pool2d(x, 3, 2, 1, false, false);
    return Tensors{y, at::avg_pool2d_backward(y * 2, x, 3, 2, 1, false, false, std::nullopt)};
  };
  std::vector<Tensors> eager;
  const std::vector<int64_t> sizes = {8, 11, 20, 33, 5};
  for (const int64_t size : sizes) eager.push_back(program(size));
  const DeviceMode mode(Options().backend("llvm").step_aside(false));
  int64_t programs = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Tensors lazy = program(sizes[i]);
    lazuli::sync();
    ExpectSame(eager[i], lazy, /*exact=*/true, "pool");
    if (i == 2) programs = lazuli::stats().programs_compiled;
  }
  EXPECT_EQ(lazuli::stats().programs_compiled, programs);
  EXPECT_GE(lazuli::stats().dynamic_programs, 1);
}

}  // namespace
}  // namespace lazuli::testing
