// Sizes that a program for all sizes runs with again and again get a program of their own.

#include <gmock/gmock.h>

#include "guards/hot_sizes.h"
#include "tests/support/log_file.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

using torch::Tensor;

class HotSizesTest : public BackendTest {
 protected:
  static constexpr int kAfter = 4;

  Options options() const { return BackendTest::options().specialize_after(kAfter); }

  // Runs `program` eagerly and once in the mode.
  void ExpectSameInMode(const std::function<Tensors()>& program, const std::string& what) const {
    const Tensors expected = program();
    Tensors actual;
    {
      const lazuli::DeviceMode mode(options());
      actual = program();
    }
    ExpectSame(expected, actual, exact(), what);
  }
  void ExpectStep(int64_t n) const {
    const Tensor x = torch::arange(3 * n, torch::kFloat).reshape({3, n}).cos();
    ExpectSameInMode([&]() -> Tensors { return {torch::softmax(x * 2, 1) + x.mean(0)}; }, "size " + std::to_string(n));
  }
  void ExpectSteps(int64_t n, int times) const {
    for (int i = 0; i < times; ++i) ExpectStep(n);
  }
};

TEST_P(HotSizesTest, SizesThatComeAgainAndAgainAreCompiledForThemselves) {
  ExpectStep(40);
  ExpectStep(50);
  const StatsDelta general;
  ExpectSteps(60, kAfter);
  EXPECT_EQ(general.of(&Stats::programs_compiled), 0);
  EXPECT_EQ(general.of(&Stats::predicted_hits), kAfter - 1);  // All but the first, after which nothing had come yet.
  const StatsDelta hot;
  ExpectStep(60);
  EXPECT_EQ(hot.of(&Stats::programs_compiled), 1);
  EXPECT_EQ(hot.of(&Stats::specialized_programs), 1);
  EXPECT_EQ(hot.of(&Stats::dynamic_programs), 0);
  EXPECT_EQ(hot.of(&Stats::recompiles), 0);
  const StatsDelta own;
  ExpectSteps(60, 5);
  EXPECT_EQ(own.of(&Stats::programs_compiled), 0);
  EXPECT_EQ(own.of(&Stats::cache_hits), 5);
  EXPECT_EQ(own.of(&Stats::predicted_hits), 3);  // All but the one that turned to it, and the first after that.
  EXPECT_EQ(own.of(&Stats::eager_replays), 0);
}

// The program of its own is for its sizes alone.
TEST_P(HotSizesTest, OtherSizesStillHaveTheProgramForAll) {
  ExpectStep(40);
  ExpectSteps(60, kAfter + 3);
  const StatsDelta others;
  for (const int64_t n : {61, 60, 2, 60, 700, 60, 60}) ExpectStep(n);
  EXPECT_EQ(others.of(&Stats::programs_compiled), 0);
  EXPECT_EQ(others.of(&Stats::eager_replays), 0);
  EXPECT_EQ(others.of(&Stats::cache_misses), 0);
  ExpectSteps(61, kAfter + 2);
  EXPECT_EQ(others.of(&Stats::specialized_programs), 1);
  const StatsDelta back;
  ExpectSteps(60, kAfter + 2);
  ExpectSteps(61, kAfter + 2);
  EXPECT_EQ(back.of(&Stats::programs_compiled), 0);
}

TEST_P(HotSizesTest, TurnsOfSizesAreNotHot) {
  ExpectStep(40);
  ExpectStep(50);
  const StatsDelta turns;
  for (int i = 0; i < 3 * kAfter; ++i) ExpectStep(60 + i % 2);
  EXPECT_EQ(turns.of(&Stats::programs_compiled), 0);
  EXPECT_EQ(turns.of(&Stats::predicted_hits), 3 * kAfter - 1);
}

TEST_P(HotSizesTest, TheirNumberIsBounded) {
  ExpectStep(40);
  for (int64_t n = 50; n < 50 + 2 * static_cast<int64_t>(guards::HotSizes::kMost); ++n) ExpectSteps(n, kAfter + 2);
  EXPECT_EQ(lazuli::stats().specialized_programs, static_cast<int64_t>(guards::HotSizes::kMost));
  EXPECT_EQ(lazuli::stats().recompile_limit_hits, 0);
  EXPECT_EQ(lazuli::stats().eager_replays, 0);
}

TEST_P(HotSizesTest, NoneWhereNoneAreAskedFor) {
  const auto step = [](Tensor x) { return x.exp().sum().item<float>(); };
  const auto programs = [&](const Options& options, bool mark) {
    lazuli::reset();
    const lazuli::DeviceMode mode(options);
    for (int i = 0; i < 3 * kAfter; ++i) {
      const Tensor x = torch::zeros({i < 2 ? 5 + i : 9});
      if (mark) lazuli::mark_dynamic(x, 0);
      EXPECT_EQ(step(x), static_cast<float>(x.numel()));
    }
    return lazuli::stats().specialized_programs;
  };
  EXPECT_GE(programs(options(), false), 1);
  EXPECT_EQ(programs(options(), true), 0);
  EXPECT_EQ(programs(options().specialize_after(0), false), 0);
  EXPECT_EQ(programs(options().dynamic("1"), false), 0);
  EXPECT_EQ(programs(options().dynamic("0"), false), 0);
}

