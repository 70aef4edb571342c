// One thread at a time, its owner again and again, and whoever waits comes in.
#include "tracer/reentrant_lock.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

namespace lazuli::tracer {
namespace {

TEST(ReentrantLockTest, OwnerLocksAgain) {
  ReentrantLock lock;
  lock.lock();
  EXPECT_EQ(lock.depth(), 0);
  lock.lock();
  lock.lock();
  EXPECT_EQ(lock.depth(), 2);
  lock.unlock();
  lock.unlock();
  EXPECT_EQ(lock.depth(), 0);
  bool entered = false;
  std::thread other([&] {
    const std::lock_guard<ReentrantLock> guard(lock);
    entered = true;
  });
  EXPECT_FALSE(entered);  // Written and read under the lock.
  lock.unlock();
  other.join();
  EXPECT_TRUE(entered);
}

// Sums that are no atomics come out right, and nobody waits for ever.
TEST(ReentrantLockTest, ThreadsTakeTurns) {
  constexpr int kThreads = 8, kTimes = 20000;
  ReentrantLock lock;
  int64_t sum = 0, inner = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kTimes; ++i) {
        const std::lock_guard<ReentrantLock> guard(lock);
        ++sum;
        if (i % 3 == 0) {
          const std::lock_guard<ReentrantLock> again(lock);
          ++inner;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, int64_t{kThreads} * kTimes);
  EXPECT_EQ(inner, int64_t{kThreads} * ((kTimes + 2) / 3));
  EXPECT_EQ(lock.depth(), 0);
}

}  // namespace
}  // namespace lazuli::tracer
