// A process that trains for long must not grow. LAZULI_SOAK_STEPS sets how many steps; a million take a few minutes.
#include <torch/torch.h>

#include <unistd.h>

#include <fstream>
#include <iostream>

#include "tests/support/same_as_eager.h"
#include "tests/support/test_env.h"

namespace lazuli::testing {
namespace {

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// A small network under Adam, with what programs do beside training: other batch sizes, reads, views that outlive their base, writes
// through views, random numbers, operators that cut, errors at the cut, results nobody looks at.
class Trainer {
 public:
  Trainer() : net_(torch::nn::Linear(8, 16), torch::nn::Tanh(), torch::nn::Linear(16, 1)), optimizer_(net_->parameters(), 1e-3) {}

  void Step(int64_t step) {
    const int64_t batch = step % 100 == 7 ? 4 + step / 100 % 3 : 8;
    const torch::Tensor x = torch::rand({batch, 8}), y = x.sum(1, true);
    optimizer_.zero_grad();
    const torch::Tensor loss = (net_->forward(x) - y).square().mean();
    loss.backward();
    optimizer_.step();
    kept_ = x.select(0, 1).narrow(0, 2, 3);
    if (step % 10 == 0) last_loss_ = loss.item<float>();
    if (step % 50 == 3) kept_.mul_(2).nonzero();
    if (step % 200 == 11) Fail();
    if (step % 1000 == 500) lazuli::sync();
  }
  float last_loss() const { return last_loss_; }

 private:
  static void Fail() {
    const torch::Tensor found = (torch::ones({4}) * 2).index_select(0, torch::full({1}, 9, torch::kLong));
    EXPECT_THROW(lazuli::sync(), c10::Error);
  }

  torch::nn::Sequential net_;
  torch::optim::Adam optimizer_;
  torch::Tensor kept_;
  float last_loss_ = 0;
};

TEST(SoakTest, MemoryDoesNotGrow) {
  const int64_t steps = TakeFromEnv("LAZULI_SOAK_STEPS", 20000), warm_up = std::min<int64_t>(steps / 4, 20000);
  torch::manual_seed(1);
  lazuli::reset();
  const lazuli::DeviceMode mode;
  Trainer trainer;
  for (int64_t step = 0; step < warm_up; ++step) trainer.Step(step);
  lazuli::sync();
  // A cut at a new place compiles, and memory is given back after that: what the steps need of it comes back first.
  const int64_t settled = warm_up + std::min<int64_t>(warm_up, 1000);
  for (int64_t step = warm_up; step < settled; ++step) trainer.Step(step);
  const StatsDelta delta;
  const int64_t before = ResidentBytes();
  for (int64_t step = settled; step < steps; ++step) trainer.Step(step);
  lazuli::sync();
  const int64_t grown = ResidentBytes() - before;
  std::cout << steps - settled << " steps after the first " << settled << ": " << grown / 1024 << " KB more, loss " << trainer.last_loss()
            << "\n";
  EXPECT_LT(grown, 4 << 20);
  EXPECT_LT(trainer.last_loss(), 1);
  // It ran from programs, and found them. Stepping aside may still change where a trace begins.
  EXPECT_LE(delta.of(&Stats::programs_compiled), 4);
  EXPECT_EQ(delta.of(&Stats::compile_failures), 0);
  EXPECT_GT(delta.of(&Stats::cache_hits), (steps - settled) / 10);
}

}  // namespace
}  // namespace lazuli::testing
