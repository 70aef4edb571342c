// Functions that kernels compute by the hardware's own, where halves or sums are made of them. Skipped without a GPU.
#include <torch/torch.h>

#include <functional>

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
    torch::manual_seed(3);
    const auto x = torch::randn({512, 1000}, OnGpu()) * scale;
    for (const auto& [name, f] : functions) {
      SCOPED_TRACE(std::string(name) + " at scale " + std::to_string(scale));
      const auto exact = f(x.to(torch::kDouble));
      const auto off = [&](const torch::Tensor& y) {
        return ((y.to(torch::kDouble) - exact).abs() / (exact.abs() + 1)).max().item<double>();
      };
      EXPECT_LE(off(ByKernels(f, x)), 2 * off(f(x)) + 2e-7);
    }
  }
}

}  // namespace
}  // namespace lazuli::testing
