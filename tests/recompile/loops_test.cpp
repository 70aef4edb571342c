// Programs that go round without reading results: they are cut once a round.

#include <ATen/ThreadLocalState.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

using torch::Tensor;

class LoopsTest : public BackendTest {
 protected:
  // A trainer of some sixty operators a step, whose batch size goes through `sizes`.
  struct Trainer {
    torch::nn::Sequential model{torch::nn::Linear(8, 16), torch::nn::ReLU(), torch::nn::Linear(16, 16), torch::nn::GELU(),
                                torch::nn::Linear(16, 1)};
    torch::optim::SGD optimizer{model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)};
    std::vector<int64_t> sizes;
    int64_t steps = 0;

    explicit Trainer(std::vector<int64_t> batch_sizes) : sizes(std::move(batch_sizes)) {
      int64_t i = 0;
      const torch::NoGradGuard no_grad;
      for (Tensor& parameter : model->parameters()) {
        parameter.copy_((torch::arange(parameter.numel()).view(parameter.sizes()) * 37 % 23 - 11).to(torch::kFloat) * 0.03 + 0.001 * ++i);
      }
    }
    Tensor Step() {
      const int64_t size = sizes[static_cast<size_t>(steps++) % sizes.size()];
      const Tensor x = torch::arange(size * 8, torch::kFloat).view({size, 8}).sin();
      optimizer.zero_grad();
      Tensor loss = (model->forward(x) - x.sum(1, true)).square().mean();
      loss.backward();
      optimizer.step();
      return loss;
    }
    float Run(int count) {
      for (int i = 1; i < count; ++i) Step();
      return Step().item<float>();
    }
  };

  void ExpectTrainsLikeEager(const std::vector<int64_t>& sizes) {
    constexpr int kSteps = 140;
    Trainer eager(sizes);
    const std::vector<float> expected{eager.Run(kSteps), eager.Run(kSteps), eager.Run(kSteps)};
    Trainer lazy(sizes);
    const lazuli::DeviceMode mode(options());
    EXPECT_NEAR(lazy.Run(kSteps), expected[0], exact() ? 0 : 1e-4);
    EXPECT_NEAR(lazy.Run(kSteps), expected[1], exact() ? 0 : 1e-4);
    const StatsDelta late;
    EXPECT_NEAR(lazy.Run(kSteps), expected[2], exact() ? 0 : 1e-4);
    // A trace is a step, and nothing is compiled any more.
    EXPECT_GE(late.cuts("loop") + late.cuts("step"), kSteps - 1);
    EXPECT_EQ(late.cuts("trace_limit"), 0);
    EXPECT_EQ(late.of(&Stats::programs_compiled), 0);
    EXPECT_EQ(late.of(&Stats::eager_replays), 0);
    EXPECT_EQ(late.of(&Stats::cache_misses), 0);
    EXPECT_LE(lazuli::stats().programs_compiled, 12);
  }
};

TEST_P(LoopsTest, Training) { ExpectTrainsLikeEager({16}); }

TEST_P(LoopsTest, TrainingWithSizesThatVary) { ExpectTrainsLikeEager({16, 11, 13, 16, 9, 24, 10}); }

TEST_P(LoopsTest, Simulation) {
  const torch::NoGradGuard no_grad;
  const auto run = [](int steps) {
    Tensor x = torch::linspace(0, 1, 64), v = torch::zeros({64});
    for (int i = 0; i < steps; ++i) {
      v = v - x * 0.01;
      x = x + v * 0.01;
    }
    return x.sum().item<float>();
  };
  const float expected = run(12000);
  const lazuli::DeviceMode mode(options());
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(run(12000), expected, exact() ? 0 : 1e-3);
  const StatsDelta late;
  EXPECT_NEAR(run(12000), expected, exact() ? 0 : 1e-3);
  EXPECT_GE(late.cuts("loop"), 100);
  EXPECT_EQ(late.cuts("trace_limit"), 0);
  EXPECT_EQ(late.of(&Stats::programs_compiled), 0);
}

