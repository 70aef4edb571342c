// A hot trace whose program is slower than eager runs eagerly, says so, and records again when the program goes elsewhere.
#include "tests/support/step_aside.h"
#include "tests/support/log_file.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

class StepAsideTest : public BackendTest {
 protected:
  // Nothing to win: memory that is filled and read costs less than recording that.
  static float Tiny(int64_t i) {
    const torch::Tensor x = torch::full({4}, static_cast<double>(i));
    return x.data_ptr<float>()[3];
  }
  static void ExpectTiny(int64_t i) { ASSERT_EQ(Tiny(i), static_cast<float>(i)); }
};

TEST_P(StepAsideTest, SlowerTraceRunsEagerlyAndSaysSo) {
  const LogFile log;
  const lazuli::DeviceMode mode(options().logs("perf_hints").log_file(log.path()));
  const torch::NoGradGuard no_grad;
  RunUntilAside(&ExpectTiny);
  EXPECT_EQ(CountOf(log.text(), "eagerly: its operators run eagerly from here"), 1);
  // From here on nothing is recorded.
  const StatsDelta aside;
  for (int64_t i = 0; i < 100; ++i) ExpectTiny(i);
  EXPECT_EQ(aside.of(&Stats::ops_recorded), 0);
  EXPECT_EQ(aside.of(&Stats::traces), 0);
  // Something else is recorded and compiled as ever.
  const StatsDelta other;
  const torch::Tensor x = torch::arange(8.0);
  EXPECT_EQ((x * 2 + 1).sum().item<float>(), 64);
  EXPECT_GT(aside.of(&Stats::ops_stepped_aside), 0);
  EXPECT_GT(other.of(&Stats::ops_recorded), 0);
  EXPECT_EQ(other.of(&Stats::programs_compiled), 1);
}

TEST_P(StepAsideTest, AnotherProgramBehindTheSameOperators) {
  const lazuli::DeviceMode mode(options());
  const torch::NoGradGuard no_grad;
  RunUntilAside(&ExpectTiny);
  // Starts like the trace that runs eagerly, and goes on otherwise: right at once, and compiled after a few times.
  for (int64_t i = 0; i < 8; ++i) {
    const torch::Tensor x = torch::full({4}, static_cast<double>(i));
    EXPECT_EQ((x * x + 1).sum().item<float>(), static_cast<float>(4 * (i * i + 1)));
  }
  const StatsDelta delta;
  const torch::Tensor x = torch::full({4}, 3.0);
  EXPECT_EQ((x * x + 1).sum().item<float>(), 40);
  EXPECT_EQ(delta.of(&Stats::ops_stepped_aside), 0);
  EXPECT_EQ(delta.of(&Stats::cache_hits), 1);
}

// They are no part of the trace. (What is computed of the number takes as long in either way; a sum would not.)
TEST_P(StepAsideTest, NumbersAreComputedBetweenItsOperators) {
  const lazuli::DeviceMode mode(options());
  const torch::NoGradGuard no_grad;
  torch::Tensor sign = torch::tensor(1.0F);
  lazuli::sync();
  const auto tiny = [&](int64_t i) {
    ASSERT_EQ(Tiny(i), static_cast<float>(i));
    sign = sign.neg();
  };
  RunUntilAside(tiny);
  const float before = sign.item<float>();
  lazuli::sync();
  const StatsDelta aside;
  for (int64_t i = 0; i < 101; ++i) tiny(i);
  EXPECT_EQ(aside.of(&Stats::ops_recorded), 0);
  EXPECT_EQ(aside.of(&Stats::traces), 0);
  EXPECT_EQ(sign.item<float>(), -before);
}

// More operators than say where a trace is, then a number that the program reads.
float Chain(int64_t size) {
  torch::Tensor x = torch::ones({size});
  for (int i = 0; i < 10; ++i) x = x * 1.25 - 0.5;
  return x.sum().item<float>();
}
float ChainOf(int64_t size) {
  float x = 1;
  for (int i = 0; i < 10; ++i) x = x * 1.25F - 0.5F;
  return x * static_cast<float>(size);
}

TEST_P(StepAsideTest, TracesPastTheLimitAreNotRecorded) {
  const LogFile log;
  const lazuli::DeviceMode mode(options().dynamic("0").recompile_limit(4).logs("perf_hints").log_file(log.path()));
  const torch::NoGradGuard no_grad;
  constexpr int64_t kSizes = 12;
  for (int round = 0; round < 12; ++round) {
    for (int64_t size = 2; size < 2 + kSizes; ++size) EXPECT_FLOAT_EQ(Chain(size), ChainOf(size));
  }
  EXPECT_LE(lazuli::stats().programs_compiled, 4 + 1);
  EXPECT_GE(CountOf(log.text(), "their operators run eagerly, but for one trace in 16 to 256"), 1);
  const StatsDelta late;
  for (int64_t size = 2; size < 2 + kSizes; ++size) EXPECT_FLOAT_EQ(Chain(size), ChainOf(size));
  EXPECT_GT(late.of(&Stats::ops_stepped_aside), 6 * 12);
  EXPECT_LT(late.of(&Stats::ops_recorded), (kSizes - 2) * 22);
  // The programs that there are run.
  EXPECT_GE(late.of(&Stats::traces) - late.of(&Stats::eager_replays), 3);
  // What comes next is recorded again, from its first operator.
  const StatsDelta other;
  const auto y = torch::arange(6, torch::kFloat);
  EXPECT_EQ((y * 2 - 1).sum().item<float>(), 24);
  EXPECT_EQ(other.of(&Stats::ops_stepped_aside), 0);
  EXPECT_GE(other.of(&Stats::ops_recorded), 3);
}

