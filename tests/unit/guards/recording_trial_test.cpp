#include "guards/recording_trial.h"

#include <gtest/gtest.h>

namespace lazuli::guards {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

// A program whose operators take so long when they are recorded and when they run eagerly, a hundred a trace.
class TimedProgram {
 public:
  TimedProgram(int64_t recorded, int64_t eager, size_t doubtful) : recorded_(recorded), eager_(eager), doubtful_(doubtful) {}

  void Traces(int64_t count) {
    for (int64_t i = 0; i < count; ++i) Trace();
  }
  // Until a trial ends, or so many traces came: whether one did.
  bool ToVerdict(int64_t most) {
    for (int64_t i = 0; i < most; ++i) {
      if (Trace()) return true;
    }
    return false;
  }
  TimedProgram& Takes(int64_t recorded, int64_t eager, size_t doubtful) {
    recorded_ = recorded;
    eager_ = eager;
    doubtful_ = doubtful;
    return *this;
  }
  const RecordingTrial& trial() const { return trial_; }
  RecordingTrial::Clock::time_point now() const { return now_; }

 private:
  bool Trace() {
    const bool aside = trial_.StepsAside();
    now_ += nanoseconds(100 * (aside ? eager_ : recorded_));
    return trial_.Note(100, aside ? 0 : doubtful_, [this] { return now_; });
  }

  int64_t recorded_, eager_;
  size_t doubtful_;
  RecordingTrial trial_;
  RecordingTrial::Clock::time_point now_;
};

constexpr int64_t kTracesToTrial = RecordingTrial::kWindows * (RecordingTrial::kWindow / 100 + 1);
constexpr int64_t kTracesOfTrial = 2 * RecordingTrial::kSamples * ((RecordingTrial::kSettles + RecordingTrial::kStretch) / 100 + 2);

TEST(RecordingTrialTest, WhatIsSlowerRecordedStepsAside) {
  TimedProgram run(2000, 1000, 30);
  run.Traces(kTracesToTrial - 1);
  EXPECT_FALSE(run.trial().StepsAside());
  EXPECT_TRUE(run.ToVerdict(kTracesOfTrial + 1));
  EXPECT_TRUE(run.trial().StepsAside());
  EXPECT_EQ(run.trial().recorded_nanoseconds(), 2'000'000);
  EXPECT_EQ(run.trial().eager_nanoseconds(), 1'000'000);
}

TEST(RecordingTrialTest, WhatIsFasterRecordedIsRecorded) {
  TimedProgram run(990, 1000, 30);
  EXPECT_TRUE(run.ToVerdict(kTracesToTrial + kTracesOfTrial));
  EXPECT_FALSE(run.trial().StepsAside());
}

TEST(RecordingTrialTest, ProgramsHaveNoTrial) {
  TimedProgram run(2000, 1000, 12);  // Fewer than one in eight.
  EXPECT_FALSE(run.ToVerdict(10 * kTracesToTrial));
  EXPECT_FALSE(run.trial().StepsAside());
}

TEST(RecordingTrialTest, AStartIsNoTrial) {
  TimedProgram run(2000, 1000, 100);
  run.Traces(kTracesToTrial / 2);
  run.Takes(2000, 1000, 0);
  EXPECT_FALSE(run.ToVerdict(10 * kTracesToTrial));
}

TEST(RecordingTrialTest, AVerdictCountsForAWhileAndTheSameOneForLonger) {
  TimedProgram run(2000, 1000, 30);
  ASSERT_TRUE(run.ToVerdict(kTracesToTrial + kTracesOfTrial));
  for (const auto& expected : {seconds(1), seconds(2), seconds(4), seconds(8), seconds(16), seconds(16)}) {
    const auto begin = run.now();
    ASSERT_TRUE(run.ToVerdict(1'000'000));
    EXPECT_TRUE(run.trial().StepsAside());
    EXPECT_GE(run.now() - begin, expected);
    EXPECT_LE(run.now() - begin, expected + milliseconds(100));
  }
}

TEST(RecordingTrialTest, AnotherPhaseIsRecordedAgain) {
  TimedProgram run(2000, 1000, 30);
  ASSERT_TRUE(run.ToVerdict(kTracesToTrial + kTracesOfTrial));
  run.Takes(300, 1000, 0);
  ASSERT_TRUE(run.ToVerdict(1'000'000));
  EXPECT_FALSE(run.trial().StepsAside());
  // And has no other trial, while its traces have programs.
  EXPECT_FALSE(run.ToVerdict(1'000'000));
}

}  // namespace
}  // namespace lazuli::guards
