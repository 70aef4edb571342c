// Networks of convolutions whose images lie as LibTorch makes them, which go on channels last (codegen/passes/convolution_layout.h).
#include <torch/torch.h>

#include <vector>

#include "tests/support/gpu_modes.h"

namespace lazuli::testing {
namespace {

namespace F = torch::nn::functional;

class GpuConvolutionLayoutTest : public OnGpuTest {
 protected:
  using Forward = std::function<torch::Tensor(const torch::Tensor& image, const Tensors& weights)>;

  // A result and all gradients are as good as eager's, in every dtype; nothing falls back.
  static void ExpectTrains(torch::IntArrayRef image_sizes, const std::vector<std::vector<int64_t>>& weight_sizes, const Forward& forward) {
    torch::manual_seed(3);
    const auto image = torch::randn(image_sizes, OnGpu());
    Tensors weights;
    for (const auto& sizes : weight_sizes) weights.push_back(torch::randn(sizes, OnGpu()) * 0.1);
    for (const auto dtype : {torch::kBFloat16, torch::kHalf, torch::kFloat}) {
      const auto program = [&](torch::Dtype type) {
        const auto leaf = [&](const torch::Tensor& x) { return x.to(dtype).to(type).requires_grad_(); };
        Tensors leaves{leaf(image)};
        for (const auto& weight : weights) leaves.push_back(leaf(weight));
        const auto y = forward(leaves[0] * 1.5, Tensors(leaves.begin() + 1, leaves.end()));
        Tensors results = torch::autograd::grad({(y * y).mean()}, leaves);
        results.push_back(y.detach());
        return results;
      };
      const StatsDelta stats;
      // Of which convolutions cuDNN multiplies floats as TF32, of 10 bits after the point, depends on their layout.
      ExpectAsGoodAsEager(program, dtype, Options().disk_cache(false), dtype == torch::kFloat ? 0x1p-10 : 0);
      EXPECT_GE(stats.of(&Stats::kernel_launches), 1) << dtype;
      EXPECT_EQ(stats.of(&Stats::compile_failures), 0) << dtype;
      lazuli::reset();
    }
  }

  static torch::Tensor Convolve(const torch::Tensor& x, const torch::Tensor& weight, int64_t stride = 1, int64_t groups = 1) {
    return F::conv2d(x, weight, F::Conv2dFuncOptions().stride(stride).padding(weight.size(2) / 2).groups(groups));
  }
};

TEST_F(GpuConvolutionLayoutTest, ResidualBlocks) {
  ExpectTrains({8, 64, 14, 14}, {{64, 64, 3, 3}, {64, 64, 3, 3}, {128, 64, 1, 1}}, [](const torch::Tensor& x, const Tensors& w) {
    const auto norm = [](const torch::Tensor& h) { return torch::batch_norm(h, {}, {}, {}, {}, true, 0.1, 1e-5, true); };
    const auto h = torch::relu(x + norm(Convolve(torch::relu(norm(Convolve(x, w[0]))), w[1])));
    return torch::max_pool2d(Convolve(h, w[2], 2), 2).mean({2, 3});
  });
}

TEST_F(GpuConvolutionLayoutTest, DepthwiseAndChannelsAsRows) {
  ExpectTrains({4, 96, 14, 14}, {{96, 1, 7, 7}, {192, 96}, {96, 192}}, [](const torch::Tensor& x, const Tensors& w) {
    const auto h = torch::layer_norm(Convolve(x, w[0], 1, 96).permute({0, 2, 3, 1}), {96});
    return x + torch::linear(torch::gelu(torch::linear(h, w[1])), w[2]).permute({0, 3, 1, 2});
  });
}

TEST_F(GpuConvolutionLayoutTest, SeparableAndGroups) {
  ExpectTrains({4, 32, 14, 14}, {{32, 1, 3, 3}, {64, 32, 1, 1}, {64, 1, 5, 5}, {64, 8, 3, 3}},
               [](const torch::Tensor& x, const Tensors& w) {
                 const auto h = torch::relu(Convolve(torch::relu(Convolve(x, w[0], 1, 32)), w[1]));
                 return torch::relu(Convolve(torch::relu(Convolve(h, w[2], 2, 64)), w[3], 1, 8)).mean({2, 3});
               });
}

// What another operator reads, flattened and sliced images, an image of one pixel, and normalisation over groups.
TEST_F(GpuConvolutionLayoutTest, ReadInOtherWays) {
  ExpectTrains({4, 64, 8, 8}, {{64, 64, 3, 3}, {64, 64, 3, 3}, {64, 64, 1, 1}}, [](const torch::Tensor& x, const Tensors& w) {
    const auto h = torch::silu(Convolve(x, w[0]));
    const auto up =
        F::interpolate(h, F::InterpolateFuncOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kBilinear).align_corners(false));
    const auto g = torch::group_norm(Convolve(torch::relu(h), w[1]), 8);
    const auto pixel = Convolve(g.mean({2, 3}, true), w[2]);
    return torch::cat({h.flatten(1), up.mean({2, 3}), (h * 2).slice(1, 3, 9).flatten(1), g.transpose(1, 2).flatten(1), pixel.flatten(1)},
                      1);
  });
}

TEST_F(GpuConvolutionLayoutTest, TransposedAndInPlace) {
  ExpectTrains({4, 64, 8, 8}, {{64, 64, 3, 3}, {64, 32, 4, 4}}, [](const torch::Tensor& x, const Tensors& w) {
    auto h = Convolve(x, w[0]).relu_();
    h = h + 1;
    h.mul_(0.5);
    return F::conv_transpose2d(h, w[1], F::ConvTranspose2dFuncOptions().stride(2).padding(1)).sigmoid();
  });
}

// Sizes that change make symbols.
TEST_F(GpuConvolutionLayoutTest, ChangingSizes) {
  const auto weight = torch::randn({64, 64, 3, 3}, OnGpu(torch::kBFloat16)) * 0.1;
  const auto program = [&](const torch::Tensor& x) { return torch::relu(Convolve(torch::relu(Convolve(x * 2, weight)) + 1, weight)); };
  const StatsDelta stats;
  for (const int64_t size : {9, 10, 12, 15, 17}) {
    const auto x = torch::randn({3, 64, size, size + 1}, OnGpu(torch::kBFloat16));
    const auto eager = program(x);
    torch::Tensor lazy;
    {
      const DeviceMode mode(Options().disk_cache(false));
      lazy = program(x);
      lazuli::sync();
    }
    EXPECT_EQ(lazy.strides(), eager.strides());
    EXPECT_TRUE(torch::allclose(lazy.cpu().to(torch::kFloat), eager.cpu().to(torch::kFloat), 3e-2, 3e-2)) << size;
  }
  EXPECT_LE(stats.of(&Stats::programs_compiled), 3);
}

}  // namespace
}  // namespace lazuli::testing
