// Sizes that kernels and libraries on a GPU do not like: products of odd widths, rows of three and six warps, pools' borders, many steps.
// Skipped without a GPU.
#include <ATen/Context.h>
#include <torch/torch.h>

#include "tests/support/gpu_modes.h"

namespace lazuli::testing {
namespace {

namespace F = torch::nn::functional;

class GpuShapesTest : public OnGpuTest {
 protected:
  // Runs `program` eagerly and once in a mode.
  static void ExpectSameInMode(bool async, const Program& program, const std::string& what) {
    const Tensors eager = program();
    Tensors lazy;
    {
      const DeviceMode mode(Options().disk_cache(false).async(async));
      lazy = program();
    }
    ASSERT_EQ(eager.size(), lazy.size());
    for (size_t i = 0; i < eager.size(); ++i) {
      ExpectSame(eager[i].cpu(), lazy[i].cpu(), false, what + ", result " + std::to_string(i));
    }
  }
};

// The loss of logits of so many classes, and its gradients, of which products make two.
Tensors Classify(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& target, torch::Dtype dtype) {
  const auto leaf = [&](const torch::Tensor& t) { return t.to(dtype).detach().requires_grad_(); };
  const auto input = leaf(x), classes = leaf(weight);
  const auto logits = F::linear(input, classes);
  const auto loss = F::cross_entropy(logits.slice(0, 1).to(dtype == torch::kDouble ? torch::kDouble : torch::kFloat), target);
  Tensors results = torch::autograd::grad({loss}, {input, classes});
  results.push_back(loss.detach().to(dtype));
  return results;
}

TEST_F(GpuShapesTest, ProductsOfOddWidths) {
  const bool before = at::globalContext().allowTF32CuBLAS();
  at::globalContext().setAllowTF32CuBLAS(true);
  for (const auto dtype : {torch::kBFloat16, torch::kHalf, torch::kFloat}) {
    const auto x = torch::randn({2049, 777}, OnGpu(dtype)) / 8, weight = torch::randn({1001, 777}, OnGpu(dtype)) / 4;
    const auto target = torch::randint(0, 1001, {2048}, OnGpu(torch::kLong));
    const StatsDelta stats;
    ExpectAsGoodAsEager([&](torch::Dtype type) { return Classify(x, weight, target, type); }, dtype, Options().disk_cache(false), 1e-6);
    EXPECT_EQ(stats.of(&Stats::compile_failures), 0);
    EXPECT_GE(stats.of(&Stats::cache_hits), 1);
  }
  at::globalContext().setAllowTF32CuBLAS(before);
}

// One program for all lengths of rows, whose kernel is planned again for those far from the first; hot ones have programs of their own.
TEST_F(GpuShapesTest, LengthsOfRowsThatChangeByFar) {
  int64_t replanned = 0;
  for (const bool async : {false, true}) {
    lazuli::reset();
    const auto step = [](int64_t length) {
      const auto x = torch::arange(65536 / length * length, OnGpu()).cos().view({-1, length});
      return Tensors{torch::softmax(x * 3, 1) + x, x.std(0), torch::layer_norm(x, {length}).amax({1})};
    };
    const StatsDelta stats;
    for (int round = 0; round < 3; ++round) {
      for (const int64_t length : {64, 4000, 64, 17, 32768, 5, 128, 1000, 2}) {
        ExpectSameInMode(
            async, [&] { return step(length); }, std::to_string(length));
      }
      lazuli::wait_for_compiles();
    }
    EXPECT_LE(stats.of(&Stats::programs_compiled), 3);
    EXPECT_EQ(stats.of(&Stats::dynamic_programs), 1);
    EXPECT_EQ(stats.of(&Stats::compile_failures), 0);
    replanned += stats.of(&Stats::kernels_replanned);
  }
  EXPECT_GE(replanned, 2);  // The process keeps them.
}

TEST_F(GpuShapesTest, FourierTransformsOfLengthsThatChange) {
  const auto step = [](int64_t length) {
    const auto x = torch::arange(3 * length, OnGpu()).sin().view({3, length});
    const auto spectrum = torch::fft_rfft(x * 2);
    return Tensors{spectrum.abs(), torch::fft_irfft(spectrum * 0.5, length), torch::view_as_real(torch::fft_fft(spectrum * spectrum))};
  };
  std::optional<StatsDelta> late;
  for (const int64_t length : {400, 401, 402, 500, 64, 77, 1000, 30}) {
    if (length == 402) late.emplace();
    ExpectSameInMode(/*async=*/false, [&] { return step(length); }, std::to_string(length));
  }
  EXPECT_EQ(late->of(&Stats::observations), 0);
  EXPECT_EQ(late->of(&Stats::compile_failures), 0);
}

TEST_F(GpuShapesTest, RowsOfAnyNumberOfWarps) {
  for (const auto dtype : {torch::kFloat, torch::kBFloat16}) {
    for (const int64_t columns : {384, 768, 1152, 1536, 2304, 3072, 4608, 6144}) {
      const auto x = torch::randn({700, columns}, OnGpu(dtype));
      const StatsDelta stats;
      ExpectAsGoodAsEager(
          [&](torch::Dtype type) { return Tensors{torch::softmax(F::gelu(torch::layer_norm(x.to(type) + 1, {columns})), -1)}; }, dtype,
          Options().disk_cache(false), 1e-6);
      EXPECT_GE(stats.of(&Stats::kernel_launches), 2) << columns;
    }
  }
}

TEST_F(GpuShapesTest, PoolsAndTheirGradients) {
  for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
    for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
      for (const auto& [kernel, stride, padding] : {std::tuple(3, 2, 1), std::tuple(2, 2, 0), std::tuple(3, 1, 1), std::tuple(2, 3, 1)}) {
        const auto options = F::MaxPool2dFuncOptions(kernel).stride(stride).padding(padding);
        // Whole numbers, of which many are equal, and of whose gradients sums are exact.
        const auto x = torch::randint(-4, 5, {3, 16, 19, 26}, OnGpu(dtype)).contiguous(format);
        SCOPED_TRACE(c10::str(dtype, " ", format, " ", kernel, " ", stride, " ", padding));
        ExpectEqualByKernels([&] {
          const auto leaf = x.clone().requires_grad_();
          const auto y = F::max_pool2d(leaf * 2, options);
          return Tensors{y.detach(), torch::autograd::grad({(y * y.detach().sign()).sum()}, {leaf})[0]};
        });
      }
    }
  }
}

