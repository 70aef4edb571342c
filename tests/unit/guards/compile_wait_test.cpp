#include "guards/compile_wait.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "guards/skeleton.h"
#include "runtime/compile_pool.h"
#include "runtime/counters.h"
#include "runtime/options.h"

namespace lazuli::guards {
namespace {

using std::chrono::milliseconds;
using State = CompiledProgram::State;

class CompileWaitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WaitBudget::Get().Reset();
    Allow(60000);
  }
  void TearDown() override {
    may_end_ = true;
    runtime::CompilePool::Get().Wait();
    Allow(0);
  }

  static void Allow(int64_t ms) { ASSERT_TRUE(runtime::ActivateOptions(Options().compile_wait_ms(ms)).ok()); }
  static int64_t Waits() { return runtime::Counters::Get().compile_waits.value(); }

  // A program that is being compiled until LetEnd(), and is `end` then.
  std::shared_ptr<CompiledProgram> Compiling(State end = State::kReady) {
    auto body = std::make_shared<CompiledProgram>(0);
    body->state = State::kCompiling;
    const auto job = [this, body, end] {
      while (!may_end_) std::this_thread::yield();
      body->state.store(end, std::memory_order_release);
    };
    runtime::CompilePool::Get().Submit(std::shared_ptr<const runtime::CompileDemand>(body, &body->demand), job, /*threads=*/1);
    return body;
  }
  void LetEnd() { may_end_ = true; }

 private:
  std::atomic<bool> may_end_{false};
};

TEST_F(CompileWaitTest, WaitsUntilTheProgramIsReady) {
  const auto body = Compiling();
  const int64_t waits = Waits();
  std::thread later([this] {
    std::this_thread::sleep_for(milliseconds(5));
    LetEnd();
  });
  EXPECT_TRUE(AwaitProgram(body.get()));
  EXPECT_TRUE(body->ready());
  EXPECT_EQ(Waits(), waits + 1);
  later.join();
}

TEST_F(CompileWaitTest, AFailureEndsTheWait) {
  const auto body = Compiling(State::kFailed);
  LetEnd();
  AwaitProgram(body.get());
  EXPECT_TRUE(body->failed());
}

TEST_F(CompileWaitTest, NobodyWaitsForWhatIsNotBeingCompiled) {
  const int64_t waits = Waits();
  for (const State state : {State::kSeen, State::kReady, State::kFailed}) {
    CompiledProgram body(0);
    body.state = state;
    EXPECT_FALSE(AwaitProgram(&body));
  }
  EXPECT_EQ(Waits(), waits);
}

TEST_F(CompileWaitTest, NobodyWaitsWithoutABudget) {
  Allow(0);
  const auto body = Compiling();
  EXPECT_FALSE(AwaitProgram(body.get()));
  EXPECT_FALSE(body->ready());
}

TEST_F(CompileWaitTest, TheBudgetIsUsedUp) {
  Allow(200);
  const auto body = Compiling();
  const auto begin = WaitBudget::Clock::now();
  EXPECT_TRUE(AwaitProgram(body.get()));
  EXPECT_GE(WaitBudget::Clock::now() - begin, milliseconds(200));
  EXPECT_FALSE(body->ready());             // It goes on in the background.
  EXPECT_FALSE(AwaitProgram(body.get()));  // A wait for what has come back since would be short.
}

TEST(WaitBudgetTest, FillsUpSlowly) {
  WaitBudget budget;
  const milliseconds most(800);
  WaitBudget::Clock::time_point now{};
  EXPECT_EQ(budget.Left(most, now), most);
  budget.Spend(milliseconds(300));
  EXPECT_EQ(budget.Left(most, now), milliseconds(500));
  now += WaitBudget::kRefill * milliseconds(100);
  EXPECT_EQ(budget.Left(most, now), milliseconds(600));
  EXPECT_EQ(budget.Left(most, now), milliseconds(600));
  budget.Spend(milliseconds(900));  // The last wait may take a little more.
  EXPECT_EQ(budget.Left(most, now).count(), 0);
  now += WaitBudget::kRefill * milliseconds(100);
  EXPECT_EQ(budget.Left(most, now).count(), 0);
  now += WaitBudget::kRefill * milliseconds(500);
  EXPECT_EQ(budget.Left(most, now), milliseconds(300));
}

TEST(WaitBudgetTest, NeverHoldsMoreThanItHeldAtFirst) {
  WaitBudget budget;
  WaitBudget::Clock::time_point now{};
  budget.Spend(milliseconds(100));
  now += std::chrono::hours(100);
  EXPECT_EQ(budget.Left(milliseconds(800), now), milliseconds(800));
  budget.Spend(milliseconds(300));
  EXPECT_EQ(budget.Left(milliseconds(800), now), milliseconds(500));
  budget.Reset();
  EXPECT_EQ(budget.Left(milliseconds(800), now), milliseconds(800));
}

TEST_F(CompileWaitTest, WhatIsWaitedForComesFirst) {
  const auto running = Compiling();  // Keeps the only thread busy, perhaps before the others are asked for.
  const auto other = Compiling();
  other->demand.lost_nanoseconds = 1000;
  const auto awaited = Compiling();
  std::thread waiting([&] { AwaitProgram(awaited.get()); });
  while (awaited->demand.lost_nanoseconds == 0) std::this_thread::yield();
  EXPECT_GT(awaited->demand.lost_nanoseconds, other->demand.lost_nanoseconds);
  LetEnd();
  waiting.join();
  EXPECT_TRUE(awaited->ready());
}

}  // namespace
}  // namespace lazuli::guards
