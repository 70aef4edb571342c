// Stances, error_on_recompile and fail_on_recompile_limit_hit: what happens to a trace that has no program.

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "tests/support/error_of.h"
#include "tests/support/log_file.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class StanceTest : public BackendTest {
 protected:
  // A program for each size.
  lazuli::Options static_sizes() const { return options().dynamic("0"); }

  // Traces that differ in their size. Cut by item(), so that every one but the first starts at one site.
  static torch::Tensor Sum(int64_t size) { return (torch::ones({size}) * 2 + 1).sum(0); }
  static float Step(int64_t size) { return Sum(size).item<float>(); }
  // A trace of another site.
  static float Other() { return (torch::zeros({3}) - 1).neg().sum(0).item<float>(); }

  static void ExpectError(int64_t size) {
    const torch::Tensor sum = Sum(size);
    EXPECT_THAT(ErrorOf([&] { sum.item<float>(); }), HasSubstr("nothing is lost"));
    EXPECT_EQ(sum.item<float>(), 3 * size);
  }
};

TEST_P(StanceTest, ForceEagerRecordsNothing) {
  const lazuli::DeviceMode mode(options().stance("force_eager"));
  EXPECT_FALSE(lazuli::is_enabled());
  EXPECT_EQ(Step(4), 12);
  {
    const lazuli::DeviceMode inner(options().stance("force_eager"));
    EXPECT_EQ(Step(4), 12);
  }
  EXPECT_EQ(lazuli::stats().ops_recorded, 0);
  {
    const lazuli::StanceGuard guard("default");
    EXPECT_TRUE(lazuli::is_enabled());
    EXPECT_EQ(Step(4), 12);
  }
  EXPECT_FALSE(lazuli::is_enabled());
  EXPECT_EQ(lazuli::stats().programs_compiled, 1);
  const StatsDelta after;
  EXPECT_EQ(Step(4), 12);
  EXPECT_EQ(after.of(&Stats::ops_recorded), 0);
  EXPECT_EQ(after.of(&Stats::traces), 0);
}

TEST_P(StanceTest, ForceEagerSettlesWhatItNeeds) {
  const lazuli::DeviceMode mode(options());
  auto x = torch::ones({3}) + 1;
  const auto untouched = torch::ones({3}) * 4;
  {
    const lazuli::StanceGuard guard("force_eager");
    EXPECT_EQ((torch::full({3}, 2.0) * 3).sum().item<float>(), 18);
    EXPECT_EQ(lazuli::stats().traces, 0);
    x = x * 3;
    EXPECT_EQ(lazuli::stats().traces, 1);
  }
  EXPECT_EQ((x + untouched).sum().item<float>(), 30);
  EXPECT_EQ(lazuli::stats().stance_replays, 0);
}

TEST_P(StanceTest, ForceEagerMayOverwriteWhatPendingWorkReads) {
  const torch::Tensor x = torch::ones({3});
  const lazuli::DeviceMode mode(options());
  const torch::Tensor before = x * 2;
  const torch::Tensor unread = torch::ones({3}) * 4;
  {
    const lazuli::StanceGuard guard("force_eager");
    x.add_(10);
    torch::Tensor within;
    {
      const lazuli::StanceGuard inner("default");
      within = x * 2;
    }
    x.add_(10);
    EXPECT_EQ(within.sum().item<float>(), 66);
  }
  EXPECT_EQ(before.sum().item<float>(), 6);
  EXPECT_EQ(unread.sum().item<float>(), 12);
  EXPECT_EQ(lazuli::stats().cuts.at("eager_scope"), 2);
}

TEST_P(StanceTest, EagerOnRecompileUsesProgramsThatFit) {
  const lazuli::DeviceMode mode(options());
  Step(1000);
  for (const int64_t size : {4, 5}) EXPECT_EQ(Step(size), 3 * size);
  EXPECT_EQ(lazuli::stats().dynamic_programs, 1);
  const lazuli::StanceGuard guard("eager_on_recompile");
  const StatsDelta served;
  for (const int64_t size : {4, 5, 6, 17, 6}) EXPECT_EQ(Step(size), 3 * size);
  EXPECT_EQ(served.of(&Stats::cache_hits), 5);
  EXPECT_EQ(served.of(&Stats::eager_replays), 0);
}