TEST_F(GpuShapesTest, StepsOfASequence) {
  const auto x = torch::randn({32, 50, 96}, OnGpu()), decay = torch::rand({96}, OnGpu());
  ExpectEqualByKernels([&] {
    const auto sequence = x.clone().requires_grad_();
    const auto inputs = sequence * 2;
    auto state = torch::zeros({32, 96}, OnGpu());
    Tensors states;
    for (int64_t t = 0; t < 50; ++t) {
      state = state * decay + inputs.select(1, t);
      states.push_back(state * inputs.select(1, t));
    }
    const auto all = torch::stack(states, 1);
    return Tensors{all.detach(), torch::autograd::grad({all}, {sequence}, {torch::ones_like(all)})[0]};
  });
}

// Every operator's result is rounded, as eager does.
TEST_F(GpuShapesTest, ChainsOfHalvesAreRoundedAtEachStep) {
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    const auto x = torch::randn({100001}, OnGpu(dtype)), y = torch::randn({100001}, OnGpu(dtype)) * 1000;
    const auto odd =
        torch::tensor(std::vector<double>{INFINITY, -INFINITY, NAN, 65504, 3.4e38, -0.0, 1e-40, 6e-8}, OnGpu(torch::kDouble)).to(dtype);
    ExpectEqualByKernels([&] {
      return Tensors{(x * 0.3 + y) * y - x, (x / y + 1).relu() * x, torch::nan_to_num((odd * 1.5 + 0.1) * odd, 7)};
    });
  }
}

}  // namespace
}  // namespace lazuli::testing
