// Loops of training in which nobody waits: they are cut between their steps, as if somebody did.

#include <torch/torch.h>

#include <functional>
#include <memory>

#include "tests/support/same_as_eager.h"
#include "tests/support/train.h"

namespace lazuli::testing {
namespace {

constexpr int kSteps = 6;

class StepsTest : public BackendTest {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    torch::manual_seed(3);
    net_ = torch::nn::Sequential(torch::nn::Linear(6, 16), torch::nn::Tanh(), torch::nn::Linear(16, 1));
    x_ = torch::randn({32, 6});
    y_ = x_.sum(1, /*keepdim=*/true).sin();
  }

  torch::Tensor Loss() { return torch::mse_loss(net_->forward(x_), y_); }
  std::unique_ptr<torch::optim::Optimizer> Optimizer(const std::string& name) { return OptimizerNamed(name)(net_->parameters()); }

  void Train(torch::optim::Optimizer& optimizer) {
    optimizer.zero_grad();
    Loss().backward();
    optimizer.step();
  }

  Tensors Parameters() {
    Tensors copies;
    for (const torch::Tensor& parameter : net_->parameters()) copies.push_back(parameter.detach().clone());
    return copies;
  }

  // Runs `step` kSteps times eagerly, then as often in the mode from the same parameters. They must end alike, and there must have been so
  // many cuts between steps, "step".
  void ExpectCuts(int64_t cuts, const std::function<void(int)>& step) {
    const Tensors begin = Parameters();
    for (int i = 0; i < kSteps; ++i) step(i);
    const Tensors eager = Parameters();
    {
      const torch::NoGradGuard no_grad;
      for (size_t i = 0; i < begin.size(); ++i) net_->parameters()[i].copy_(begin[i]);
    }
    net_->zero_grad();
    const StatsDelta delta;
    {
      const lazuli::DeviceMode mode(options());
      for (int i = 0; i < kSteps; ++i) step(i);
      lazuli::sync();
      EXPECT_EQ(delta.cuts("step"), cuts);
    }
    ExpectSame(eager, Parameters(), exact(), "parameters");
  }

  torch::nn::Sequential net_{nullptr};
  torch::Tensor x_, y_;
};

TEST_P(StepsTest, EachStepOfEachOptimizerIsATrace) {
  for (const std::string name : {"sgd", "momentum", "adam", "adamw", "rmsprop", "adagrad"}) {
    SCOPED_TRACE(name);
    lazuli::reset();
    auto optimizer = Optimizer(name);
    const lazuli::DeviceMode mode(options());
    for (int i = 0; i < 3; ++i) Train(*optimizer);  // The first one makes the optimizer's state.
    const StatsDelta delta;
    for (int i = 0; i < kSteps; ++i) Train(*optimizer);
    EXPECT_EQ(delta.cuts("step"), kSteps);
    EXPECT_EQ(delta.of(&Stats::programs_compiled), 0);
    EXPECT_EQ(delta.of(&Stats::cache_misses), 0);
    EXPECT_EQ(delta.of(&Stats::eager_replays), 0);
  }
}

TEST_P(StepsTest, LoopsThatWaitFindWhatTheyCompiled) {
  const lazuli::DeviceMode mode(options());
  auto optimizer = Optimizer("adamw");
  for (int i = 0; i < 4; ++i) Train(*optimizer);
  lazuli::sync();
  const StatsDelta delta;
  for (int i = 0; i < kSteps; ++i) {
    Train(*optimizer);
    lazuli::sync();
  }
  // Gradients that can still be seen at the cut make a trace of their own, once.
  EXPECT_LE(delta.of(&Stats::cache_misses), 1);
  EXPECT_EQ(delta.cuts("step"), 0);
}

TEST_P(StepsTest, ParametersAreEagers) {
  auto optimizer = Optimizer("sgd");
  ExpectCuts(kSteps - 1, [&](int) { Train(*optimizer); });
}

TEST_P(StepsTest, UpdatesByHandCount) {
  ExpectCuts(kSteps - 1, [&](int) {
    net_->zero_grad();
    Loss().backward();
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : net_->parameters()) parameter.sub_(0.1 * parameter.grad());
  });
}

