#include "guards/novelty.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lazuli::guards {
namespace {

class NoveltyTest : public ::testing::Test {
 protected:
  void BecomeEverNew() {
    for (int64_t i = 1; i <= Novelty::kMany; ++i) {
      EXPECT_FALSE(StepsAside());
      EXPECT_EQ(novelty_.Note(/*is_new=*/true), i == Novelty::kMany);
    }
    EXPECT_TRUE(novelty_.ever_new());
  }
  bool StepsAside(Novelty::Clock::duration later = {}) { return novelty_.StepsAside(now_ += later); }

  Novelty novelty_;
  Novelty::Clock::time_point now_ = Novelty::Clock::now();
};

TEST_F(NoveltyTest, StepsAsideAfterManyNewTraces) {
  BecomeEverNew();
  EXPECT_TRUE(StepsAside());
}

TEST_F(NoveltyTest, OneThatCameBeforeEndsIt) {
  BecomeEverNew();
  EXPECT_FALSE(novelty_.Note(/*is_new=*/false));
  EXPECT_FALSE(novelty_.ever_new());
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(StepsAside());
    novelty_.Note(/*is_new=*/i % 100 != 0);
  }
}

TEST_F(NoveltyTest, LooksAtTwoTracesHoweverOftenItIsAsked) {
  BecomeEverNew();
  while (StepsAside()) {
  }
  for (int trace = 0; trace < Novelty::kTracesOfLook; ++trace) {
    for (int i = 0; i < 5; ++i) EXPECT_FALSE(StepsAside());
    novelty_.Note(/*is_new=*/true);
  }
  EXPECT_TRUE(StepsAside());
}

TEST_F(NoveltyTest, LooksAgainLessAndLessOften) {
  BecomeEverNew();
  int64_t looks = 0, longest = 0, since = 0;
  for (int64_t i = 0; i < 20000; ++i) {
    ++since;
    if (StepsAside()) continue;
    if (looks == 0) EXPECT_LE(since, Novelty::kFewest);
    ++looks;
    longest = std::max(longest, since);
    since = 0;
    for (int trace = 0; trace < Novelty::kTracesOfLook; ++trace) novelty_.Note(/*is_new=*/true);
  }
  EXPECT_GE(looks, 20000 / Novelty::kRarely);
  EXPECT_LT(looks, 250);
  EXPECT_EQ(longest, Novelty::kRarely);
}

TEST_F(NoveltyTest, LooksSoonWhereTracesTakeLong) {
  BecomeEverNew();
  for (int64_t i = 0; i < 20000; ++i) {
    if (StepsAside()) continue;
    for (int trace = 0; trace < Novelty::kTracesOfLook; ++trace) novelty_.Note(/*is_new=*/true);
  }
  EXPECT_FALSE(StepsAside(Novelty::kLongest));
}

}  // namespace
}  // namespace lazuli::guards