// Goes on where another thread is, as LibTorch's own do with the gradients of a GPU's tensors.
class HelperThread {
 public:
  ~HelperThread() {
    Run(nullptr);
    thread_.join();
  }
  // Returns when `work` is done; null ends the thread.
  void Run(std::function<void()> work) {
    std::unique_lock<std::mutex> lock(mutex_);
    state_ = at::ThreadLocalState();
    work_ = std::move(work);
    has_work_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !has_work_; });
  }

 private:
  void Work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (bool goes_on = true; goes_on;) {
      changed_.wait(lock, [this] { return has_work_; });
      goes_on = work_ != nullptr;
      if (goes_on) {
        const at::ThreadLocalStateGuard guard(state_);
        work_();
      }
      has_work_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;
  bool has_work_ = false;
  at::ThreadLocalState state_;
  std::thread thread_{[this] { Work(); }};  // The last, which uses the others.
};

// What one thread makes another one lets go of: between rounds, where nothing of them is alive, is still where they are cut.
TEST_P(LoopsTest, GradientsOfAnotherThread) {
  constexpr int kRounds = 300;
  const torch::NoGradGuard no_grad;
  HelperThread helper;
  const auto run = [&](int rounds) {
    Tensor weight = torch::linspace(0, 1, 1000);
    for (int round = 0; round < rounds; ++round) {
      Tensor h = weight.cos(), gradient;  // A cosine comes once a round, first.
      std::vector<Tensor> kept;
      for (int i = 0; i < 20; ++i) kept.push_back(h = torch::sin(h) * 0.5 + 0.1);
      helper.Run([&] {
        for (gradient = h * 2; !kept.empty(); kept.pop_back()) gradient = gradient * (kept.back() + 0.9);
        h = Tensor();
        gradient = gradient.tanh();
      });
      weight = weight - gradient * 0.01;
    }
    return weight.sum().item<float>();
  };
  const float expected = run(kRounds);
  const lazuli::DeviceMode mode(options());
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(run(kRounds), expected, exact() ? 0 : 1e-2);
  const StatsDelta late;
  EXPECT_NEAR(run(kRounds), expected, exact() ? 0 : 1e-2);
  EXPECT_GE(late.cuts("loop"), kRounds / 2);
  EXPECT_EQ(late.of(&Stats::programs_compiled), 0);
  const std::string sites = lazuli::explain();
  EXPECT_THAT(sites, ::testing::HasSubstr("after loop; aten::cos,"));
  EXPECT_THAT(sites, ::testing::Not(::testing::HasSubstr("after loop; aten::tanh,"))) << "least is alive between rounds";
}

TEST_P(LoopsTest, NoGraphBreaks) {
  const torch::NoGradGuard no_grad;
  const lazuli::DeviceMode mode(options());
  Tensor x = torch::ones({8});
  {
    const lazuli::FullGraph full;
    for (int i = 0; i < 3000; ++i) x = torch::sin(x) * 0.5 + 0.5;
  }
  EXPECT_GT(lazuli::stats().cuts["loop"], 0);
  EXPECT_GT(x.sum().item<float>(), 0);
}

// A recurrent network over sequences of any length, trained: a loop forward, one backward.
struct RecurrentTrainer {
  Tensor inner = ((torch::arange(8 * 32) * 37 % 23 - 11).to(torch::kFloat) * 0.02).view({8, 32}).set_requires_grad(true);
  Tensor outer = ((torch::arange(8 * 32) * 29 % 19 - 9).to(torch::kFloat) * 0.02).view({8, 32}).set_requires_grad(true);

  float Step(int64_t length) {
    const Tensor x = torch::arange(4 * length * 8, torch::kFloat).view({4, length, 8}).sin();
    Tensor h = torch::zeros({4, 8}), c = torch::zeros({4, 8}), loss = torch::zeros({});
    for (int64_t t = 0; t < length; ++t) {
      const std::vector<Tensor> gates = (torch::mm(x.select(1, t), outer) + torch::mm(h, inner)).chunk(4, 1);
      c = torch::sigmoid(gates[0]) * c + torch::sigmoid(gates[1]) * torch::tanh(gates[2]);
      h = torch::sigmoid(gates[3]) * torch::tanh(c);
      loss = loss + (h - 0.1).square().mean();
    }
    loss.backward();
    const torch::NoGradGuard no_grad;
    for (Tensor* parameter : {&inner, &outer}) {
      parameter->sub_(parameter->grad() * 0.05);
      parameter->mutable_grad() = Tensor();
    }
    return loss.item<float>();
  }
};