TEST_P(StanceTest, EagerOnRecompileCompilesAndRemembersNothing) {
  const lazuli::DeviceMode mode(options());
  {
    const lazuli::StanceGuard guard("eager_on_recompile");
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Other(), 3);
    for (const int64_t size : {4, 5, 4}) EXPECT_EQ(Step(size), 3 * size);
    EXPECT_EQ(lazuli::stats().programs_compiled, 0);
    EXPECT_EQ(lazuli::stats().eager_replays, 6);
    EXPECT_EQ(lazuli::stats().stance_replays, 6);
    EXPECT_EQ(lazuli::stats().cache_hits, 0);
    EXPECT_THAT(lazuli::explain(), HasSubstr("run op by op: 6 traces"));
  }
  const StatsDelta after;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Step(4), 12);
  EXPECT_EQ(after.of(&Stats::programs_compiled), 1);
  EXPECT_EQ(after.of(&Stats::dynamic_programs), 0);  // Of the sizes before, none is remembered.
  EXPECT_EQ(after.of(&Stats::cache_hits), 1);
  EXPECT_EQ(after.of(&Stats::stance_replays), 0);
}

TEST_P(StanceTest, EagerOnRecompileIsNoFirstSightForTheBackground) {
  const lazuli::DeviceMode mode(options().async(true));
  Step(1000);
  {
    const lazuli::StanceGuard guard("eager_on_recompile");
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Other(), 3);
    EXPECT_EQ(lazuli::stats().stance_replays, 3);
  }
  const StatsDelta after;
  EXPECT_EQ(Other(), 3);
  lazuli::wait_for_compiles();
  EXPECT_EQ(after.of(&Stats::programs_compiled), 0);
  EXPECT_EQ(after.of(&Stats::background_replays), 1);
  {
    // What was seen before is not compiled under the stance, either.
    const lazuli::StanceGuard guard("eager_on_recompile");
    const StatsDelta seen;
    EXPECT_EQ(Other(), 3);
    EXPECT_EQ(seen.of(&Stats::stance_replays), 1);
    EXPECT_EQ(seen.of(&Stats::background_replays), 0);
    lazuli::wait_for_compiles();
  }
  EXPECT_EQ(after.of(&Stats::programs_compiled), 0);
  EXPECT_EQ(Other(), 3);
  lazuli::wait_for_compiles();
  EXPECT_EQ(after.of(&Stats::programs_compiled), 1);
}

TEST_P(StanceTest, FailOnRecompileRunsTheTraceAndThrows) {
  const LogFile log;
  const lazuli::DeviceMode mode(static_sizes().logs("recompiles").log_file(log.path()));
  Step(1000);
  EXPECT_EQ(Step(4), 12);
  const StatsDelta delta;
  std::string error;
  {
    const lazuli::StanceGuard guard("fail_on_recompile");
    EXPECT_EQ(Step(4), 12);
    const torch::Tensor doubled = torch::ones({7}) * 2;
    const torch::Tensor sum = (doubled + 1).sum(0);
    error = ErrorOf([&] { sum.item<float>(); });
    EXPECT_EQ(delta.of(&Stats::eager_replays), 1);
    EXPECT_EQ(delta.of(&Stats::stance_replays), 1);
    EXPECT_EQ(sum.item<float>(), 21);
    EXPECT_EQ(doubled[3].item<float>(), 2);
    EXPECT_EQ(Step(4), 12);
    EXPECT_EQ(delta.of(&Stats::programs_compiled), 0);
  }
  EXPECT_EQ(log.text(), "");
  EXPECT_EQ(Step(7), 21);
  EXPECT_EQ(delta.of(&Stats::programs_compiled), 1);
  // The guard is named as in the log.
  const std::string text = log.text();
  const size_t begin = text.find("- 1/0: ");
  ASSERT_NE(begin, std::string::npos) << text;
  EXPECT_THAT(error, HasSubstr(text.substr(begin, text.find('\n', begin) - begin)));
  EXPECT_THAT(error, HasSubstr("expected 4, actual 7"));
  EXPECT_THAT(error, HasSubstr("lazuli: the stance fail_on_recompile forbids to compile trace #"));
  EXPECT_THAT(error, HasSubstr("(site 1, 4 ops, variant 2/8)"));
  EXPECT_THAT(error, HasSubstr("nothing is lost"));
  EXPECT_THAT(error, HasSubstr("lazuli::StanceGuard(\"default\")"));
}

