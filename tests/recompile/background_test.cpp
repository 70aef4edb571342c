// Compiling in the background: results meanwhile, the swap, and what the counters say.

#include <torch/torch.h>

#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/same_as_eager.h"
#include "tests/support/train.h"

namespace lazuli::testing {
namespace {

class BackgroundTest : public BackendTest {
 protected:
  // Nobody waits for programs: WaitingLoopTest is about those who do.
  Options options() const { return BackendTest::options().async(true).compile_wait_ms(0); }
};

float Step() { return (torch::ones({40, 3}) * 2).exp().sum().item<float>(); }

TEST_P(BackgroundTest, ReplaysUntilTheProgramIsReady) {
  const float expected = Step();
  const lazuli::DeviceMode mode(options());
  EXPECT_NEAR(Step(), expected, 1e-3);
  lazuli::wait_for_compiles();
  EXPECT_EQ(lazuli::stats().programs_compiled, 0);  // Seen once.
  EXPECT_EQ(lazuli::stats().background_replays, 1);
  Step();  // At a site of its own, after an item().
  lazuli::wait_for_compiles();
  EXPECT_EQ(lazuli::stats().programs_compiled, 1);
  const StatsDelta ready;
  EXPECT_NEAR(Step(), expected, 1e-3);
  EXPECT_EQ(ready.of(&Stats::cache_hits), 1);
  EXPECT_EQ(ready.of(&Stats::eager_replays), 0);
}

TEST_P(BackgroundTest, OtherSizesAreASecondSight) {
  const auto step = [](int64_t n) { return (torch::ones({n}) * 2).sum().item<float>(); };
  const lazuli::DeviceMode mode(options());
  EXPECT_EQ(step(10), 20);
  EXPECT_EQ(step(11), 22);
  lazuli::wait_for_compiles();
  EXPECT_EQ(lazuli::stats().programs_compiled, 1);
  EXPECT_EQ(lazuli::stats().dynamic_programs, 1);
  const StatsDelta ready;
  for (const int64_t n : {10, 11, 12, 500}) EXPECT_EQ(step(n), 2 * n);
  EXPECT_EQ(ready.of(&Stats::programs_compiled), 0);
  EXPECT_EQ(ready.of(&Stats::eager_replays), 0);
}

TEST_P(BackgroundTest, TrainingGivesTheSameLosses) {
  const Recipe recipe{PlainMlp, OptimizerNamed("adamw")};
  const Training eager = Train(recipe, std::nullopt, false);
  const Training lazy = Train(recipe, options(), false);
  for (size_t i = 0; i < eager.losses.size(); ++i) EXPECT_NEAR(lazy.losses[i], eager.losses[i], exact() ? 0 : 1e-4) << i;
  lazuli::wait_for_compiles();
  EXPECT_GT(lazuli::stats().programs_compiled, 0);
  EXPECT_EQ(lazuli::stats().recompile_limit_hits, 0);
}

TEST_P(BackgroundTest, ErrorsMeanwhileAreEagers) {
  const lazuli::DeviceMode mode(options());
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW((torch::ones({4}) * 2).index_select(0, torch::tensor({9})).sum().item<float>(), c10::Error);
  }
  lazuli::wait_for_compiles();
  EXPECT_NEAR(Step(), Step(), 1e-3);  // One of them may be the first of the program.
}

TEST_P(BackgroundTest, AForkedChildGoesOn) {
#ifdef LAZULI_SANITIZE_THREAD
  GTEST_SKIP() << "its children start no threads";
#endif
  const lazuli::DeviceMode mode(options());
  for (int i = 0; i < 3; ++i) Step();
  (torch::ones({10}) * 3).sum().item<float>();
  (torch::ones({10}) * 3).sum().item<float>();  // May be compiling now.
  const pid_t child = fork();
  if (child == 0) {
    bool right = true;
    for (int i = 0; i < 3; ++i) right = right && (torch::ones({10}) * 3).sum().item<float>() == 30;
    for (int i = 0; i < 3; ++i) right = right && (torch::ones({12}) * 4).sum().item<float>() == 48;
    lazuli::wait_for_compiles();
    right = right && (torch::ones({12}) * 4).sum().item<float>() == 48;
    _exit(right && lazuli::stats().programs_compiled > 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ((torch::ones({10}) * 3).sum().item<float>(), 30);
}

LAZULI_FOR_EACH_BACKEND(BackgroundTest);

}  // namespace
}  // namespace lazuli::testing
