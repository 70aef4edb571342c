// Results that a collector of garbage lets go of by chance: others are visible after each trace.

#include <cstdint>
#include <vector>

#include "tests/support/log_file.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

constexpr int kLimit = 3;

class VisibleResultsTest : public BackendTest {
 protected:
  static constexpr int kResults = 7;

  // A trace of kResults results, of which those in the bits of `kept` are held until it is cut.
  static float Round(uint32_t kept) {
    std::vector<at::Tensor> held;
    at::Tensor x = torch::ones({50});
    for (int i = 0; i < kResults; ++i) {
      x = x * 2 + i;
      if (kept >> i & 1) held.push_back(x);
    }
    const float sum = x.sum(0).item<float>();
    const lazuli::EagerScope eager;
    for (size_t i = 0, r = 0; r < kResults; ++r) {
      if (kept >> r & 1) EXPECT_TRUE(held[i++].allclose(Result(static_cast<int>(r)))) << r;
    }
    return sum;
  }
  // The values of result `i`, computed eagerly.
  static at::Tensor Result(int i) {
    const lazuli::EagerScope eager;
    at::Tensor x = torch::ones({50});
    for (int k = 0; k <= i; ++k) x = x * 2 + k;
    return x;
  }
  static float Sum() { return Result(kResults - 1).sum(0).item<float>(); }
};

TEST_P(VisibleResultsTest, OneProgramMakesAllThatWereEverVisible) {
  const float sum = Sum();
  const lazuli::DeviceMode mode(options().recompile_limit(kLimit).step_aside(false));
  torch::ones({3}).sum().item<float>();  // After the start of the mode: a site of its own.
  StatsDelta delta;
  for (const uint32_t kept : {0b000001u, 0b000010u, 0b000100u}) EXPECT_EQ(Round(kept), sum);
  const int64_t exact = delta.of(&Stats::programs_compiled);
  EXPECT_EQ(exact, kLimit);
  // One more than the limit: a program for all four.
  EXPECT_EQ(Round(0b001000), sum);
  EXPECT_EQ(delta.of(&Stats::programs_compiled), exact + 1);
  const StatsDelta since;
  for (int round = 0; round < 3; ++round) {
    for (uint32_t kept = 0; kept < 16; ++kept) EXPECT_EQ(Round(kept), sum) << kept;
  }
  EXPECT_EQ(since.of(&Stats::programs_compiled), 0);
  EXPECT_EQ(since.of(&Stats::cache_misses), 0);
  EXPECT_EQ(since.of(&Stats::eager_replays), 0);
  EXPECT_EQ(since.of(&Stats::recompile_limit_hits), 0);
  // What nobody saw before is in the next program, which is made when two such came.
  EXPECT_EQ(Round(0b010000), sum);
  EXPECT_EQ(since.of(&Stats::eager_replays), 1);
  EXPECT_EQ(since.of(&Stats::programs_compiled), 0);
  EXPECT_EQ(Round(0b100000), sum);
  EXPECT_EQ(since.of(&Stats::programs_compiled), 1);
  for (const uint32_t kept : {0b010101u, 0b110000u}) EXPECT_EQ(Round(kept), sum);
  EXPECT_EQ(since.of(&Stats::programs_compiled), 1);
  EXPECT_EQ(since.of(&Stats::eager_replays), 1);
}

// The widest program is what is expected next, and serves from the recorder's own expectation.
TEST_P(VisibleResultsTest, WhatIsExpectedServesWhatShowsLess) {
  const float sum = Sum();
  const lazuli::DeviceMode mode(options().recompile_limit(kLimit).step_aside(false));
  for (uint32_t kept = 0; kept < 20; ++kept) EXPECT_EQ(Round(kept * 5 % 32), sum);
  const StatsDelta delta;
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) EXPECT_EQ(Round(static_cast<uint32_t>(round * 7 % 32)), sum);
  EXPECT_EQ(delta.of(&Stats::programs_compiled), 0);
  EXPECT_EQ(delta.of(&Stats::cache_hits), kRounds);
  EXPECT_GE(delta.of(&Stats::predicted_hits), kRounds / 2);
}

// One that shows less, and has a program of its own, comes back to it.
TEST_P(VisibleResultsTest, WhatShowsLessGoesBackToItsOwnProgram) {
  const lazuli::DeviceMode mode(options().recompile_limit(kLimit).step_aside(false));
  torch::ones({3}).sum().item<float>();
  for (int i = 0; i < 3; ++i) Round(0);
  for (const uint32_t kept : {1u, 2u, 4u, 8u, 16u, 15u, 31u}) Round(kept);
  const int64_t launches_of_own = [&] {
    const StatsDelta delta;
    for (int i = 0; i < 40; ++i) Round(0);
    return delta.of(&Stats::cache_hits) - delta.of(&Stats::predicted_hits);
  }();
  EXPECT_GE(launches_of_own, 1) << "it was looked for";
  const StatsDelta late;
  for (int i = 0; i < 40; ++i) Round(0);
  EXPECT_EQ(late.of(&Stats::predicted_hits), 40) << "and found, so that it is what is expected";
}

// What may not be compiled runs op by op.
TEST_P(VisibleResultsTest, LimitsHold) {
  const float sum = Sum();
  const lazuli::DeviceMode mode(options().recompile_limit(2).accumulated_recompile_limit(1).step_aside(false));
  for (uint32_t kept = 0; kept < 12; ++kept) EXPECT_EQ(Round(kept), sum);
  EXPECT_LE(lazuli::stats().recompiles, 1);
  EXPECT_GT(lazuli::stats().recompile_limit_hits, 0);
}

LAZULI_FOR_EACH_BACKEND(VisibleResultsTest);

}  // namespace
}  // namespace lazuli::testing