TEST_P(StanceTest, FailOnRecompileIsAboutFirstProgramsToo) {
  const lazuli::DeviceMode mode(options().stance("fail_on_recompile"));
  const torch::Tensor y = torch::ones({3}) * 5;
  const std::string error = ErrorOf([] { lazuli::sync(); });
  EXPECT_THAT(error, HasSubstr("the site has no program yet: after "));
  EXPECT_EQ(y.data_ptr<float>()[1], 5);
}

TEST_P(StanceTest, FailOnRecompileThrowsWhereTheBackgroundWouldCompile) {
  const lazuli::DeviceMode mode(options().async(true).stance("fail_on_recompile"));
  EXPECT_EQ(ErrorOf([] { Step(4); }), "no error");  // Only seen.
  lazuli::sync();
  const StatsDelta delta;
  ExpectError(5);  // Would be the second sight.
  ExpectError(4);
  lazuli::wait_for_compiles();
  EXPECT_EQ(delta.of(&Stats::programs_compiled), 0);
  EXPECT_EQ(delta.of(&Stats::stance_replays), 2);
  const lazuli::StanceGuard guard("default");
  EXPECT_EQ(Step(4), 12);
  lazuli::wait_for_compiles();
  EXPECT_EQ(delta.of(&Stats::programs_compiled), 1);
}

TEST_P(StanceTest, ErrorOnRecompileLetsFirstProgramsThrough) {
  const lazuli::DeviceMode mode(static_sizes().error_on_recompile(true));
  Step(1000);
  EXPECT_EQ(Step(4), 12);
  EXPECT_EQ(Other(), 3);
  EXPECT_EQ(lazuli::stats().programs_compiled, 3);
  const torch::Tensor sum = Sum(5);
  const std::string error = ErrorOf([&] { sum.item<float>(); });
  EXPECT_THAT(error, HasSubstr("error_on_recompile forbids to compile trace #"));
  EXPECT_THAT(error, HasSubstr("expected 4, actual 5"));
  EXPECT_THAT(error, HasSubstr("LAZULI_ERROR_ON_RECOMPILE=0"));
  EXPECT_EQ(sum.item<float>(), 15);
  EXPECT_EQ(lazuli::stats().recompiles, 0);
  const StatsDelta after;
  EXPECT_EQ(Step(4), 12);
  EXPECT_EQ(after.of(&Stats::cache_hits), 1);
  ExpectError(5);
  EXPECT_EQ(lazuli::stats().stance_replays, 2);
  EXPECT_EQ(lazuli::stats().programs_compiled, 3);
  // The stance that never compiles never throws, either.
  const lazuli::StanceGuard guard("eager_on_recompile");
  EXPECT_EQ(ErrorOf([] { EXPECT_EQ(Step(5), 15); }), "no error");
}

TEST_P(StanceTest, ErrorOnRecompileComesFromTheCutInBackgroundModeToo) {
  const lazuli::DeviceMode mode(static_sizes().error_on_recompile(true).async(true));
  Step(1000);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Step(4), 12);  // Seen, and requested.
  ExpectError(5);                                      // The same code with another size is a second sight.
  lazuli::wait_for_compiles();
  EXPECT_EQ(lazuli::stats().programs_compiled, 1);
  const StatsDelta after;
  EXPECT_EQ(Step(4), 12);
  EXPECT_EQ(after.of(&Stats::eager_replays), 0);
}