TEST_P(LoopsTest, LoopsOfManyLengths) {
  constexpr int kWarmUp = 120, kSteps = 200;
  const auto length = [](int step) { return 4 + step * 7 % 19; };
  RecurrentTrainer eager, lazy;
  std::vector<float> expected;
  for (int step = 0; step < kSteps; ++step) expected.push_back(eager.Step(length(step)));
  ::testing::internal::CaptureStderr();
  const lazuli::DeviceMode mode(options());
  for (int step = 0; step < kWarmUp; ++step) {
    EXPECT_NEAR(lazy.Step(length(step)), expected[static_cast<size_t>(step)], exact() ? 0 : 1e-4) << step;
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::HasSubstr("differ by how often they go round a loop"));
  const StatsDelta late;
  for (int step = kWarmUp; step < kSteps; ++step) {
    EXPECT_NEAR(lazy.Step(length(step)), expected[static_cast<size_t>(step)], exact() ? 0 : 1e-4) << step;
  }
  // 19 lengths, and a program for each piece.
  EXPECT_GT(late.cuts("loop"), 4 * (kSteps - kWarmUp));
  EXPECT_EQ(late.of(&Stats::programs_compiled), 0);
  EXPECT_EQ(late.of(&Stats::eager_replays), 0);
  EXPECT_EQ(late.of(&Stats::ops_stepped_aside), 0);
  EXPECT_LE(lazuli::stats().programs_compiled, 40);
}

TEST_P(LoopsTest, LoopsOfFewLengthsStayWhole) {
  RecurrentTrainer lazy;
  const lazuli::DeviceMode mode(options());
  for (int step = 0; step < 40; ++step) lazy.Step(4 + step % 5);
  EXPECT_EQ(lazuli::stats().cuts.count("loop"), 0U);
  EXPECT_EQ(lazuli::stats().cuts.count("recompile_limit"), 0U);
}

// Rows that are flipped or not, by chance, and then a step of training: what is always the same has a program of its own.
TEST_P(LoopsTest, AugmentationByChanceBeforeAStep) {
  constexpr int kRows = 12, kWarmUp = 150, kSteps = 200;
  const Tensor data = torch::arange(40 * 8, torch::kFloat).view({40, 8}).sin();
  const auto train = [&](const std::function<void(int)>& after_step) {
    std::mt19937 random(7);
    Trainer trainer({1});
    std::vector<float> losses;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<Tensor> rows;
      for (int row = 0; row < kRows; ++row) {
        rows.push_back(data.select(0, static_cast<int64_t>(random() % 40)));
        if (random() % 2 == 0) rows.back() = rows.back().flip(0);
      }
      const Tensor x = torch::stack(rows);
      trainer.optimizer.zero_grad();
      const Tensor loss = (trainer.model->forward(x) - x.sum(1, true)).square().mean();
      loss.backward();
      trainer.optimizer.step();
      losses.push_back(loss.item<float>());
      after_step(step);
    }
    return losses;
  };
  const std::vector<float> expected = train([](int) {});
  ::testing::internal::CaptureStderr();
  const lazuli::DeviceMode mode(options().step_aside(false));
  std::optional<StatsDelta> late;
  const std::vector<float> losses = train([&](int step) {
    if (step == kWarmUp - 1) late.emplace();
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::HasSubstr("begin in ever other ways and end alike"));
  for (int step = 0; step < kSteps; ++step) EXPECT_NEAR(losses[step], expected[step], exact() ? 0 : 1e-4) << step;
  constexpr int kLate = kSteps - kWarmUp;
  EXPECT_GE(late->cuts("ending"), kLate - 2);  // One may flip nothing.
  EXPECT_GE(late->of(&Stats::cache_hits), 2 * kLate - 4);
  EXPECT_LE(late->of(&Stats::programs_compiled), 2);  // A count of flips that did not come before.
  EXPECT_EQ(late->cuts("block"), 0);
}

LAZULI_FOR_EACH_BACKEND(LoopsTest);

}  // namespace
}  // namespace lazuli::testing