TEST_P(StepAsideTest, OptionKeepsTracesPastTheLimitRecorded) {
  const lazuli::DeviceMode mode(options().dynamic("0").recompile_limit(2).step_aside(false));
  const torch::NoGradGuard no_grad;
  for (int round = 0; round < 12; ++round) {
    for (int64_t size = 2; size < 8; ++size) EXPECT_FLOAT_EQ(Chain(size), ChainOf(size));
  }
  EXPECT_EQ(lazuli::stats().ops_stepped_aside, 0);
}

TEST_P(StepAsideTest, OptionTurnsItOff) {
  const lazuli::DeviceMode mode(options().step_aside(false));
  const torch::NoGradGuard no_grad;
  for (int64_t i = 0; i < kLongTrial; ++i) ExpectTiny(i);
  EXPECT_EQ(lazuli::stats().programs_stepped_aside, 0);
  EXPECT_EQ(lazuli::stats().ops_stepped_aside, 0);
  EXPECT_GE(lazuli::stats().cache_hits, kLongTrial - 2);
}

// What is computed must not depend on a clock: sums and functions round in another order than eager's.
TEST_P(StepAsideTest, OnlyProgramsThatAreBitEqualToEager) {
  const lazuli::DeviceMode mode(options());
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = torch::rand({8});
  const float first = x.exp().sum().item<float>();
  for (int64_t i = 0; i < kLongTrial; ++i) ASSERT_EQ(x.exp().sum().item<float>(), first);
  if (GetParam() == "aten") return;  // Its programs are eager's own operators.
  EXPECT_EQ(lazuli::stats().ops_stepped_aside, 0);
}

// Compiled in the background, a program takes over when it is ready: that depends on a clock anyway.
TEST_P(StepAsideTest, AnyProgramThatIsCompiledInTheBackground) {
  const lazuli::DeviceMode mode(options().async(true));
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = torch::rand({8});
  const float expected = x.exp().sum().item<float>();
  for (int i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(x.exp().sum().item<float>(), expected);
  lazuli::wait_for_compiles();
  // Whichever way it runs, both were tried.
  for (int64_t i = 0; i < kLongTrial; ++i) ASSERT_FLOAT_EQ(x.exp().sum().item<float>(), expected);
  EXPECT_GT(lazuli::stats().ops_stepped_aside, 0);
  EXPECT_GT(lazuli::stats().cache_hits, guards::EagerTrial::kWarmUp);
}

// Where two traces follow the same place, the one is followed that begins as what comes does.
TEST_P(StepAsideTest, AnotherTraceFollowsThanTheLastTime) {
  const lazuli::DeviceMode mode(options());
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = torch::arange(8.0);
  const auto other = [&] { return (x * 2 + 1).sum().item<float>(); };
  RunUntilAside(&ExpectTiny);
  for (int round = 0; round < 8; ++round) {
    EXPECT_EQ(other(), 64);
    for (int64_t i = 0; i < 3; ++i) ExpectTiny(i);
  }
  const StatsDelta delta;
  for (int round = 0; round < 8; ++round) {
    EXPECT_EQ(other(), 64);
    for (int64_t i = 0; i < 3; ++i) ExpectTiny(i);
  }
  EXPECT_EQ(delta.of(&Stats::traces), 8);
  EXPECT_EQ(delta.of(&Stats::predicted_hits), 8);
  EXPECT_GE(delta.of(&Stats::ops_stepped_aside), 8 * 2);
}

// What comes most often is what is expected, and tried, though something else comes in between.
TEST_P(StepAsideTest, TracesThatTakeTurnsAreTried) {
  const lazuli::DeviceMode mode(options());
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = torch::arange(8.0);
  RunUntilAside([&](int64_t) {
    for (int64_t i = 0; i < 3; ++i) ExpectTiny(i);
    ASSERT_EQ((x * 2 + 1).sum().item<float>(), 64);
  });
  const StatsDelta late;
  for (int64_t i = 0; i < 3; ++i) ExpectTiny(i);
  EXPECT_GT(late.of(&Stats::ops_stepped_aside), 0);
}

LAZULI_FOR_EACH_BACKEND(StepAsideTest);

}  // namespace
}  // namespace lazuli::testing
