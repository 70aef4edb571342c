// Numbers (0-dim CPU tensors) whose values are at hand are computed at once; those that wait for the trace, or that it reads, are recorded.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <limits>

#include "lazuli/lazuli.h"
#include "tests/support/error_of.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::tracer {
namespace {

using lazuli::testing::StatsDelta;

class CpuScalarsTest : public ::testing::Test {
 protected:
  void SetUp() override { lazuli::reset(); }
  const lazuli::DeviceMode mode_{Options().backend("aten")};
  const torch::NoGradGuard no_grad_;
  torch::Tensor settled_ = Settled(torch::tensor(3.0F));
  torch::Tensor vector_ = Settled(torch::arange(4.0));

  static torch::Tensor Settled(torch::Tensor tensor) {
    lazuli::sync();
    return tensor;
  }
};

TEST_F(CpuScalarsTest, RunAtOnceAndCutNothing) {
  const torch::Tensor pending = vector_ + 1;
  const StatsDelta delta;
  settled_.add_(1);
  const torch::Tensor root = settled_.sqrt() * 2;
  EXPECT_EQ(root.item<float>(), 4);
  EXPECT_EQ(delta.of(&Stats::cpu_scalar_ops), 3);
  EXPECT_EQ(delta.of(&Stats::ops_recorded), 0);
  EXPECT_EQ(delta.of(&Stats::traces), 0);
  EXPECT_TRUE(lazuli::stats().eager_fallbacks.empty());
  EXPECT_EQ(pending.sum().item<float>(), 10);
}

TEST_F(CpuScalarsTest, OperatorsWithoutTypedKernelsToo) {
  const auto program = [&] {
    const torch::Tensor both = torch::logaddexp2(settled_, settled_);
    EXPECT_EQ(torch::special_bessel_j0(settled_ - settled_).item<float>(), 1);
    EXPECT_EQ(both.item<float>(), 4);
  };
  program();  // The first time, the shapes of results may be observed.
  const StatsDelta delta;
  program();
  EXPECT_EQ(delta.of(&Stats::cpu_scalar_ops), 3);
  EXPECT_EQ(delta.of(&Stats::traces), 0);
}

// Sums, differences and products in place are not computed by ATen's kernels.
TEST_F(CpuScalarsTest, InPlaceAsAtenComputesThem) {
  const double largest = std::numeric_limits<float>::max();
  const std::vector<at::Scalar> numbers = {
      1, -3, 0.1, 1e300, largest, -0.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<int64_t>::max()};
  const auto program = [&](torch::ScalarType dtype) {
    std::vector<torch::Tensor> results;
    std::string errors;
    for (const at::Scalar& number : numbers) {
      for (const double begin : {3.0, -0.0, 1e30}) {
        torch::Tensor x = torch::tensor(begin, torch::kDouble).to(dtype).clone();
        const torch::Tensor other = torch::scalar_tensor(number, number.isFloatingPoint() ? torch::kDouble : torch::kLong).to(dtype);
        errors += testing::ErrorOf([&] { x.add_(number).mul_(other).sub_(number, 1).mul_(number).add_(other, 1.0).sub_(other); });
        errors += testing::ErrorOf([&] { x.add_(number, 0.5).mul_(true).sub_(true); });
        results.push_back(x);
        results.push_back(torch::scalar_tensor(static_cast<int64_t>(x._version()), torch::kLong));
      }
    }
    return std::make_pair(results, errors);
  };
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kLong, torch::kInt, torch::kBFloat16}) {
    const auto [eager, errors] = [&] {
      const EagerScope scope;
      return program(dtype);
    }();
    const StatsDelta delta;
    const auto [lazy, same_errors] = program(dtype);
    EXPECT_GT(delta.of(&Stats::cpu_scalar_ops), 100) << dtype;
    EXPECT_EQ(same_errors, errors) << dtype;
    testing::ExpectSame(eager, lazy, /*exact=*/true, c10::toString(dtype));
  }
}

// Of numbers, but not numbers.
TEST_F(CpuScalarsTest, ResultsThatAreLargerAreRecorded) {
  const StatsDelta delta;
  const torch::Tensor stacked = torch::stack({settled_, settled_}), repeated = settled_.repeat({4}), filled = settled_.new_full({3}, 2);
  EXPECT_EQ(delta.of(&Stats::cpu_scalar_ops), 0);
  EXPECT_EQ((stacked.sum() + repeated.sum() + filled.sum()).item<float>(), 24);
}

