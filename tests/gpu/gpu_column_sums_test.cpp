// Gradients of biases and of norms' weights: sums of columns by the kernels that go through the rows. Skipped without a GPU.
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/gpu_modes.h"

namespace lazuli::testing {
namespace {

class GpuColumnSumsTest : public GpuModesTest {
 protected:
  struct Layer {
    torch::Tensor x, branch, bias, weight, shift, gradient;
  };

  // Numbers of `dtype`, so that programs in other dtypes compute the same.
  static Layer MakeLayer(int64_t rows, int64_t columns, torch::Dtype dtype) {
    const auto make = [&](const std::vector<int64_t>& sizes) { return torch::randn(sizes, OnGpu(dtype)).to(torch::kDouble); };
    return {make({rows, columns}), make({rows, columns}), make({columns}), make({columns}), make({columns}), make({rows, columns})};
  }

  // A residual sum in float of what a layer with a bias makes in `dtype`, and its norm; gradients of both, of weights, and of the bias.
  static Tensors Program(const Layer& layer, torch::Dtype dtype, torch::Dtype wide) {
    const auto leaf = [](const torch::Tensor& t, torch::Dtype type) { return t.to(type).requires_grad_(); };
    const auto x = leaf(layer.x, wide), branch = leaf(layer.branch, dtype), bias = leaf(layer.bias, dtype);
    const auto weight = leaf(layer.weight, wide), shift = leaf(layer.shift, wide);
    const auto residual = x + (branch + bias).to(wide);
    const auto y = torch::layer_norm(residual, {residual.size(1)}, weight, shift).to(dtype);
    const auto loss = (y * layer.gradient.to(dtype)).to(wide).sum() + (residual * layer.gradient.to(wide)).sum();
    return torch::autograd::grad({loss}, {x, branch, bias, weight, shift});
  }

  // How far each result is off from the values in double, at most and in the mean, added up over layers.
  struct Errors {
    std::vector<double> most, mean;

    void Add(const Tensors& results, const Tensors& exact) {
      most.resize(exact.size());
      mean.resize(exact.size());
      for (size_t i = 0; i < exact.size(); ++i) {
        const auto off = (results[i].to(torch::kDouble) - exact[i]).abs();
        most[i] += off.max().item<double>();
        mean[i] += off.mean().item<double>();
      }
    }
  };

