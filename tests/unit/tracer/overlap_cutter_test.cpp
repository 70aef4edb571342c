// When traces end early.
#include "tracer/overlap_cutter.h"

#include <gtest/gtest.h>

#include <thread>

namespace lazuli::tracer {
namespace {

class EndsAtTwenty : public runtime::Program {
 public:
  runtime::RunResult Run(const runtime::RunArgs& /*args*/) override { return {}; }
  int num_kernels() const override { return 0; }
  int num_aten_calls() const override { return 0; }
  bool bit_exact() const override { return true; }
  int32_t early_end() const override { return 20; }
};

class OverlapCutterTest : public ::testing::Test {
 protected:
  OverlapCutterTest() {
    entry_.body = std::make_shared<guards::CompiledProgram>(/*serial=*/0);
    entry_.body->program = std::make_unique<EndsAtTwenty>();
    entry_.body->compiled = true;
    entry_.body->state.store(guards::CompiledProgram::State::kReady);
  }
  // A trace that is predicted to be `entry_`, takes so long to record and ends as said. Where it should have ended.
  size_t Record(std::chrono::microseconds time, bool waits = true, bool on_gpu = true) {
    const size_t end = cutter_.OnBegin(&entry_);
    std::this_thread::sleep_for(time);
    cutter_.OnCut(&entry_, /*early=*/false, waits, on_gpu);
    return end;
  }
  static constexpr std::chrono::microseconds kLong{600}, kShort{0};
  OverlapCutter cutter_;
  guards::CachedTrace entry_;
};

TEST_F(OverlapCutterTest, WhatTakesLongEndsEarlyAfterThreeRounds) {
  for (int round = 0; round < 3; ++round) EXPECT_EQ(Record(kLong), 0u);
  EXPECT_EQ(cutter_.OnBegin(&entry_), 20u);
}

TEST_F(OverlapCutterTest, OneShortRoundStartsTheCountAgain) {
  Record(kLong), Record(kLong), Record(kShort), Record(kLong), Record(kLong);
  EXPECT_EQ(cutter_.OnBegin(&entry_), 0u);
}

TEST_F(OverlapCutterTest, NobodyWaitsOrNothingIsOnAGpu) {
  for (int round = 0; round < 6; ++round) Record(kLong, /*waits=*/false), Record(kLong, true, /*on_gpu=*/false);
  EXPECT_EQ(cutter_.OnBegin(&entry_), 0u);
}

TEST_F(OverlapCutterTest, ThreeEarlyEndsInARowAreEnough) {
  guards::CachedTrace part;
  for (int cut = 0; cut < 3; ++cut) cutter_.OnCut(&part, /*early=*/true, false, true);
  for (int round = 0; round < 3; ++round) {
    for (int cut = 0; cut < 3 && round > 0; ++cut) cutter_.OnCut(&part, /*early=*/true, false, true);
    EXPECT_EQ(Record(kLong), 0u);
  }
  EXPECT_EQ(cutter_.OnBegin(&entry_), 0u);
}

}  // namespace
}  // namespace lazuli::tracer