TEST_P(StepsTest, WhatUpdatesWithGradModeOnIsNotCutParameterByParameter) {
  ExpectCuts(0, [&](int) {
    net_->zero_grad();
    Loss().backward();
    for (const torch::Tensor& parameter : net_->parameters()) parameter.data().add_(-0.1 * parameter.grad());
  });
}

TEST_P(StepsTest, UpdatesComputedWithGradModeOnAreCutOnce) {
  Tensors momenta;
  for (const torch::Tensor& parameter : net_->parameters()) momenta.push_back(torch::zeros_like(parameter, torch::requires_grad(false)));
  const Tensors zeros = momenta;
  int64_t steps = 0;
  // After the first parameter's update: what comes then is in the next trace, with the next forward and backward pass.
  ExpectCuts(kSteps, [&](int) {
    if (steps++ == kSteps) momenta = zeros;
    net_->zero_grad();
    Loss().backward();
    for (size_t i = 0; i < momenta.size(); ++i) {
      const torch::Tensor parameter = net_->parameters()[i];
      momenta[i] = 0.9 * momenta[i] + 0.1 * parameter.grad();
      const torch::Tensor update = 0.1 * momenta[i];
      const torch::NoGradGuard no_grad;
      parameter.sub_(update);
    }
  });
}

TEST_P(StepsTest, AccumulatedGradientsAreOneStep) {
  auto optimizer = Optimizer("sgd");
  ExpectCuts(kSteps / 2 - 1, [&](int i) {
    Loss().backward();
    if (i % 2 == 0) return;
    optimizer->step();
    optimizer->zero_grad();
  });
}

TEST_P(StepsTest, WhatBeginsWithTheUpdateIsNotCutAgain) {
  auto optimizer = Optimizer("sgd");
  ExpectCuts(0, [&](int) {
    optimizer->zero_grad();
    const torch::Tensor loss = Loss();
    loss.backward();
    EXPECT_GT(loss.item<float>(), 0);
    optimizer->step();
  });
}

TEST_P(StepsTest, WhatIsDoneAfterTheUpdateBelongsToTheNextStep) {
  auto optimizer = Optimizer("sgd");
  torch::Tensor sum = torch::zeros({});
  // The last sum comes after the last update.
  ExpectCuts(kSteps, [&](int) {
    optimizer->zero_grad();
    const torch::Tensor loss = Loss();
    loss.backward();
    optimizer->step();
    sum = sum + loss.detach() * torch::ones({2, 2}).sum();
  });
}

TEST_P(StepsTest, EachOfTwoOptimizersEndsOne) {
  torch::nn::Linear other(6, 1);
  const torch::Tensor weight = other->weight.detach().clone();
  auto optimizer = Optimizer("sgd");
  torch::optim::SGD second(other->parameters(), 0.1);
  int64_t steps = 0;
  ExpectCuts(2 * kSteps - 1, [&](int) {
    if (steps++ == kSteps) {
      const torch::NoGradGuard no_grad;
      other->weight.copy_(weight);
    }
    Train(*optimizer);
    second.zero_grad();
    torch::mse_loss(other->forward(x_), y_).backward();
    second.step();
  });
}

TEST_P(StepsTest, AFullGraphIsNoObstacle) {
  auto optimizer = Optimizer("sgd");
  const lazuli::DeviceMode mode(options());
  {
    const lazuli::FullGraph full_graph;
    for (int i = 0; i < 3; ++i) Train(*optimizer);
  }
  EXPECT_EQ(lazuli::stats().cuts["step"], 2);
}

LAZULI_FOR_EACH_BACKEND(StepsTest);