TEST_P(StanceTest, FailOnRecompileLimitHit) {
  const LogFile log;
  const lazuli::DeviceMode mode(static_sizes().recompile_limit(2).fail_on_recompile_limit_hit(true).log_file(log.path()));
  Step(1000);
  for (const int64_t size : {2, 3}) EXPECT_EQ(Step(size), 3 * size);
  const torch::Tensor sum = Sum(4);
  const std::string error = ErrorOf([&] { sum.item<float>(); });
  EXPECT_THAT(error, HasSubstr("lazuli: hit recompile_limit (2) with trace #"));
  EXPECT_THAT(error, HasSubstr("expected 2, actual 4"));
  EXPECT_THAT(error, HasSubstr("LAZULI_FAIL_ON_RECOMPILE_LIMIT_HIT=0"));
  EXPECT_EQ(sum.item<float>(), 12);
  EXPECT_EQ(lazuli::stats().recompile_limit_hits, 1);
  EXPECT_EQ(lazuli::stats().eager_replays, 1);
  EXPECT_EQ(lazuli::stats().stance_replays, 0);
  ExpectError(5);
  const StatsDelta after;
  for (const int64_t size : {2, 3}) EXPECT_EQ(Step(size), 3 * size);
  EXPECT_EQ(after.of(&Stats::cache_hits), 2);
}

TEST_P(StanceTest, FailOnAccumulatedLimitHit) {
  const LogFile log;
  const lazuli::DeviceMode mode(static_sizes().accumulated_recompile_limit(1).fail_on_recompile_limit_hit(true).log_file(log.path()));
  Step(1000);
  for (const int64_t size : {2, 3}) EXPECT_EQ(Step(size), 3 * size);
  EXPECT_THAT(ErrorOf([] { Step(4); }), HasSubstr("hit accumulated_recompile_limit (1) with trace #"));
  EXPECT_EQ(Other(), 3);  // A new site still gets its first program.
}

TEST_P(StanceTest, EagerThenCompileWaitsForTheSecondSight) {
  const lazuli::DeviceMode mode(options().stance("eager_then_compile"));
  Step(1000);
  EXPECT_EQ(Other(), 3);
  EXPECT_EQ(lazuli::stats().programs_compiled, 0);
  EXPECT_EQ(lazuli::stats().eager_replays, 2);
  EXPECT_EQ(lazuli::stats().stance_replays, 2);
  EXPECT_EQ(lazuli::stats().background_replays, 0);
  const StatsDelta second;
  EXPECT_EQ(Other(), 3);
  EXPECT_EQ(second.of(&Stats::programs_compiled), 1);
  EXPECT_EQ(second.of(&Stats::eager_replays), 0);
  const StatsDelta third;
  EXPECT_EQ(Other(), 3);
  EXPECT_EQ(third.of(&Stats::cache_hits), 1);
  EXPECT_EQ(third.of(&Stats::programs_compiled), 0);
  // Other sizes are a second sight: no program is made for the first ones alone.
  const StatsDelta sizes;
  for (const int64_t size : {6, 7, 8}) EXPECT_EQ(Step(size), 3 * size);
  EXPECT_EQ(sizes.of(&Stats::programs_compiled), 1);
  EXPECT_EQ(sizes.of(&Stats::dynamic_programs), 1);
}

TEST_P(StanceTest, WithEagerThenCompileTheFirstProgramServesAllSizes) {
  const lazuli::DeviceMode mode(options().stance("eager_then_compile").error_on_recompile(true));
  for (const int64_t size : {4, 5, 6, 7, 5}) EXPECT_EQ(Step(size), 3 * size);
  EXPECT_EQ(lazuli::stats().programs_compiled, 1);
  EXPECT_EQ(lazuli::stats().recompiles, 0);
  EXPECT_EQ(lazuli::stats().cache_hits, 3);
}