TEST_P(HotSizesTest, NoneWhereNothingMayBeCompiled) {
  ExpectStep(40);
  ExpectStep(50);
  const StatsDelta delta;
  {
    const lazuli::StanceGuard stance("fail_on_recompile");
    ExpectSteps(60, kAfter + 4);
  }
  EXPECT_EQ(delta.of(&Stats::programs_compiled), 0);
  EXPECT_EQ(delta.of(&Stats::eager_replays), 0);
  ExpectStep(60);  // It came often enough meanwhile.
  EXPECT_EQ(delta.of(&Stats::specialized_programs), 1);
}

TEST_P(HotSizesTest, RunMeanwhileFromTheProgramForAll) {
  const auto step = [](int64_t n) { return (torch::ones({n}) * 2).sum().item<float>(); };
  const lazuli::DeviceMode mode(options().async(true));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(step(10 + i), 20 + 2 * i);
    lazuli::wait_for_compiles();
  }
  const StatsDelta delta;
  for (int i = 0; i < 3 * kAfter; ++i) EXPECT_EQ(step(30), 60);
  lazuli::wait_for_compiles();
  for (int i = 0; i < kAfter; ++i) EXPECT_EQ(step(30), 60);
  EXPECT_GE(delta.of(&Stats::specialized_programs), 1);
  EXPECT_EQ(delta.of(&Stats::eager_replays), 0);
  EXPECT_EQ(delta.of(&Stats::cache_misses), 0);
}

// A trace of which less can be seen is run by the program that makes more, which must not be taken for a program of those sizes.
TEST_P(HotSizesTest, WhatIsVisibleMayChange) {
  const auto step = [](int64_t n, bool keep) -> Tensors {
    const Tensor x = torch::full({n, 3}, 0.5F);
    Tensors kept = {x.exp(), (x * 3).sum(0)};
    if (!keep) kept.pop_back();
    return kept;
  };
  for (int i = 0; i < 6 * kAfter; ++i) {
    const int64_t n = i < 2 ? 4 + i : 7;
    const bool keep = i < 2 * kAfter || i % 2 == 0;
    ExpectSameInMode([&] { return step(n, keep); }, "run " + std::to_string(i));
  }
  EXPECT_GE(lazuli::stats().specialized_programs, 1);
}

// Where a window begins may be any number, whatever the sizes are.
TEST_P(HotSizesTest, WindowsMoveWithinHotSizes) {
  const auto step = [](const Tensor& x, int64_t at) -> Tensors {
    const Tensor y = x.exp();
    return {y.select(0, at) * 2 + y.select(0, (at * 5 + 1) % 6).sin()};
  };
  for (int i = 0; i < 8 * kAfter; ++i) {
    const int64_t n = i < 2 ? 16 + 4 * i : 24;
    const Tensor x = torch::arange(6 * n, torch::kFloat).reshape({6, n}).cos();
    const int64_t at = i < 4 * kAfter ? (i * i + 1) % 6 : 2;  // Moves, and stays.
    ExpectSameInMode([&] { return step(x, at); }, "run " + std::to_string(i));
  }
  EXPECT_GE(lazuli::stats().dynamic_programs, 1);
}

// Less may be seen of what a program of its own makes, too.
TEST_P(HotSizesTest, WiderHits) {
  const auto step = [&](int64_t n, bool keep) {
    const lazuli::DeviceMode mode(options());
    const Tensor x = torch::full({n, 3}, 0.5F);
    Tensor a = x.exp(), b = (x * 3).sum(0);
    if (!keep) a.reset();
    lazuli::sync();
    EXPECT_EQ(b[0].item<float>(), 1.5F * static_cast<float>(n));
  };
  for (const int64_t n : {4, 5}) step(n, true);
  for (int i = 0; i < 3 * kAfter; ++i) step(7, true);
  const StatsDelta less;
  step(7, false);
  EXPECT_EQ(less.of(&Stats::cache_misses), 0);
  EXPECT_EQ(less.of(&Stats::programs_compiled), 0);
}

// What was expected is known to be another trace by its first operator.
TEST_P(HotSizesTest, RunsOfHotSizesArePredicted) {
  for (const int64_t n : {40, 50}) ExpectStep(n);
  for (const int64_t n : {60, 70}) ExpectSteps(n, 3 * kAfter);
  for (int round = 0; round < 3; ++round) {
    for (const int64_t n : {60, 70}) ExpectSteps(n, 6);
  }
  const StatsDelta late;
  for (const int64_t n : {60, 70}) ExpectSteps(n, 6);
  EXPECT_GE(late.of(&Stats::predicted_hits), 8);
  EXPECT_EQ(late.of(&Stats::cache_hits), 12);
}

TEST_P(HotSizesTest, TheLogSaysSo) {
  const LogFile log;
  const lazuli::DeviceMode mode(options().logs("dynamic").log_file(log.path()));
  for (int i = 0; i < 3 * kAfter; ++i) (torch::ones({i < 2 ? 5 + i : 9, 3}).exp() * 2).sum().item<float>();
  EXPECT_THAT(log.text(), ::testing::ContainsRegex("trace #[0-9]+ is compiled for its sizes alone, with which trace #[0-9]+, compiled with "
                                                   "symbols, ran again and again"));
}

LAZULI_FOR_EACH_BACKEND(HotSizesTest);

}  // namespace
}  // namespace lazuli::testing
