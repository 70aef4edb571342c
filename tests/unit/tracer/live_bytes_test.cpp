#include "tracer/live_bytes.h"

#include <gtest/gtest.h>

#include <thread>

namespace lazuli::tracer {
namespace {

TEST(LiveBytesTest, CountsWhatIsMadeAndNotLetGoOf) {
  LiveBytes live;
  const int64_t before = live.Count();
  AddLiveBytes(100);
  EXPECT_EQ(live.Count(), before + 100);
  AddLiveBytes(-60);
  EXPECT_EQ(live.Count(), before + 40);
}

TEST(LiveBytesTest, AnotherThreadLetsGoOfIt) {
  LiveBytes live;
  const int64_t before = live.Count();
  AddLiveBytes(100);
  std::thread([&] {
    EXPECT_EQ(live.Count(), before + 100);
    AddLiveBytes(-70);
    EXPECT_EQ(live.Count(), before + 30);
  }).join();
  EXPECT_EQ(live.Count(), before + 30);
}

TEST(LiveBytesTest, WhatAThreadDidBeforeDoesNotCount) {
  LiveBytes live;
  const int64_t before = live.Count();
  std::thread([&] {
    AddLiveBytes(1000);
    EXPECT_EQ(live.Count(), before);
  }).join();
}

TEST(LiveBytesTest, ThreadsOfOtherRecordersDoNotCount) {
  LiveBytes live;
  const int64_t before = live.Count();
  std::thread([] {
    LiveBytes other;
    other.Count();
    AddLiveBytes(1000);
  }).join();
  EXPECT_EQ(live.Count(), before);
}

// More threads than are followed: their numbers stay in the count.
TEST(LiveBytesTest, ManyThreads) {
  LiveBytes live;
  const int64_t before = live.Count();
  for (int64_t i = 1; i <= 100; ++i) {
    std::thread([&] {
      live.Count();
      AddLiveBytes(8);
    }).join();
    ASSERT_EQ(live.Count(), before + 8 * i);
  }
}

}  // namespace
}  // namespace lazuli::tracer