TEST_P(StanceTest, WhatWasSeenOnceIsCompiledUnderTheDefaultStance) {
  const lazuli::DeviceMode mode(options());
  {
    const lazuli::StanceGuard guard("eager_then_compile");
    EXPECT_EQ(Other(), 3);
    EXPECT_EQ(Other(), 3);
    EXPECT_EQ(Step(4), 12);
  }
  const StatsDelta after;
  EXPECT_EQ(Step(4), 12);
  EXPECT_EQ(after.of(&Stats::programs_compiled), 1);
  EXPECT_EQ(after.of(&Stats::eager_replays), 0);
}

TEST_P(StanceTest, GuardsNestAndRestore) {
  const lazuli::DeviceMode mode(options().stance("eager_then_compile"));
  {
    const lazuli::StanceGuard eager("force_eager");
    EXPECT_FALSE(lazuli::is_enabled());
    {
      const lazuli::StanceGuard fail("fail_on_recompile");
      EXPECT_TRUE(lazuli::is_enabled());
      ExpectError(4);
      {
        const lazuli::StanceGuard normal("default");
        EXPECT_EQ(Step(4), 12);
        EXPECT_EQ(lazuli::stats().programs_compiled, 1);
      }
      ExpectError(1);
    }
    EXPECT_FALSE(lazuli::is_enabled());
    {
      const lazuli::EagerScope scope;
      const lazuli::StanceGuard normal("default");
      EXPECT_FALSE(lazuli::is_enabled());  // The scope wins.
    }
    EXPECT_FALSE(lazuli::is_enabled());
  }
  const StatsDelta after;
  EXPECT_EQ(Other(), 3);
  EXPECT_EQ(after.of(&Stats::stance_replays), 1);
}

TEST_P(StanceTest, GuardBeforeTheModeAndWithoutOne) {
  {
    const lazuli::StanceGuard guard("fail_on_recompile");
    EXPECT_EQ(Step(4), 12);
    EXPECT_FALSE(lazuli::is_enabled());
    {
      const lazuli::DeviceMode mode(options());
      ExpectError(4);
    }
    EXPECT_EQ(Step(4), 12);
  }
  auto guard = std::make_unique<lazuli::StanceGuard>("force_eager");
  const lazuli::DeviceMode mode(options());
  EXPECT_FALSE(lazuli::is_enabled());
  guard.reset();
  EXPECT_TRUE(lazuli::is_enabled());
  EXPECT_EQ(Step(4), 12);
  EXPECT_EQ(lazuli::stats().programs_compiled, 1);
}

TEST_P(StanceTest, SetStanceLastsWithoutAScope) {
  // On a thread of its own, with which what it sets ends.
  std::thread([this] {
    const lazuli::DeviceMode mode(options());
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("lazuli::set_stance", "");
    torch::jit::Stack stack{std::string("force_eager")};
    op.callBoxed(&stack);
    EXPECT_FALSE(lazuli::is_enabled());
    {
      const lazuli::StanceGuard guard("default");
      EXPECT_TRUE(lazuli::is_enabled());
      lazuli::set_stance("eager_on_recompile");
      EXPECT_EQ(Other(), 3);
      EXPECT_EQ(lazuli::stats().stance_replays, 1);
    }
    EXPECT_FALSE(lazuli::is_enabled());
    lazuli::set_stance("default");
    EXPECT_EQ(Other(), 3);
    EXPECT_EQ(lazuli::stats().programs_compiled, 1);
  }).join();
}

TEST_P(StanceTest, AThreadsStanceIsItsOwn) {
  const lazuli::StanceGuard guard("force_eager");
  const lazuli::DeviceMode mode(options());
  std::thread([this] {
    const lazuli::DeviceMode own(options());
    EXPECT_TRUE(lazuli::is_enabled());
    lazuli::set_stance("fail_on_recompile");
    ExpectError(4);
  }).join();
  EXPECT_FALSE(lazuli::is_enabled());
  // And it ends with the thread, whose recorder another one takes over.
  std::thread([this] {
    const lazuli::DeviceMode own(options());
    EXPECT_EQ(Step(4), 12);
  }).join();
  EXPECT_EQ(lazuli::stats().programs_compiled, 1);
}

