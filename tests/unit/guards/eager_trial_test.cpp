#include "guards/eager_trial.h"

#include <gtest/gtest.h>

namespace lazuli::guards {
namespace {

using Way = EagerTrial::Way;

// Plays occurrences until the trial is over, with the given times. Returns how many ran eagerly meanwhile.
int PlayTrial(EagerTrial* trial, int64_t program_ns, int64_t eager_ns, bool* eager_won) {
  int eager = 0;
  *eager_won = false;
  for (int i = 0; i < EagerTrial::kWarmUp; ++i) EXPECT_EQ(trial->Choose(), Way::kProgram);
  EXPECT_TRUE(trial->timing());
  for (int i = 0; i < 1000 && trial->timing(); ++i) {
    const Way way = trial->Choose();
    eager += way == Way::kEager ? 1 : 0;
    *eager_won |= trial->AddSample(way, way == Way::kEager ? eager_ns : program_ns);
  }
  EXPECT_FALSE(trial->timing());
  return eager;
}

TEST(EagerTrialTest, NotEligibleRunsItsProgramForGood) {
  EagerTrial trial;
  for (int i = 0; i < 2 * EagerTrial::kWarmUp; ++i) ASSERT_EQ(trial.Choose(), Way::kProgram);
  EXPECT_FALSE(trial.timing());
}

TEST(EagerTrialTest, SlowerProgramLoses) {
  EagerTrial trial;
  trial.SetEligible(/*num_ops=*/4);
  bool eager_won = false;
  const int eager = PlayTrial(&trial, 1100, 1000, &eager_won);
  EXPECT_GT(eager, EagerTrial::kSamples);
  EXPECT_LT(eager, 2 * EagerTrial::kSamples);
  EXPECT_TRUE(eager_won);
  EXPECT_EQ(trial.Choose(), Way::kEager);
  EXPECT_EQ(trial.program_nanoseconds(), 1100);
  EXPECT_EQ(trial.eager_nanoseconds(), 1000);
}

TEST(EagerTrialTest, EqualOrFasterProgramStays) {
  for (const int64_t program_ns : {500, 1000, 1010}) {
    EagerTrial trial;
    trial.SetEligible(/*num_ops=*/4);
    bool eager_won = false;
    PlayTrial(&trial, program_ns, 1000, &eager_won);
    EXPECT_FALSE(eager_won) << program_ns;
    EXPECT_EQ(trial.Choose(), Way::kProgram) << program_ns;
  }
}

TEST(EagerTrialTest, TrialWithoutSamplesEnds) {
  EagerTrial trial;
  trial.SetEligible(/*num_ops=*/4);
  for (int i = 0; i < EagerTrial::kWarmUp + 17 * EagerTrial::kSamples; ++i) trial.Choose();
  EXPECT_FALSE(trial.timing());
  EXPECT_EQ(trial.Choose(), Way::kProgram);
}

TEST(EagerTrialTest, ProgramRunsAgainAfterAFewMismatches) {
  EagerTrial trial;
  trial.SetEligible(/*num_ops=*/4);
  bool eager_won = false;
  PlayTrial(&trial, 2000, 1000, &eager_won);
  trial.NoteMismatch();
  trial.NoteMismatch();
  EXPECT_EQ(trial.Choose(), Way::kEager);
  trial.NoteMismatch();
  EXPECT_EQ(trial.Choose(), Way::kProgram);
}

TEST(EagerTrialTest, MismatchesAreForgottenOverManyMatches) {
  EagerTrial trial;
  trial.SetEligible(/*num_ops=*/4);
  bool eager_won = false;
  PlayTrial(&trial, 2000, 1000, &eager_won);
  for (int round = 0; round < 8; ++round) {
    trial.NoteMismatch();
    for (int i = 0; i < 10; ++i) trial.NoteMatch();
  }
  EXPECT_TRUE(trial.runs_eagerly());
  for (int i = 0; i < 3; ++i) trial.NoteMismatch();
  EXPECT_FALSE(trial.runs_eagerly());
}

// What takes long for each operator is not lost in calls: nothing runs eagerly to find that out.
TEST(EagerTrialTest, LongOperatorsAreNotTriedEagerly) {
  EagerTrial trial;
  trial.SetEligible(/*num_ops=*/4);
  bool eager_won = false;
  EXPECT_EQ(PlayTrial(&trial, 4 * EagerTrial::kMaxNanosecondsPerOp + 1, 1000, &eager_won), 0);
  EXPECT_FALSE(eager_won);
  EXPECT_EQ(trial.Choose(), Way::kProgram);
}

}  // namespace
}  // namespace lazuli::guards
