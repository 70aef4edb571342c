// When traces end early.
#include "tracer/overlap_cutter.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>

namespace lazuli::tracer {
namespace {

// Good places after each twelfth of the work but the seventh.
class LayeredProgram : public runtime::Program {
 public:
  runtime::RunResult Run(const runtime::RunArgs& /*args*/) override { return {}; }
  int num_kernels() const override { return 0; }
  int num_aten_calls() const override { return 0; }
  bool bit_exact() const override { return true; }
  runtime::EarlyEnds early_ends() const override { return {10, 20, 30, 40, 50, 60, 0, 80, 90, 100, 110}; }
};

class OverlapCutterTest : public ::testing::Test {
 protected:
  OverlapCutterTest() {
    entry_->body = std::make_shared<guards::CompiledProgram>(/*serial=*/0);
    entry_->body->program = std::make_unique<LayeredProgram>();
    entry_->body->compiled = true;
    entry_->log.ops.resize(120);
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
  // Long enough for as many parts as there may be.
  static constexpr std::chrono::microseconds kLong{1600}, kShort{0};
  OverlapCutter cutter_;
  const guards::CachedTracePtr entry_ = std::make_shared<guards::CachedTrace>();
};

TEST_F(OverlapCutterTest, WhatIsWaitedForIsCutIntoPartsAfterThreeRounds) {
  for (int round = 0; round < 3; ++round) EXPECT_EQ(Record(kLong, kLong), 0u);
  // Seven parts, the first and the last of them small; but in the middle no place is good.
  const guards::CachedTrace* predicted = entry_.get();
  for (const size_t end : {10u, 20u, 20u, 40u, 20u}) {
    EXPECT_EQ(cutter_.OnBegin(std::exchange(predicted, nullptr)), end);
    cutter_.OnCut(nullptr, /*early=*/true, false, true);
  }
  EXPECT_EQ(cutter_.OnBegin(nullptr), 0u);
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

TEST_F(OverlapCutterTest, FewOperatorsAreFewParts) {
  entry_->log.ops.resize(40);
  for (int round = 0; round < 3; ++round) Record(kLong, kLong);
  EXPECT_EQ(cutter_.OnBegin(entry_.get()), 50u);  // Two.
  cutter_.OnCut(nullptr, /*early=*/false, false, true);
  entry_->log.ops.resize(50);
  entry_->slow_rounds = 0;
  for (int round = 0; round < 3; ++round) Record(kLong, kLong);
  EXPECT_EQ(cutter_.OnBegin(entry_.get()), 30u);  // Three.
}

// Where layers are alike, so are parts, and what follows one of them is predicted wrong.
TEST_F(OverlapCutterTest, TheFirstPartKnowsAllOthers) {
  for (int round = 0; round < 3; ++round) Record(kLong, kLong);
  const auto first = std::make_shared<guards::CachedTrace>(), layer = std::make_shared<guards::CachedTrace>();
  const guards::CachedTrace* predicted = entry_.get();
  for (int round = 0; round < 4; ++round) {
    EXPECT_EQ(cutter_.OnBegin(predicted), 10u);
    cutter_.OnCut(first, /*early=*/true, false, true);
    for (const size_t end : {20u, 20u, 40u, 20u}) {
      EXPECT_EQ(cutter_.OnBegin(layer.get()), end);
      cutter_.OnCut(layer, /*early=*/true, false, true);
    }
    // The last part is not cut, however slow it is.
    EXPECT_EQ(cutter_.OnBegin(layer.get()), 0u);
    std::this_thread::sleep_for(kLong);
    cutter_.OnCut(entry_, /*early=*/false, true, true);
    std::this_thread::sleep_for(kLong);
    predicted = first.get();
  }
}

TEST_F(OverlapCutterTest, AnotherTraceThanTheOneThatIsCutGoesOn) {
  for (int round = 0; round < 3; ++round) Record(kLong, kLong);
  EXPECT_EQ(cutter_.OnBegin(entry_.get()), 10u);
  EXPECT_TRUE(cutter_.EndsHere(/*as_predicted=*/true));
  EXPECT_FALSE(cutter_.EndsHere(/*as_predicted=*/false));
  cutter_.OnCut(nullptr, /*early=*/true, false, true);
  // The parts that follow have not been seen yet.
  EXPECT_EQ(cutter_.OnBegin(nullptr), 20u);
  EXPECT_TRUE(cutter_.EndsHere(/*as_predicted=*/false));
}

}  // namespace
}  // namespace lazuli::tracer