TEST_P(StanceTest, TheStanceOfWhoRecordedCounts) {
  const lazuli::DeviceMode mode(options());
  const lazuli::StanceGuard guard("fail_on_recompile");
  const torch::Tensor sum = Sum(4);
  std::thread([&sum] {
    EXPECT_THAT(ErrorOf([&] { sum.item<float>(); }), HasSubstr("fail_on_recompile forbids"));
    EXPECT_EQ(sum.item<float>(), 12);
  }).join();
  EXPECT_EQ(sum.item<float>(), 12);
}

TEST_P(StanceTest, AForkLogsWhatItCannotThrow) {
  const LogFile log;
  const lazuli::DeviceMode mode(options().stance("fail_on_recompile").log_file(log.path()));
  const torch::Tensor sum = Sum(4);
  const pid_t child = fork();
  if (child == 0) _exit(!lazuli::is_enabled() && sum.item<float>() == 12 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(sum.item<float>(), 12);
  EXPECT_EQ(CountOf(log.text(), "error in work that was pending at a fork: lazuli: the stance fail_on_recompile forbids"), 1);
}

TEST_P(StanceTest, AnOperatorsOwnErrorComesFirst) {
  const lazuli::DeviceMode mode(options());
  const lazuli::StanceGuard guard("fail_on_recompile");
  const auto look_up = [] { (torch::ones({4}) * 2).index_select(0, torch::tensor({9})).sum().item<float>(); };
  for (int i = 0; i < 2; ++i) EXPECT_THAT(ErrorOf(look_up), HasSubstr("index out of range in self"));
  ExpectError(4);
}

TEST_P(StanceTest, TheEndOfAModeLogsWhatItCannotThrow) {
  const LogFile log;
  torch::Tensor y;
  {
    const lazuli::DeviceMode mode(options().stance("fail_on_recompile").log_file(log.path()));
    y = torch::ones({3}) * 5;
  }
  EXPECT_EQ(y.sum().item<float>(), 15);
  EXPECT_THAT(log.text(), HasSubstr("error in work that was pending at the end of the mode: lazuli: the stance fail_on_recompile"));
}

TEST_P(StanceTest, ErrorInBackwardLeavesBothInOrder) {
  const lazuli::DeviceMode mode(options());
  const auto x = torch::ones({4}, torch::requires_grad());
  const auto step = [&x](bool looks) {
    x.mutable_grad() = torch::Tensor();
    auto y = x * 3;
    if (looks) y.register_hook([](const torch::Tensor& grad) { EXPECT_EQ(grad.sum().item<float>(), 8); });
    (y * 2).sum().backward();
    return x.grad().sum().item<float>();
  };
  EXPECT_EQ(step(false), 24);
  {
    const lazuli::StanceGuard guard("fail_on_recompile");
    EXPECT_THAT(ErrorOf([&] { step(true); }), HasSubstr("the stance fail_on_recompile forbids to compile"));
    EXPECT_TRUE(lazuli::is_enabled());
  }
  const StatsDelta after;
  EXPECT_EQ(step(true), 24);
  EXPECT_GT(after.of(&Stats::programs_compiled), 0);
  EXPECT_EQ(after.of(&Stats::stance_replays), 0);
}

TEST_P(StanceTest, AnExceptionThroughAGuardRestores) {
  const lazuli::DeviceMode mode(options());
  try {
    const lazuli::StanceGuard guard("force_eager");
    throw std::runtime_error("of the program");
  } catch (const std::runtime_error&) {
  }
  EXPECT_TRUE(lazuli::is_enabled());
  EXPECT_EQ(Other(), 3);
  EXPECT_EQ(lazuli::stats().programs_compiled, 1);
}

LAZULI_FOR_EACH_BACKEND(StanceTest);

}  // namespace
}  // namespace lazuli::testing