// A loop whose programs are compiled in the background runs compiled from its second round on, which waits.
class WaitingLoopTest : public BackendTest {
 protected:
  Options options(int64_t wait_ms) const { return BackendTest::options().async(true).compile_wait_ms(wait_ms); }
  static float Step() { return (torch::ones({37, 5}) * 2).exp().sum().item<float>(); }
};

TEST_P(WaitingLoopTest, TheSecondRoundIsCompiled) {
  const float expected = Step();
  const lazuli::DeviceMode mode(options(60000));
  EXPECT_EQ(Step(), expected);
  EXPECT_EQ(lazuli::stats().compile_waits, 0);  // Seen once.
  EXPECT_EQ(lazuli::stats().background_replays, 1);
  Step();  // At a site of its own, after an item().
  EXPECT_EQ(lazuli::stats().programs_compiled, 1);
  EXPECT_LE(lazuli::stats().compile_waits, 1);
  const StatsDelta delta;
  for (int i = 0; i < 40; ++i) EXPECT_NEAR(Step(), expected, 1e-3);
  EXPECT_EQ(delta.of(&Stats::eager_replays), 0);
  EXPECT_EQ(delta.of(&Stats::compile_waits), 0);
  EXPECT_EQ(lazuli::stats().background_replays, 1);
}

TEST_P(WaitingLoopTest, WithoutABudgetNobodyWaits) {
  const lazuli::DeviceMode mode(options(0));
  for (int i = 0; i < 20; ++i) Step();
  EXPECT_EQ(lazuli::stats().compile_waits, 0);
  EXPECT_GE(lazuli::stats().background_replays, 1);
}

TEST_P(WaitingLoopTest, ExplainSaysHowLong) {
  const lazuli::DeviceMode mode(options(60000));
  for (int i = 0; i < 3; ++i) Step();
  const bool waited = lazuli::stats().compile_waits > 0;
  EXPECT_EQ(lazuli::explain().find("waited for programs: 1 trace, ") != std::string::npos, waited) << lazuli::explain();
  EXPECT_EQ(lazuli::stats().compile_wait_seconds > 0, waited);
}

// What came before, though other results of it could be seen, is compiled at once.
TEST_P(WaitingLoopTest, OtherResultsAreASecondSight) {
  const lazuli::DeviceMode mode(options(60000));
  const auto step = [](bool keep) {
    torch::Tensor twice = torch::ones({9, 4}) * 2;
    const torch::Tensor sum = twice.exp().sum();
    if (!keep) twice = torch::Tensor();
    lazuli::sync();
    return sum.item<float>();
  };
  const float expected = step(false);
  EXPECT_EQ(lazuli::stats().programs_compiled, 0);
  EXPECT_NEAR(step(true), expected, 1e-3);
  EXPECT_EQ(lazuli::stats().programs_compiled, 1);
}

// But where others can be seen each time, each of them is as good as new: the site's programs are for what stays.
TEST_P(WaitingLoopTest, EverOtherResultsAreNot) {
  const lazuli::DeviceMode mode(options(60000));
  const auto step = [](int kept) {
    Tensors all{torch::ones({9, 4})};
    for (int i = 0; i < 12; ++i) all.push_back((all.back() * 2).exp().sigmoid());
    const torch::Tensor one = all[static_cast<size_t>(kept)], last = all.back();
    all.clear();
    lazuli::sync();
  };
  for (int kept = 1; kept <= 6; ++kept) step(kept);
  EXPECT_EQ(lazuli::stats().programs_compiled, 1);
  EXPECT_EQ(lazuli::stats().recompile_limit_hits, 0);
  step(5);
  EXPECT_EQ(lazuli::stats().programs_compiled, 2);
  const StatsDelta delta;
  for (int i = 0; i < 5; ++i) step(5);
  EXPECT_EQ(delta.of(&Stats::eager_replays), 0);
}

LAZULI_FOR_EACH_BACKEND(WaitingLoopTest);

}  // namespace
}  // namespace lazuli::testing
