// Programs of which each trace is a new one run eagerly, and what comes back in them is found.
#include "guards/novelty.h"

#include <cstdint>
#include <vector>

#include "tests/support/log_file.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

// The `number`th of 5^8 expressions, each of other operators.
torch::Tensor Expression(const torch::Tensor& x, int64_t number) {
  torch::Tensor y = x;
  for (int i = 0; i < 8; ++i, number /= 5) {
    switch (number % 5) {
      case 0:
        y = y * 1.5;
        break;
      case 1:
        y = y + 0.25;
        break;
      case 2:
        y = -y;
        break;
      case 3:
        y = y.abs();
        break;
      default:
        y = y.relu();
    }
  }
  return y.sum();
}
constexpr int64_t kOpsOfExpression = 9;

class NoveltyTest : public BackendTest {
 protected:
  NoveltyTest() {
    for (int64_t i = 0; i < kMany + kLate; ++i) eager_.push_back(Expression(x_, i * kPrime).item<float>());
  }
  Options background() const { return options().async(true); }

  // Expressions [begin, end).
  void RunExpressions(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ASSERT_EQ(Expression(x_, i * kPrime).item<float>(), eager_[static_cast<size_t>(i)]) << i;
  }
  // Until they run eagerly.
  void BecomeEverNew() { ASSERT_NO_FATAL_FAILURE(RunExpressions(0, kMany)); }

  // `round` comes again and again after many expressions, and has a program in the end.
  template <class Round>
  void ExpectFound(const Round& round) {
    constexpr int kRounds = 200000;  // A second or two.
    const lazuli::DeviceMode mode(background());
    ASSERT_NO_FATAL_FAILURE(BecomeEverNew());
    const StatsDelta delta;
    for (int i = 0; i < kRounds && delta.of(&Stats::programs_compiled) == 0; ++i) round();
    EXPECT_GE(delta.of(&Stats::programs_compiled), 1);
    lazuli::wait_for_compiles();
    const StatsDelta late;
    for (int i = 0; i < 20; ++i) round();
    EXPECT_GE(late.of(&Stats::cache_hits), 19);
    EXPECT_EQ(late.of(&Stats::ops_stepped_aside), 0);
  }

  static constexpr int64_t kMany = 2 * guards::Novelty::kMany, kLate = 100, kPrime = 7919;
  const torch::NoGradGuard no_grad_;
  const torch::Tensor x_ = torch::arange(-4.0, 4.0);
  std::vector<float> eager_;
};

TEST_P(NoveltyTest, RunsEagerlyAndSaysSo) {
  const LogFile log;
  const lazuli::DeviceMode mode(background().logs("perf_hints").log_file(log.path()));
  ASSERT_NO_FATAL_FAILURE(BecomeEverNew());
  EXPECT_EQ(CountOf(log.text(), "256 traces in a row were new ones"), 1);
  const StatsDelta aside;
  ASSERT_NO_FATAL_FAILURE(RunExpressions(kMany, kMany + kLate));
  EXPECT_GT(aside.of(&Stats::ops_stepped_aside), kOpsOfExpression * kLate / 2);
  EXPECT_GE(aside.of(&Stats::ops_recorded), kOpsOfExpression) << "now and then one is looked at";
  EXPECT_LT(aside.of(&Stats::ops_recorded), kOpsOfExpression * kLate / 2);
}

TEST_P(NoveltyTest, WhatIsReadAndComesAgainIsFound) {
  ExpectFound([&] { EXPECT_EQ((x_ * 2 + 1).sum().item<float>(), 0); });
}

// Nothing is pending when they are read.
TEST_P(NoveltyTest, WhatIsReadThroughPointersIsFound) {
  ExpectFound([&] { EXPECT_EQ((x_ * 2 + 1).data_ptr<float>()[0], -7); });
}

TEST_P(NoveltyTest, WhatEndsWithASyncIsFound) {
  ExpectFound([&] {
    const torch::Tensor y = x_ * 2 + 1;
    lazuli::sync();
  });
}

TEST_P(NoveltyTest, AModeInEachRoundIsFound) {
  ExpectFound([&] {
    const lazuli::DeviceMode mode(background());
    EXPECT_EQ((x_ * 2 + 1).sum().item<float>(), 0);
  });
}

TEST_P(NoveltyTest, OtherOptionsHoldAtOnce) {
  const lazuli::DeviceMode mode(background());
  ASSERT_NO_FATAL_FAILURE(BecomeEverNew());
  for (const Options& other : {options(), background().step_aside(false)}) {
    const StatsDelta delta;
    const lazuli::DeviceMode inner(other);
    EXPECT_EQ((x_ * 2 + 1).data_ptr<float>()[0], -7);
    EXPECT_EQ(delta.of(&Stats::ops_recorded), 2);
  }
}

TEST_P(NoveltyTest, NotWhereCompilesAreWaitedForOrTheOptionIsOff) {
  for (const Options& other : {options(), background().step_aside(false)}) {
    lazuli::reset();
    const lazuli::DeviceMode mode(other);
    ASSERT_NO_FATAL_FAILURE(RunExpressions(0, kMany));
    EXPECT_EQ(lazuli::stats().ops_stepped_aside, 0);
  }
}

LAZULI_FOR_EACH_BACKEND(NoveltyTest);

}  // namespace
}  // namespace lazuli::testing