TEST_F(CpuScalarsTest, PendingOnesAreRecorded) {
  const StatsDelta delta;
  const torch::Tensor loss = (vector_ * 2).sum() / 3;
  settled_.add_(loss);
  settled_.mul_(2);
  EXPECT_EQ(delta.of(&Stats::cpu_scalar_ops), 0);
  EXPECT_EQ(settled_.item<float>(), 14);
  EXPECT_EQ(delta.of(&Stats::traces), 1);
}

TEST_F(CpuScalarsTest, WritesOfWhatTheTraceReadsAreRecorded) {
  const StatsDelta delta;
  const torch::Tensor before = vector_ * settled_;
  settled_.add_(1);
  const torch::Tensor after = vector_ * settled_;
  EXPECT_EQ(delta.of(&Stats::cpu_scalar_ops), 0);
  EXPECT_EQ(before[3].item<float>(), 9);
  EXPECT_EQ(after[3].item<float>(), 12);
  EXPECT_EQ(settled_.item<float>(), 4);
  EXPECT_EQ(delta.of(&Stats::traces), 1);
}

TEST_F(CpuScalarsTest, ElementsOfSettledVectorsAreNumbers) {
  const StatsDelta delta;
  vector_[1].add_(5);
  EXPECT_EQ(delta.of(&Stats::cpu_scalar_ops), 1);
  EXPECT_EQ(vector_[1].item<float>(), 6);
  const torch::Tensor doubled = vector_ * 2;
  vector_[1].add_(5);
  EXPECT_EQ(delta.of(&Stats::cpu_scalar_ops), 1);
  EXPECT_EQ(doubled[1].item<float>(), 12);
  EXPECT_EQ(vector_[1].item<float>(), 11);
}

TEST_F(CpuScalarsTest, TensorsMadeOfANumberAreRecorded) {
  const StatsDelta delta;
  const torch::Tensor many = settled_.repeat({2, 3});
  EXPECT_EQ(delta.of(&Stats::cpu_scalar_ops), 0);
  EXPECT_EQ(many.sum().item<float>(), 18);
  EXPECT_GT(delta.of(&Stats::ops_recorded), 0);
}

TEST_F(CpuScalarsTest, OptionRecordsThem) {
  const lazuli::DeviceMode mode(Options().backend("aten").record_scalars(true));
  const StatsDelta delta;
  EXPECT_EQ((settled_ + 1).item<float>(), 4);
  EXPECT_EQ(delta.of(&Stats::cpu_scalar_ops), 0);
  EXPECT_EQ(delta.of(&Stats::ops_recorded), 1);
}

TEST_F(CpuScalarsTest, GradientsFlowThroughThem) {
  const torch::AutoGradMode grad(true);
  torch::Tensor scale = Settled(torch::tensor(0.5F)).requires_grad_(true);
  const StatsDelta delta;
  (vector_ * (scale * 2).exp()).sum().backward();
  EXPECT_GE(delta.of(&Stats::cpu_scalar_ops), 2);
  EXPECT_FLOAT_EQ(scale.grad().item<float>(), 12 * std::exp(1.0F));
  EXPECT_EQ(delta.of(&Stats::traces), 1);
}

// As torch.optim.AdamW does: the step number is a tensor, read between the update of the moments and that of the parameters.
TEST_F(CpuScalarsTest, AnOptimizersStepIsOneTrace) {
  std::vector<torch::Tensor> parameters{vector_.clone(), vector_.clone()}, moments{vector_.clone(), vector_.clone()};
  std::vector<torch::Tensor> steps{Settled(torch::tensor(0.0F)), Settled(torch::tensor(0.0F))};
  for (int i = 1; i <= 4; ++i) {
    const StatsDelta delta;
    for (size_t p = 0; p < 2; ++p) {
      moments[p].lerp_(parameters[p], 0.1);
      steps[p] += 1;
      parameters[p].addcdiv_(moments[p], moments[p] + 1, -1.0 / (1 - std::pow(0.9, steps[p].item<double>())));
    }
    lazuli::sync();
    EXPECT_EQ(delta.of(&Stats::traces), 1) << i;
    EXPECT_EQ(delta.of(&Stats::cpu_scalar_ops), 2) << i;
    EXPECT_EQ(delta.of(&Stats::programs_compiled), i == 1 ? 1 : 0) << i;
  }
  EXPECT_EQ(steps[1].item<float>(), 4);
}

}  // namespace
}  // namespace lazuli::tracer
