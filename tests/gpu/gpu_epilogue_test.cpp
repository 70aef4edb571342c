// Activations of layers as epilogues of cuBLASLt's products: values are eager's, and no kernel is launched for them. Skipped without a GPU.
#include <torch/torch.h>

#include "tests/support/gpu_modes.h"

namespace lazuli::testing {
namespace {

class GpuEpilogueTest : public GpuModesTest {
 protected:
  struct Layer {
    torch::Tensor x, weight, bias;
  };

  static Layer MakeLayer(torch::Dtype dtype, int64_t rows, int64_t depth, int64_t cols) {
    return {torch::randn({rows, depth}, OnGpu(dtype)), torch::randn({cols, depth}, OnGpu(dtype)) * 0.1, torch::randn({cols}, OnGpu(dtype))};
  }

  static torch::Tensor Gelu(const torch::Tensor& x) { return torch::gelu(x, "tanh"); }
};

TEST_F(GpuEpilogueTest, ReluIsPartOfTheProduct) {
  int64_t rows = 40;
  for (const std::string mode : {"default", "reduce-overhead", "max-autotune"}) {
    for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
      for (const bool has_bias : {true, false}) {
        const Layer layer = MakeLayer(dtype, rows += 8, 72, 136);
        const auto input = layer.x * 0.25, next = torch::randn({136, 72}, OnGpu(dtype)) * 0.1;
        // Four products, so that there is a graph where the mode has some.
        const Program program = [&] {
          torch::Tensor x = input;
          for (int i = 0; i < 2; ++i) {
            const auto hidden = torch::relu(torch::linear(x, layer.weight, has_bias ? layer.bias : torch::Tensor()));
            x = torch::mm(hidden, next);
          }
          return Tensors{x};
        };
        ExpectSameAsEager(program, mode);  // Whose first trace may end where an operator is new.
        const StatsDelta stats;
        ExpectSameAsEager(program, mode);
        EXPECT_GE(stats.of(&Stats::cublaslt_products) + stats.of(&Stats::cudagraph_launches), 1) << mode << " " << dtype << " " << has_bias;
        EXPECT_EQ(stats.of(&Stats::cudagraph_launches) > 0, mode != "default") << mode;
        EXPECT_EQ(stats.of(&Stats::kernel_launches), 0) << mode << " " << dtype << " " << has_bias;
        EXPECT_EQ(stats.of(&Stats::cudagraph_failures), 0);
        lazuli::reset();
      }
    }
  }
}

TEST_F(GpuEpilogueTest, WhatIsNoNumberStaysSo) {
  for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
    Layer layer = MakeLayer(dtype, 64, 64, 128);
    layer.x[3][5] = std::numeric_limits<double>::quiet_NaN();
    layer.x[7][9] = std::numeric_limits<double>::infinity();
    layer.x[9][9] = -std::numeric_limits<double>::infinity();
    const auto one = torch::eye(128, OnGpu(dtype)).narrow(1, 0, 8).contiguous();
    ExpectSameAsEager([&] { return Tensors{torch::mm(torch::relu(torch::linear(layer.x, layer.weight, layer.bias)), one)}; }, "default");
  }
}

TEST_F(GpuEpilogueTest, GeluInFastPrecision) {
  for (const std::string mode : {"default", "max-autotune-no-cudagraphs"}) {
    for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
      const Layer layer = MakeLayer(dtype, 96, 72, 136);
      const auto program = [&](torch::Dtype type) {
        const auto hidden = Gelu(torch::linear(layer.x.to(type), layer.weight.to(type), layer.bias.to(type)));
        return Tensors{torch::mm(hidden, layer.weight.to(type))};
      };
      const Options options = Options().mode(mode).precision("fast").disk_cache(false);
      ExpectAsGoodAsEager(program, dtype, options);
      const StatsDelta stats;
      ExpectAsGoodAsEager(program, dtype, options);
      EXPECT_GE(stats.of(&Stats::cublaslt_products), 3) << mode << " " << dtype;
      EXPECT_EQ(stats.of(&Stats::kernel_launches), 0);
      lazuli::reset();
    }
  }
}

// Two layers with their gradients: those of relu want its result, those of gelu what it took, so that the product stores both.
TEST_F(GpuEpilogueTest, LayersAndTheirGradients) {
  for (const auto dtype : {torch::kBFloat16, torch::kHalf, torch::kFloat}) {
    for (const bool gelu : {false, true}) {
      const Layer first = MakeLayer(dtype, 96, 256, 512), second = MakeLayer(dtype, 96, 512, 256);
      const auto target = torch::randn({8, 12, 256}, OnGpu(dtype));
      const auto program = [&](torch::Dtype type) {
        const auto leaf = [&](const torch::Tensor& x) { return x.detach().to(type).requires_grad_(); };
        const torch::Tensor x = leaf(first.x), w1 = leaf(first.weight), b1 = leaf(first.bias), w2 = leaf(second.weight);
        const auto product = torch::linear(x.view({8, 12, 256}), w1, b1);
        const auto y = torch::linear(gelu ? Gelu(product) : torch::relu(product), w2);
        Tensors results = torch::autograd::grad({(y * target.to(type)).sum()}, {x, w1, b1, w2});
        results.push_back(y.detach());
        return results;
      };
      for (const bool fast : {false, true}) {
        const Options options = Options().precision(fast ? "fast" : "eager").disk_cache(false);
        ExpectAsGoodAsEager(program, dtype, options);
        const StatsDelta stats;
        ExpectAsGoodAsEager(program, dtype, options);
        EXPECT_GE(stats.of(&Stats::cublaslt_products), 1) << fast << " " << dtype;
        lazuli::reset();
      }
    }
  }
}

// Rows whose number changes: one program serves most.
TEST_F(GpuEpilogueTest, NumbersOfRowsThatChange) {
  const Layer layer = MakeLayer(torch::kBFloat16, 512, 64, 128);
  const StatsDelta stats;
  for (const int64_t rows : {100, 101, 102, 103, 104, 512, 7, 1}) {
    const auto x = layer.x.narrow(0, 0, rows);
    ExpectSameAsEager([&] { return Tensors{torch::mm(torch::relu(torch::linear(x, layer.weight, layer.bias)), layer.weight)}; }, "default");
  }
  EXPECT_LE(stats.of(&Stats::programs_compiled), 4);
  EXPECT_EQ(stats.of(&Stats::kernel_launches), 0);
}

TEST_F(GpuEpilogueTest, StrictAndDeterministicProgramsHaveNone) {
  const Layer layer = MakeLayer(torch::kBFloat16, 64, 64, 128);
  const Program program = [&] { return Tensors{torch::relu(torch::linear(layer.x, layer.weight, layer.bias))}; };
  const StatsDelta stats;
  const Tensors eager = program();
  {
    const DeviceMode device_mode(Options().precision("strict").disk_cache(false));
    const Tensors lazy = program();
    lazuli::sync();
    ExpectSame(eager[0].cpu(), lazy[0].cpu(), /*exact=*/true, "strict");
  }
  at::globalContext().setDeterministicAlgorithms(true, false);
  ExpectSameAsEager(program, "default", /*exact=*/true);
  at::globalContext().setDeterministicAlgorithms(false, false);
  EXPECT_EQ(stats.of(&Stats::cublaslt_products), 0);
}

}  // namespace
}  // namespace lazuli::testing
