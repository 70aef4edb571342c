// Functions that kernels compute by the hardware's own, where halves or sums are made of them. Skipped without a GPU.
#include <torch/torch.h>

#include <functional>
#include <limits>

#include "tests/support/gpu_modes.h"

namespace lazuli::testing {
namespace {

namespace F = torch::nn::functional;

class GpuRoughFunctionsTest : public OnGpuTest {
 protected:
  using Function = std::function<torch::Tensor(const torch::Tensor&)>;

  static torch::Tensor ByKernels(const Function& f, const torch::Tensor& x) {
    return OnGpuTest::ByKernels([&] { return Tensors{f(x)}; })[0];
  }

  // All numbers of a half type.
  static torch::Tensor AllOf(torch::Dtype dtype) { return torch::arange(-32768, 32768, OnGpu(torch::kInt)).to(torch::kShort).view(dtype); }

  // Bits of halves as integers in the order of the numbers.
  static torch::Tensor InOrder(const torch::Tensor& halves) {
    const auto bits = halves.view(torch::kShort).to(torch::kInt);
    return torch::where(bits < 0, -32768 - bits, bits);
  }
};

TEST_F(GpuRoughFunctionsTest, AllHalvesAreWithinOneUlp) {
  const std::vector<std::pair<const char*, Function>> functions = {
      {"exp", [](const torch::Tensor& x) { return torch::exp(x); }},
      {"tanh", [](const torch::Tensor& x) { return torch::tanh(x); }},
      {"sigmoid", [](const torch::Tensor& x) { return torch::sigmoid(x); }},
      {"silu", [](const torch::Tensor& x) { return torch::silu(x); }},
      {"gelu", [](const torch::Tensor& x) { return F::gelu(x, F::GELUFuncOptions().approximate("tanh")); }},
  };
  for (const torch::Dtype dtype : {torch::kBFloat16, torch::kHalf}) {
    const auto x = AllOf(dtype);
    for (const auto& [name, f] : functions) {
      SCOPED_TRACE(std::string(name) + " of " + c10::toString(dtype));
      const auto eager = f(x), lazy = ByKernels(f, x);
      const bool is_gelu = std::string(name) == "gelu";
      EXPECT_TRUE(torch::equal(torch::isnan(eager), torch::isnan(lazy)));
      const auto off = (InOrder(eager) - InOrder(lazy)).abs();
      // Results too small for a normal Float may be 0. What a tanh next to -1 leaves of 1 in gelu has few bits, in eager mode, too.
      const auto apart = (eager.to(torch::kFloat) - lazy.to(torch::kFloat)).abs();
      const auto nothing = is_gelu ? x.to(torch::kFloat).abs() * 3e-7 + 1.2e-38 : torch::full_like(apart, 1.2e-38);
      EXPECT_TRUE(torch::logical_or(off <= 1, torch::logical_or(apart <= nothing, torch::isnan(eager))).all().item<bool>());
      EXPECT_LE((off != 0).to(torch::kFloat).mean().item<float>(), 0.01F);
    }
  }
}

// Next to what doubles say, as far off as eager mode, or little more.
TEST_F(GpuRoughFunctionsTest, SumsOfExponentialsAreAsGoodAsEagerOnes) {
  const auto target = torch::arange(512, OnGpu(torch::kLong)) % 1000;
  const std::vector<std::pair<const char*, Function>> functions = {
      {"log_softmax", [](const torch::Tensor& x) { return torch::log_softmax(x, -1); }},
      {"logsumexp", [](const torch::Tensor& x) { return torch::logsumexp(x, -1); }},
      {"cross_entropy",
       [&target](const torch::Tensor& x) { return F::cross_entropy(x, target, F::CrossEntropyFuncOptions().reduction(torch::kNone)); }},
      {"softmax", [](const torch::Tensor& x) { return torch::softmax(x, -1); }},
  };
  for (const double scale : {0.1, 1.0, 20.0, 100.0}) {
    for (const int64_t columns : {1000, 70000, 131072}) {
      torch::manual_seed(3);
      const auto x = torch::randn({512, columns}, OnGpu()) * scale;
      for (const auto& [name, f] : functions) {
        SCOPED_TRACE(std::string(name) + " of " + std::to_string(columns) + " at scale " + std::to_string(scale));
        const auto exact = f(x.to(torch::kDouble));
        const auto off = [&](const torch::Tensor& y) {
          return ((y.to(torch::kDouble) - exact).abs() / (exact.abs() + 1)).max().item<double>();
        };
        EXPECT_LE(off(ByKernels(f, x)), 2 * off(f(x)) + 2e-7);
      }
    }
  }
}

// Rows too long for registers, in which what comes first or last is the largest, or no number, or all of them are infinite.
TEST_F(GpuRoughFunctionsTest, LongRowsOfUnusualNumbers) {
  constexpr int64_t kColumns = 140000;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto row = [&](auto fill) {
    const auto x = torch::randn({kColumns}, OnGpu());
    fill(x);
    return x;
  };
  const auto rows =
      torch::stack({
                       row([](const torch::Tensor& x) { x.copy_(torch::linspace(-50, 50, kColumns, x.options())); }),
                       row([](const torch::Tensor& x) { x.copy_(torch::linspace(50, -50, kColumns, x.options())); }),
                       row([](const torch::Tensor& x) { x.fill_(-kInfinity).select(0, kColumns - 1).fill_(3); }),
                       row([](const torch::Tensor& x) { x.fill_(-kInfinity).select(0, 0).fill_(-1000); }),
                       row([](const torch::Tensor& x) { x.fill_(-kInfinity); }),
                       row([](const torch::Tensor& x) { x.select(0, 77).fill_(kInfinity); }),
                       row([](const torch::Tensor& x) { x.select(0, kColumns / 2).fill_(std::numeric_limits<float>::quiet_NaN()); }),
                       row([](const torch::Tensor& x) { x.slice(0, 0, kColumns / 2).fill_(-kInfinity); }),
                       row([](const torch::Tensor& x) { x.fill_(-1e30); }),
                   })
          .repeat({40, 1});
  for (const torch::Dtype dtype : {torch::kFloat, torch::kBFloat16, torch::kDouble}) {
    const auto x = rows.to(dtype);
    for (const auto& f : {Function([](const torch::Tensor& x) { return torch::log_softmax(x, -1); }),
                          Function([](const torch::Tensor& x) { return torch::softmax(x, -1); })}) {
      ExpectSame(f(x).cpu(), ByKernels(f, x).cpu(), /*exact=*/false, c10::toString(dtype));
    }
  }
}

}  // namespace
}  // namespace lazuli::testing