  // No further off than eager is, but for chance: which sums are furthest off depends on the order. So few columns need several layers.
  static void ExpectAsGoodAsEager(const std::vector<Layer>& layers, torch::Dtype dtype, const std::string& mode) {
    const torch::Dtype wide = dtype == torch::kDouble ? torch::kDouble : torch::kFloat;
    for (int run = 0; run < 3; ++run) {
      Errors of_eager, of_lazy;
      double floor = 0;
      for (const Layer& layer : layers) {
        const Tensors exact = Program(layer, torch::kDouble, torch::kDouble), eager = Program(layer, dtype, wide);
        Tensors lazy;
        {
          const DeviceMode device_mode(Options().mode(mode).disk_cache(false));
          lazy = Program(layer, dtype, wide);
          lazuli::sync();
        }
        for (size_t i = 0; i < exact.size(); ++i) {
          ASSERT_EQ(lazy[i].scalar_type(), eager[i].scalar_type());
          floor = std::max(floor, 1e-12 * exact[i].abs().max().item<double>());
        }
        of_eager.Add(eager, exact);
        of_lazy.Add(lazy, exact);
      }
      for (size_t i = 0; i < of_eager.most.size(); ++i) {
        EXPECT_LE(of_lazy.most[i], 4 * of_eager.most[i] + floor) << dtype << " " << i;
        EXPECT_LE(of_lazy.mean[i], 2 * of_eager.mean[i] + floor) << dtype << " " << i;
      }
    }
  }
};

TEST_F(GpuColumnSumsTest, WidthsAndTypes) {
  for (const auto dtype : {torch::kBFloat16, torch::kHalf, torch::kFloat, torch::kDouble}) {
    // Several rows to a warp, rows of one warp and of several, widths without whole vectors or whole turns, more than threads keep.
    for (const int64_t columns : {32, 100, 128, 129, 768, 1000, 1026, 2048, 4096, 5000}) {
      const int64_t rows = std::max<int64_t>(2100, (int64_t{1} << 20) / columns + 3);
      std::vector<Layer> layers;
      for (int64_t seen = 0; seen < 256; seen += columns) layers.push_back(MakeLayer(rows, columns, dtype));
      ExpectAsGoodAsEager(layers, dtype, "default");
      lazuli::reset();
    }
  }
}

TEST_F(GpuColumnSumsTest, Modes) {
  const Layer layer = MakeLayer(8192, 768, torch::kBFloat16);
  for (const std::string mode : {"default", "reduce-overhead", "max-autotune"}) {
    ExpectAsGoodAsEager({layer}, torch::kBFloat16, mode);
    const StatsDelta stats;
    ExpectAsGoodAsEager({layer}, torch::kBFloat16, mode);
    EXPECT_GT(stats.of(&Stats::kernel_launches), 0) << mode;
    EXPECT_EQ(stats.of(&Stats::cudagraph_launches) > 0, mode != "default") << mode;
    EXPECT_EQ(stats.of(&Stats::compile_failures), 0) << mode;
    EXPECT_EQ(stats.of(&Stats::kernels_compiled), 0) << mode;
    lazuli::reset();
  }
}

// One program for most of them.
TEST_F(GpuColumnSumsTest, NumbersOfRowsThatChange) {
  for (const int64_t rows : {8192, 8000, 4099, 12288, 2500, 9001}) {
    ExpectAsGoodAsEager({MakeLayer(rows, 768, torch::kBFloat16)}, torch::kBFloat16, "default");
  }
}

// The gradient of a bias that a query, a key and a value have together: of parts that are put together in rows, one behind the other, or of
// different widths.
TEST_F(GpuColumnSumsTest, PartsOfWhatIsPutTogether) {
  const int64_t batch = 8, steps = 256, width = 512, heads = 8;
  const auto make = [&](const std::vector<int64_t>& sizes) { return torch::randn(sizes, OnGpu(torch::kBFloat16)).to(torch::kDouble); };
  const auto x = make({batch, steps, width}), weight = 0.05 * make({3 * width, width}), bias = make({3 * width});
  const auto gradient = make({batch, heads, steps, width / heads});
  const auto in_heads = [&](const torch::Tensor& t) { return t.view({batch, steps, heads, -1}).transpose(1, 2); };
  const auto stacked = [&](const torch::Tensor& all) {
    return all.view({batch, steps, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
  };
  const auto in_thirds = [&](const torch::Tensor& all) {
    Tensors parts;
    for (const auto& part : all.chunk(3, -1)) parts.push_back(in_heads(part));
    return parts;
  };
  // One of the three is made by pointwise operators.
  const auto of_different_widths = [&](const torch::Tensor& all) {
    const auto parts = all.split({width, width / 2, width + width / 2}, -1);
    const auto half = torch::cat({parts[1], torch::tanh(parts[2].slice(-1, 0, width / 2))}, -1);
    return Tensors{in_heads(parts[0]), in_heads(half), in_heads(parts[2].slice(-1, width / 2, width + width / 2))};
  };
  for (const std::function<Tensors(const torch::Tensor&)>& split :
       {std::function<Tensors(const torch::Tensor&)>(stacked), std::function<Tensors(const torch::Tensor&)>(in_thirds),
        std::function<Tensors(const torch::Tensor&)>(of_different_widths)}) {
    const auto program = [&](torch::Dtype dtype) {
      const auto w = weight.to(dtype).requires_grad_(), b = bias.to(dtype).requires_grad_();
      const Tensors parts = split(torch::linear(x.to(dtype), w, b));
      const auto y = torch::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
      return torch::autograd::grad({y}, {w, b}, {gradient.to(dtype)});
    };
    for (const auto dtype : {torch::kBFloat16, torch::kHalf, torch::kFloat}) {
      lazuli::reset();
      const StatsDelta stats;
      lazuli::testing::ExpectAsGoodAsEager(program, dtype, Options().disk_cache(false), /*allowed=*/1e-3);
      EXPECT_GE(stats.of(&Stats::cache_hits), 1) << dtype;
      EXPECT_EQ(stats.of(&Stats::compile_failures), 0) << dtype;
    }
  }
}

}  // namespace
}  // namespace lazuli::testing
