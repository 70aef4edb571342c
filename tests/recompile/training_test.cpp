// Training under the mode ends with eager's parameters.
//
// Bit for bit with the aten backend. Fused kernels may add in another order and compute transcendental functions within one unit in the
// last place, which is 6e-8 of a float's value a step. Twenty steps of these models grow that by gradients that depend on parameters, and
// by the division of Adam's kind of optimizers by the root of a small second moment, to a few 1e-5; so the llvm backend is held to 1e-4.

#include <torch/torch.h>

#include "tests/support/same_as_eager.h"
#include "tests/support/train.h"

namespace lazuli::testing {
namespace {

constexpr double kTolerance = 1e-4;

struct Case {
  std::string name;
  MakeModel model;
  std::string optimizer;
  double clip_norm;
  friend std::ostream& operator<<(std::ostream& stream, const Case& config) { return stream << config.name; }
};

const Case kCases[] = {
    {"MlpSgd", PlainMlp, "sgd", 0},
    {"MlpMomentum", PlainMlp, "momentum", 0},
    {"MlpAdam", PlainMlp, "adam", 0},
    {"MlpAmsgrad", PlainMlp, "amsgrad", 0},
    {"MlpAdamW", PlainMlp, "adamw", 0},
    {"MlpRmsprop", PlainMlp, "rmsprop", 0},
    {"MlpAdagrad", PlainMlp, "adagrad", 0},
    {"MlpWithDropoutNormsAndClipping", MlpWithDropoutAndNorms, "adamw", 0.5},
    {"CnnWithBatchNormMomentum", CnnWithBatchNorm, "momentum", 0},
    {"CnnWithBatchNormAdam", CnnWithBatchNorm, "adam", 1},
    {"LstmMomentumWithClipping", LstmClassifier, "momentum", 0.25},
    {"LstmAdam", LstmClassifier, "adam", 0},
    {"TransformerMomentumWithClipping", TransformerEncoder, "momentum", 1},
    {"TransformerAdamWWithClipping", TransformerEncoder, "adamw", 1},
};

class TrainingTest : public ::testing::TestWithParam<std::tuple<Case, std::string, bool>> {
 protected:
  void SetUp() override { lazuli::reset(); }
};

void ExpectClose(const torch::Tensor& eager, const torch::Tensor& lazy, size_t index) {
  ASSERT_EQ(eager.sizes(), lazy.sizes());
  EXPECT_TRUE(torch::allclose(eager, lazy, kTolerance, kTolerance))
      << "tensor " << index << " differs by up to " << (eager - lazy).abs().max().item<double>();
}

TEST_P(TrainingTest, EndsWithEagersParameters) {
  const auto& [config, backend, model_inside] = GetParam();
  const Recipe recipe{config.model, OptimizerNamed(config.optimizer), /*steps=*/20, config.clip_norm, nullptr};
  const Training eager = Train(recipe, std::nullopt, false);
  ASSERT_EQ(lazuli::stats().traces, 0);
  const Training lazy = Train(recipe, Options().backend(backend), model_inside);
  ASSERT_EQ(eager.state.size(), lazy.state.size());
  for (size_t i = 0; i < eager.state.size(); ++i) {
    if (backend == "aten") {
      ExpectSame(eager.state[i], lazy.state[i], /*exact=*/true, "tensor " + std::to_string(i));
    } else {
      ExpectClose(eager.state[i], lazy.state[i], i);
    }
  }
  for (size_t step = 0; step < eager.losses.size(); ++step) {
    EXPECT_NEAR(eager.losses[step], lazy.losses[step], backend == "aten" ? 0 : kTolerance * std::max(1.0, eager.losses[step])) << step;
  }
  // It learned something, and from programs.
  EXPECT_NE(eager.losses.front(), eager.losses.back());
  const Stats& warm = lazy.stats[5];
  const Stats& end = lazy.stats.back();
  EXPECT_GT(warm.programs_compiled, 0);
  EXPECT_EQ(end.programs_compiled, warm.programs_compiled);
  // Shapes were known at first sight, so nothing was cut to see them; oneDNN's LSTM has no shape function for its backward.
  const int64_t sights = config.name.rfind("Lstm", 0) == 0 ? 2 : 0;
  EXPECT_EQ(end.observations, sights);
  EXPECT_EQ(end.eager_replays, sights);
  EXPECT_EQ(end.cache_hits - warm.cache_hits, end.traces - warm.traces);
  if (backend == "llvm") {
    EXPECT_GT(end.kernel_launches, warm.kernel_launches);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TrainingTest,
                         ::testing::Combine(::testing::ValuesIn(kCases), ::testing::Values("aten", "llvm"), ::testing::Bool()),
                         [](const ::testing::TestParamInfo<std::tuple<Case, std::string, bool>>& info) {
                           return std::get<0>(info.param).name + "_" + std::get<1>(info.param) +
                                  (std::get<2>(info.param) ? "_ModelMadeInside" : "_ModelMadeBefore");
                         });

}  // namespace
}  // namespace lazuli::testing
