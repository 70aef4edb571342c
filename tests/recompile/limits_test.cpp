// The recompile limits and the bound on cached programs.

#include "guards/program_cache.h"
#include "tests/support/log_file.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

class LimitsTest : public BackendTest {
 protected:
  // Sizes are specialised, so that each is a program of its own.
  lazuli::Options options() const { return BackendTest::options().dynamic("0"); }
  // One trace whose only difference between calls is the size. Cut by item(), so that every call but the first starts at one site.
  static float Step(int64_t size) { return (torch::ones({size}) * 2 + 1).sum(0).item<float>(); }
};

TEST_P(LimitsTest, NinthShapeOfASiteRunsEagerlyAndSaysSoOnce) {
  const LogFile log;
  const lazuli::DeviceMode mode(options().log_file(log.path()));
  Step(1000);  // After the start of the mode: a site of its own.
  const StatsDelta delta;
  for (int64_t size = 2; size < 10; ++size) EXPECT_EQ(Step(size), 3 * size);
  EXPECT_EQ(delta.of(&Stats::programs_compiled), 8);
  EXPECT_EQ(delta.of(&Stats::recompile_limit_hits), 0);
  EXPECT_EQ(log.text(), "");
  for (int64_t size = 10; size < 14; ++size) EXPECT_EQ(Step(size), 3 * size);
  EXPECT_EQ(delta.of(&Stats::programs_compiled), 8);
  EXPECT_EQ(delta.of(&Stats::recompile_limit_hits), 4);
  EXPECT_EQ(delta.of(&Stats::eager_replays), 4);
  EXPECT_EQ(log.text(),
            "[lazuli] hit recompile_limit (8) at site 1: running eagerly from here; 8 programs stay in use. To log all recompilation "
            "reasons, use "
            "LAZULI_LOGS=\"recompiles\"\n");
  // The programs that the site has are still used.
  const StatsDelta known;
  for (int64_t size = 2; size < 10; ++size) EXPECT_EQ(Step(size), 3 * size);
  EXPECT_EQ(known.of(&Stats::cache_hits), 8);
  EXPECT_EQ(known.of(&Stats::eager_replays), 0);
  // And other sites compile as before.
  const StatsDelta other;
  EXPECT_EQ((torch::zeros({3}) - 1).neg().sum(0).item<float>(), 3);
  EXPECT_EQ(other.of(&Stats::programs_compiled), 1);
}

TEST_P(LimitsTest, LimitFromOptions) {
  const LogFile log;
  const lazuli::DeviceMode mode(options().recompile_limit(2).log_file(log.path()));
  Step(1000);
  for (int64_t size = 2; size < 6; ++size) EXPECT_EQ(Step(size), 3 * size);
  EXPECT_EQ(lazuli::stats().recompile_limit_hits, 2);
  EXPECT_EQ(CountOf(log.text(), "hit recompile_limit (2) at site 1: running eagerly from here; 2 programs stay in use."), 1);
}

// What a site's programs save pays for more of them.
TEST_P(LimitsTest, SitesWhoseProgramsRunOftenMayHaveMore) {
  const lazuli::DeviceMode mode(options().recompile_limit(2).step_aside(false));
  Step(1000);
  const StatsDelta delta;
  for (int64_t size = 2; size < 5; ++size) EXPECT_EQ(Step(size), 3 * size);
  EXPECT_EQ(delta.of(&Stats::programs_compiled), 2);
  const auto run = [](int64_t times) {
    for (int64_t i = 0; i < times; ++i) EXPECT_EQ(Step(3), 9);
  };
  run(guards::Site::kRunsForOneMore / 2);
  EXPECT_EQ(Step(4), 12);
  EXPECT_EQ(delta.of(&Stats::programs_compiled), 2);
  EXPECT_EQ(delta.of(&Stats::recompile_limit_hits), 2);
  run(guards::Site::kRunsForOneMore / 2);
  EXPECT_EQ(Step(4), 12);
  EXPECT_EQ(delta.of(&Stats::programs_compiled), 3);
  EXPECT_EQ(Step(5), 15);
  EXPECT_EQ(delta.of(&Stats::programs_compiled), 3);
  EXPECT_EQ(delta.of(&Stats::recompile_limit_hits), 3);
}

TEST_P(LimitsTest, AccumulatedLimitCountsAllSites) {
  const LogFile log;
  const lazuli::DeviceMode mode(options().accumulated_recompile_limit(3).log_file(log.path()));
  Step(1000);
  const auto other = [](int64_t size) { return (torch::zeros({size}) - 1).neg().sum(0).item<float>(); };
  for (int64_t size = 2; size < 6; ++size) {
    EXPECT_EQ(Step(size), 3 * size);
    EXPECT_EQ(other(size), size);
  }
  EXPECT_EQ(lazuli::stats().recompiles, 3);
  EXPECT_EQ(lazuli::stats().recompile_limit_hits, 3);
  EXPECT_GE(CountOf(log.text(), "hit accumulated_recompile_limit (3) at site "), 1);
  // A new site still gets its first program.
  const StatsDelta delta;
  EXPECT_EQ(torch::full({3}, 2.0).exp().log().sum(0).item<float>(), 6);
  EXPECT_EQ(delta.of(&Stats::programs_compiled), 1);
}

TEST_P(LimitsTest, CacheIsBoundedAndDropsTheLeastRecentlyUsed) {
  const lazuli::DeviceMode mode(options().cache_size(3));
  Step(1000);
  for (int64_t size = 2; size < 6; ++size) {
    EXPECT_EQ(Step(size), 3 * size);
    EXPECT_LE(guards::ProgramCache::Get().size(), 3U);
  }
  EXPECT_EQ(guards::ProgramCache::Get().size(), 3U);  // 3, 4 and 5.
  const StatsDelta kept;
  EXPECT_EQ(Step(3), 9);
  EXPECT_EQ(kept.of(&Stats::programs_compiled), 0);
  EXPECT_EQ(Step(2), 6);  // Comes in for 5: 4 is what is predicted to follow 3.
  EXPECT_EQ(kept.of(&Stats::programs_compiled), 1);
  EXPECT_EQ(Step(3), 9);
  EXPECT_EQ(Step(4), 12);
  EXPECT_EQ(kept.of(&Stats::programs_compiled), 1);
  EXPECT_EQ(Step(5), 15);
  EXPECT_EQ(kept.of(&Stats::programs_compiled), 2);
  EXPECT_EQ(guards::ProgramCache::Get().size(), 3U);
}

TEST_P(LimitsTest, EvictedProgramsDoNotCountTowardsTheLimit) {
  const lazuli::DeviceMode mode(options().cache_size(2).recompile_limit(4));
  Step(1000);
  for (int64_t size = 2; size < 12; ++size) EXPECT_EQ(Step(size), 3 * size);
  EXPECT_EQ(lazuli::stats().recompile_limit_hits, 0);
}

LAZULI_FOR_EACH_BACKEND(LimitsTest);

}  // namespace
}  // namespace lazuli::testing
