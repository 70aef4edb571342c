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
    entry_->body = std::make_shared<guards::CompiledProgram>(/*serial=*/0);
    entry_->body->program = std::make_unique<EndsAtTwenty>();
    entry_->body->compiled = true;
    entry_->body->state.store(guards::CompiledProgram::State::kReady);
  }
  // A trace that is predicted to be `entry_`, takes so long to record and ends as said, after which so long nothing is recorded. Where it
  // should have ended.
  size_t Record(std::chrono::microseconds time, std::chrono::microseconds wait, bool waits = true, bool on_gpu = true) {
    const size_t end = cutter_.OnBegin(entry_.get());
    std::this_thread::sleep_for(time);
    cutter_.OnCut(entry_, /*early=*/false, waits, on_gpu);
    std::this_thread::sleep_for(wait);
    return end;
  }
  static constexpr std::chrono::microseconds kLong{600}, kShort{0};
  OverlapCutter cutter_;
  const guards::CachedTracePtr entry_ = std::make_shared<guards::CachedTrace>();
};

TEST_F(OverlapCutterTest, WhatIsWaitedForEndsEarlyAfterThreeRounds) {
  for (int round = 0; round < 3; ++round) EXPECT_EQ(Record(kLong, kLong), 0u);
  EXPECT_EQ(cutter_.OnBegin(entry_.get()), 20u);
}

TEST_F(OverlapCutterTest, OneShortWaitStartsTheCountAgain) {
  Record(kLong, kLong), Record(kLong, kLong), Record(kLong, kShort), Record(kLong, kLong), Record(kLong, kLong);
  EXPECT_EQ(cutter_.OnBegin(entry_.get()), 0u);
}

TEST_F(OverlapCutterTest, WhatIsQuickToRecordStaysWhole) {
  for (int round = 0; round < 6; ++round) Record(kShort, kLong);
  EXPECT_EQ(cutter_.OnBegin(entry_.get()), 0u);
}

TEST_F(OverlapCutterTest, NobodyWaitsOrNothingIsOnAGpu) {
  for (int round = 0; round < 6; ++round) Record(kLong, kLong, /*waits=*/false), Record(kLong, kLong, true, /*on_gpu=*/false);
  EXPECT_EQ(cutter_.OnBegin(entry_.get()), 0u);
}

TEST_F(OverlapCutterTest, ThreeEarlyEndsInARowAreEnough) {
  const auto part = std::make_shared<guards::CachedTrace>();
  for (int round = 0; round < 4; ++round) {
    for (int cut = 0; cut < 3; ++cut) cutter_.OnCut(part, /*early=*/true, false, true);
    EXPECT_EQ(Record(kLong, kLong), 0u);
  }
  EXPECT_EQ(cutter_.OnBegin(entry_.get()), 0u);
}

}  // namespace
}  // namespace lazuli::tracer
