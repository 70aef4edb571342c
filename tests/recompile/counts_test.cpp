// How often programs are compiled: never again for what was seen before.

#include <torch/torch.h>

#include "codegen/kernel_compiler.h"
#include "tests/support/same_as_eager.h"
#include "tests/support/train.h"

namespace lazuli::testing {
namespace {

constexpr int kWarmUp = 5;

class CountsTest : public BackendTest {
 protected:
  // Expects that `recipe` compiles nothing and looks nothing up in vain after the first steps, and follows its predictions.
  void ExpectNoCompilesAfterWarmUp(const Recipe& recipe) const {
    const Training training = Train(recipe, options(), /*model_inside=*/false);
    const Stats& warm = training.stats[kWarmUp - 1];
    const Stats& end = training.stats.back();
    EXPECT_GT(warm.programs_compiled, 0);
    EXPECT_EQ(end.programs_compiled, warm.programs_compiled);
    EXPECT_EQ(end.cache_misses, warm.cache_misses);
    EXPECT_EQ(end.observations, warm.observations);
    EXPECT_EQ(end.eager_replays, warm.eager_replays);  // First sights only.
    EXPECT_EQ(end.recompile_limit_hits, 0);
    const int64_t traces = end.traces - warm.traces;
    EXPECT_GE(traces, recipe.steps - kWarmUp);
    EXPECT_EQ(end.cache_hits - warm.cache_hits, traces);
    EXPECT_EQ(end.predicted_hits - warm.predicted_hits, traces);
  }
};

TEST_P(CountsTest, AdamWithBiasCorrection) { ExpectNoCompilesAfterWarmUp({PlainMlp, OptimizerNamed("adam")}); }

TEST_P(CountsTest, AdamWWithDropoutAndClipping) {
  Recipe recipe{MlpWithDropoutAndNorms, OptimizerNamed("adamw")};
  recipe.clip_norm = 1;
  ExpectNoCompilesAfterWarmUp(recipe);
}

TEST_P(CountsTest, MomentumSgd) { ExpectNoCompilesAfterWarmUp({PlainMlp, OptimizerNamed("momentum")}); }

TEST_P(CountsTest, LearningRateThatChangesEachStep) {
  Recipe recipe{PlainMlp, OptimizerNamed("adamw")};
  recipe.before_step = [](torch::optim::Optimizer* optimizer, int step) {
    for (auto& group : optimizer->param_groups()) group.options().set_lr(0.01 / (1 + step));
  };
  ExpectNoCompilesAfterWarmUp(recipe);
}

TEST_P(CountsTest, LearningRateOfSgdThatChangesEachStep) {
  Recipe recipe{PlainMlp, OptimizerNamed("momentum")};
  recipe.before_step = [](torch::optim::Optimizer* optimizer, int step) {
    for (auto& group : optimizer->param_groups()) group.options().set_lr(0.1 * (20 - step));
  };
  ExpectNoCompilesAfterWarmUp(recipe);
}

TEST_P(CountsTest, MovingSliceAndSelectOffsets) {
  const auto data = torch::arange(4000, torch::kFloat).view({100, 40});
  const auto eager = [&](int64_t i) { return (data.slice(0, i, i + 8).select(1, i) * 2).sum(); };
  StatsDelta delta;
  const lazuli::DeviceMode mode(options());
  int64_t compiled = 0;
  for (int64_t i = 1; i < 21; ++i) {
    const float value = eager(i).item<float>();
    EXPECT_EQ(value, 2 * (8 * 41.0f * i + 40 * 28));
    if (i == 2) compiled = delta.of(&Stats::programs_compiled);
  }
  EXPECT_GT(compiled, 0);
  EXPECT_EQ(delta.of(&Stats::programs_compiled), compiled);
}

// The slice's length is a symbol, the tensor's is not: where the gradient belongs in it depends on both.
TEST_P(CountsTest, GradientsOfSlicesOfAnyLength) {
  const auto weight = torch::randn({16, 40});
  const auto gradient = [&](int64_t length) {
    const auto leaf = weight.detach().requires_grad_();
    const auto part = leaf.slice(0, 1, 1 + length);
    (part * part).sum().backward();
    return leaf.grad();
  };
  const StatsDelta delta;
  int64_t compiled = 0;
  for (const int64_t length : {9, 12, 10, 14, 11, 13}) {
    auto expected = torch::zeros({16, 40});
    expected.slice(0, 1, 1 + length).copy_(weight.slice(0, 1, 1 + length) * 2);
    const lazuli::DeviceMode mode(options());
    EXPECT_TRUE(torch::equal(gradient(length), expected)) << length;
    if (length == 10) compiled = delta.of(&Stats::programs_compiled);
  }
  EXPECT_GT(compiled, 0);
  EXPECT_EQ(delta.of(&Stats::programs_compiled), compiled);
}

// What was visible after the trace is not any more: twice the program that makes it serves all the same, in case that was by chance.
TEST_P(CountsTest, ResultThatNobodyKeepsAnyMore) {
  const auto x = torch::arange(12, torch::kFloat);
  torch::Tensor kept;
  const lazuli::DeviceMode mode(options());
  const auto step = [&](bool keep) {
    auto doubled = x * 2;
    const auto result = doubled.exp();
    if (keep) kept = doubled;
    doubled.reset();
    return result.sum().item<float>();
  };
  const float expected = step(true);
  for (int i = 0; i < kWarmUp; ++i) step(true);
  kept.reset();
  StatsDelta delta;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(step(false), expected);
  EXPECT_EQ(delta.of(&Stats::cache_hits), 2);
  EXPECT_EQ(delta.of(&Stats::cache_misses), 0);
  EXPECT_EQ(delta.of(&Stats::programs_compiled), 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(step(false), expected);
  EXPECT_EQ(delta.of(&Stats::cache_misses), 1);
  EXPECT_EQ(delta.of(&Stats::programs_compiled), 1);
  EXPECT_EQ(delta.of(&Stats::cache_hits), 3);
}

TEST_P(CountsTest, ScalarsThatChangeEachStep) {
  auto x = torch::ones({10});
  const StatsDelta delta;
  const lazuli::DeviceMode mode(options());
  int64_t compiled = 0;
  double expected = 1;
  for (int i = 2; i < 20; ++i) {
    x = (x * (1.0 / i) + 0.5 * i).sub(i, 0.25).clamp(-1.0 * i, 100.0 * i);
    x = torch::add(x, torch::full({10}, 3 * i), 2);
    expected = expected * (1.0 / i) + 0.5 * i - 0.25 * i + 6 * i;
    EXPECT_NEAR(x[0].item<double>(), expected, 1e-3);
    if (i == 3) compiled = delta.of(&Stats::programs_compiled);
  }
  EXPECT_EQ(delta.of(&Stats::programs_compiled), compiled);
}

TEST_P(CountsTest, ScalarOneAndZeroThroughARunTimeValue) {
  // 0 and 1 as factors choose another formula, so they may be programs of their own, but each only once.
  const auto x = torch::arange(6, torch::kFloat);
  const StatsDelta delta;
  const lazuli::DeviceMode mode(options());
  for (int round = 0; round < 3; ++round) {
    for (const double alpha : {0.0, 1.0, 2.0, 0.5})
      EXPECT_EQ((torch::add(x, x, alpha) * alpha).sum().item<float>(), 15 * (1 + alpha) * alpha);
  }
  EXPECT_LE(delta.of(&Stats::programs_compiled), 4);
}

TEST_P(CountsTest, PredictionsTakeOverFromLookups) {
  const auto x = torch::ones({5});
  const auto step = [&] { return (x * 2).exp().sum().item<float>(); };
  const lazuli::DeviceMode mode(options());
  step();
  step();
  step();
  const StatsDelta delta;
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(delta.of(&Stats::traces), 10);
  EXPECT_EQ(delta.of(&Stats::predicted_hits), 10);
  EXPECT_EQ(delta.of(&Stats::cache_hits), 10);
}

TEST_P(CountsTest, AlternatingBranchesAreFoundByLookup) {
  const auto x = torch::ones({5});
  const auto step = [&](bool branch) { return (branch ? (x * 2).exp() : (x + 2).tanh()).sum().item<float>(); };
  const lazuli::DeviceMode mode(options());
  for (int i = 0; i < 4; ++i) step(i % 2 == 0);
  const StatsDelta delta;
  // Never what followed last time, so no prediction holds to the end; nothing is compiled all the same.
  for (int i = 0; i < 12; ++i) EXPECT_FLOAT_EQ(step(i % 3 == 0), i % 3 == 0 ? 5 * std::exp(2.0f) : 5 * std::tanh(3.0f));
  EXPECT_EQ(delta.of(&Stats::programs_compiled), 0);
  EXPECT_EQ(delta.of(&Stats::cache_hits), 12);
}

TEST_P(CountsTest, ResetForgetsPrograms) {
  const auto step = [] { return (torch::ones({5}) * 2).sum(0).item<float>(); };
  const lazuli::DeviceMode mode(options());
  step();
  EXPECT_GT(lazuli::stats().programs_compiled, 0);
  lazuli::reset();
  EXPECT_EQ(lazuli::stats().programs_compiled, 0);
  EXPECT_EQ(lazuli::stats().cuts.size(), 0U);
  step();
  EXPECT_GT(lazuli::stats().programs_compiled, 0);
}

// What a program launches and calls the third time that it runs.
struct Launches {
  int64_t kernels, calls;
  bool operator==(const Launches& other) const { return kernels == other.kernels && calls == other.calls; }
  friend std::ostream& operator<<(std::ostream& out, const Launches& one) {
    return out << one.kernels << " kernels, " << one.calls << " calls";
  }
};

Launches LaunchesOf(const Options& options, const std::function<torch::Tensor()>& program) {
  const lazuli::DeviceMode mode(options);
  const auto run = [&] {
    const torch::Tensor kept = program();
    lazuli::sync();
  };
  for (int i = 0; i < 2; ++i) run();
  const StatsDelta delta;
  run();
  EXPECT_EQ(delta.of(&Stats::programs_compiled), 0);
  return {delta.of(&Stats::kernel_launches), delta.of(&Stats::aten_calls)};
}

TEST_P(CountsTest, WindowsAreWrittenByWhatMakesTheirOperands) {
  if (exact()) GTEST_SKIP() << "every operator is a call";
  const torch::Tensor x = torch::randn({6, 10}), y = torch::randn({6, 10}), image = torch::randn({2, 8, 8});
  const auto launches = [&](const std::function<torch::Tensor()>& program) { return LaunchesOf(options(), program); };
  EXPECT_EQ(launches([&] { return torch::cat({x * 2, torch::relu(y)}, 1); }), (Launches{1, 0}));
  EXPECT_EQ(launches([&] { return torch::stack({x * 2, y + x}, 2); }), (Launches{1, 0}));
  EXPECT_EQ(launches([&] { return torch::cat({-x.slice(1, 5), x.slice(1, 0, 5)}, 1); }), (Launches{1, 0}));
  EXPECT_EQ(launches([&] { return torch::constant_pad_nd(torch::relu(image), {1, 1, 1, 1}); }), (Launches{3, 0}));
  EXPECT_EQ(launches([&] { return x.flip({1}) * x; }), (Launches{1, 0}));
  EXPECT_EQ(launches([&] { return torch::cat({x, y}, 1); }), (Launches{0, 1})) << "nothing but copies";
}

TEST_P(CountsTest, WritesWhereIndicesSayAreKernels) {
  if (exact()) GTEST_SKIP() << "every operator is a call";
  const torch::Tensor x = torch::randn({6, 10}), places = torch::tensor({0, 2, 2, 5, 1, 0});
  const auto launches = [&](const std::function<torch::Tensor()>& program) { return LaunchesOf(options(), program); };
  // Zeros or a copy, then the writes, with what makes them.
  EXPECT_EQ(launches([&] { return at::embedding_dense_backward(x * 2, places, 6, -1, false); }), (Launches{2, 0}));
  EXPECT_EQ(launches([&] { return x.index_add(0, places, x * 2); }), (Launches{2, 0}));
  EXPECT_EQ(launches([&] { return x.index_put({places}, x * 2, true); }), (Launches{2, 0}));
  EXPECT_EQ(launches([&] { return x.scatter_add(0, places.unsqueeze(1).expand({6, 10}), x * 2); }), (Launches{2, 0}));
  EXPECT_EQ(launches([&] { return x.scatter_add(1, places.unsqueeze(1), x); }), (Launches{1, 0})) << "one of each row: all are compared";
  const torch::Tensor anywhere = torch::randint(0, 6, {6, 10});
  EXPECT_EQ(launches([&] { return x.scatter_add(0, anywhere, x); }), (Launches{0, 1})) << "each element to a place of its own";
}

LAZULI_FOR_EACH_BACKEND(CountsTest);

// Kernels are shared by what they do, whatever trace and place they come from.
TEST(KernelCountsTest, TwelveEqualLayersNeedTheKernelsOfOne) {
  const auto kernels = [](int64_t layers) {
    lazuli::reset();
    codegen::ForgetIdleKernels();
    const lazuli::DeviceMode mode;
    torch::nn::TransformerEncoder model(
        torch::nn::TransformerEncoderOptions(torch::nn::TransformerEncoderLayerOptions(16, 2).dim_feedforward(24).dropout(0), layers));
    torch::optim::SGD optimizer(model->parameters(), 1e-3);
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      model->forward(torch::randn({5, 3, 16})).square().mean().backward();
      optimizer.step();
      lazuli::sync();
    }
    return lazuli::stats().kernels_compiled;
  };
  const int64_t one = kernels(1), twelve = kernels(12);
  EXPECT_GT(one, 10);
  EXPECT_LE(twelve, one + one / 2);
}

}  // namespace
}  // namespace lazuli::testing
