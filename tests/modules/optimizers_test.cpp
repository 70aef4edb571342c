// Every optimizer, twenty steps: alone, with each kind of scheduler, and with clipped gradients.
//
// Bit for bit with the aten backend. With llvm, see tests/recompile/training_test.cpp for why twenty steps are held to 1e-4.

#include <torch/torch.h>

#include "tests/support/module_check.h"
#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"
#include "tests/support/train.h"

namespace lazuli::testing {
namespace {

constexpr double kTolerance = 1e-4;
constexpr int kSteps = 20;

using Scheduler = decltype(Recipe::scheduler);

std::function<void(double)> StepDown(torch::optim::Optimizer* optimizer) {
  auto scheduler = std::make_shared<torch::optim::StepLR>(*optimizer, /*step_size=*/6, /*gamma=*/0.5);
  return [scheduler](double) { scheduler->step(); };
}

// Twice without an improvement by half: a plateau, so that the rate falls in each of these short runs.
std::function<void(double)> OnPlateau(torch::optim::Optimizer* optimizer) {
  auto scheduler = std::make_shared<torch::optim::ReduceLROnPlateauScheduler>(*optimizer, torch::optim::ReduceLROnPlateauScheduler::min,
                                                                              /*factor=*/0.5f, /*patience=*/2, /*threshold=*/0.5);
  return [scheduler](double loss) { scheduler->step(static_cast<float>(loss)); };
}

struct Policy {
  std::string name;
  Scheduler scheduler;
  double clip_norm;
};
const Policy kPolicies[] = {{"", nullptr, 0}, {"_StepLR_Clipped", StepDown, 0.5}, {"_ReduceLROnPlateau", OnPlateau, 0}};

const std::vector<std::string> kNames = {"sgd",        "momentum", "damped",        "nesterov",      "adam",
                                         "adam_decay", "amsgrad",  "adamw",         "adamw_amsgrad", "rmsprop_plain",
                                         "rmsprop",    "adagrad",  "adagrad_decay", "lbfgs",         "lbfgs_wolfe"};

class OptimizersTest : public ::testing::TestWithParam<std::tuple<std::string, Policy>> {};

bool ReadsValues(const std::string& name) { return name.rfind("lbfgs", 0) == 0; }

void ExpectCompiled(const std::string& name, const Training& lazy) {
  const Stats &middle = lazy.stats[kSteps / 2], &end = lazy.stats.back();
  EXPECT_GT(middle.programs_compiled, 0);
  EXPECT_EQ(end.compile_failures, 0);
  EXPECT_EQ(end.recompile_limit_hits, 0);
  // A line search may branch late to where it never was; everything else is known by now.
  const int64_t new_programs = end.programs_compiled - middle.programs_compiled;
  EXPECT_LE(new_programs, name == "lbfgs_wolfe" ? 1 : 0);
  EXPECT_GT(end.traces, middle.traces);
  EXPECT_EQ(end.cache_hits - middle.cache_hits + new_programs, end.traces - middle.traces);
  EXPECT_EQ(end.eager_replays, middle.eager_replays);
  for (const auto& [op, count] : end.eager_fallbacks) {
    // The losses that this test and the search read. On a GPU, shape functions are trusted after an observation.
    EXPECT_TRUE(op == "aten::_local_scalar_dense" || (OnGpu() && count == 1)) << op << " " << count;
  }
  if (!ReadsValues(name)) {
    EXPECT_EQ(end.traces - middle.traces, kSteps - 1 - kSteps / 2) << "more than one trace a step";
  }
}

TEST_P(OptimizersTest, TwentyStepsEndAsEager) {
  const auto& [name, policy] = GetParam();
  const MakeModel model = ReadsValues(name) ? FixedRegression : MlpWithDropoutAndNorms;
  const Recipe recipe{model, OptimizerNamed(name), kSteps, policy.clip_norm, nullptr, policy.scheduler};
  const Training eager = Train(recipe, std::nullopt, false);
  EXPECT_NE(eager.losses.front(), eager.losses.back());
  TableLine line;
  line.name = name + policy.name;
  lazuli::reset();
  {
    SCOPED_TRACE("aten");
    const Training aten = Train(recipe, Options().backend("aten").step_aside(false), /*model_inside=*/false);
    line.forward_equal = aten.losses == eager.losses;
    line.backward_equal = DiffAll(eager.state, aten.state, {}).empty();
    EXPECT_EQ(aten.losses, eager.losses);
    EXPECT_EQ(DiffAll(eager.state, aten.state, {}), "");
    ExpectCompiled(name, aten);
  }
  lazuli::reset();
  const Training llvm = Train(recipe, Options().backend("llvm").step_aside(false), /*model_inside=*/true);
  ASSERT_EQ(llvm.state.size(), eager.state.size());
  for (size_t i = 0; i < eager.state.size(); ++i) {
    EXPECT_TRUE(torch::allclose(eager.state[i], llvm.state[i], kTolerance, kTolerance)) << "tensor " << i;
  }
  ExpectCompiled(name, llvm);
  line.difference = RelativeDifference(eager.state, llvm.state);
  line.programs = llvm.stats.back().programs_compiled;
  line.cache_hits = llvm.stats.back().cache_hits;
  line.fallbacks = llvm.stats.back().eager_fallbacks;
  AddTableLine(line);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, OptimizersTest, ::testing::Combine(::testing::ValuesIn(kNames), ::testing::ValuesIn(kPolicies)),
                         [](const ::testing::TestParamInfo<std::tuple<std::string, Policy>>& info) {
                           return std::get<0>(info.param) + std::get<1>(info.param).name;
                         });

}  // namespace
}  // namespace lazuli::testing
