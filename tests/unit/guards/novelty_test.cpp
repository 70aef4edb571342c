#include "guards/novelty.h"

#include <gtest/gtest.h>

namespace lazuli::guards {
namespace {

Novelty EverNew() {
  Novelty novelty;
  for (int64_t i = 0; i < Novelty::kMany; ++i) {
    EXPECT_FALSE(novelty.StepsAside());
    novelty.Note(/*new_place=*/true);
  }
  return novelty;
}

TEST(NoveltyTest, StepsAsideAfterManyNewPlaces) {
  Novelty novelty = EverNew();
  EXPECT_TRUE(novelty.ever_new());
  EXPECT_TRUE(novelty.StepsAside());
}

TEST(NoveltyTest, OneThatCameBeforeEndsIt) {
  Novelty novelty = EverNew();
  novelty.Note(/*new_place=*/false);
  EXPECT_FALSE(novelty.ever_new());
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(novelty.StepsAside());
    if (i % 100 == 0) novelty.Note(/*new_place=*/false);
    novelty.Note(/*new_place=*/true);
  }
}

TEST(NoveltyTest, LooksAgainLessAndLessOften) {
  Novelty novelty = EverNew();
  int64_t recorded = 0, longest = 0, since = 0;
  for (int64_t i = 0; i < 20000; ++i) {
    ++since;
    if (novelty.StepsAside()) continue;
    if (recorded == 0) EXPECT_LE(since, 4);
    ++recorded;
    longest = std::max(longest, since);
    since = 0;
    novelty.Note(/*new_place=*/true);
  }
  EXPECT_GT(recorded, 20000 / 64);
  EXPECT_LT(recorded, 400);
  EXPECT_EQ(longest, 64);
}

}  // namespace
}  // namespace lazuli::guards
