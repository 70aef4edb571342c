#include "guards/eager_trial.h"

#include <gtest/gtest.h>

namespace lazuli::guards {
namespace {

using Way = EagerTrial::Way;

// Plays occurrences until the trial is over, with the given times. Returns how many ran eagerly meanwhile.
int PlayTrial(EagerTrial* trial, const EagerTrial::Sample& program, const EagerTrial::Sample& eager_run, bool* eager_won) {
  int eager = 0;
  *eager_won = false;
  for (int i = 0; i < EagerTrial::kWarmUp; ++i) EXPECT_EQ(trial->Choose(), Way::kProgram);
  EXPECT_TRUE(trial->timing());
  for (int i = 0; i < 1000 && trial->timing(); ++i) {
    const Way way = trial->Choose();
    eager += way == Way::kEager ? 1 : 0;
    *eager_won |= trial->AddSample(way, way == Way::kEager ? eager_run : program);
  }
  EXPECT_FALSE(trial->timing());
  return eager;
}

// The same with occurrences of which nobody knows when they ended.
int PlayTrial(EagerTrial* trial, int64_t program_ns, int64_t eager_ns, bool* eager_won) {
  return PlayTrial(trial, {EagerTrial::Sample::kUnknown, program_ns}, {EagerTrial::Sample::kUnknown, eager_ns}, eager_won);
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

TEST(EagerTrialTest, ProgramThatIsClearlyFasterIsNotComparedForLong) {
  for (const int64_t program_ns : {700, 800}) {
    EagerTrial trial;
    trial.SetEligible(/*num_ops=*/4);
    bool eager_won = false;
    const int eager = PlayTrial(&trial, program_ns, 1000, &eager_won);
    EXPECT_FALSE(eager_won) << program_ns;
    EXPECT_EQ(eager < EagerTrial::kBlock, program_ns == 700) << eager;
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

// What runs between traces is not theirs, however long it takes.
TEST(EagerTrialTest, ComparesWhatOccurrencesTakeThemselves) {
  EagerTrial trial;
  trial.SetEligible(/*num_ops=*/1);
  bool eager_won = false;
  PlayTrial(&trial, {1500, 2 * EagerTrial::kMaxNanosecondsPerOp}, {1000, 2 * EagerTrial::kMaxNanosecondsPerOp}, &eager_won);
  EXPECT_TRUE(eager_won);
  EXPECT_EQ(trial.program_nanoseconds(), 1500);
  EXPECT_EQ(trial.eager_nanoseconds(), 1000);
}

TEST(EagerTrialTest, ComparesTimesToTheNextTraceWhereAnEndIsUnknown) {
  EagerTrial trial;
  trial.SetEligible(/*num_ops=*/4);
  bool eager_won = false;
  PlayTrial(&trial, {1500, 3000}, {EagerTrial::Sample::kUnknown, 2990}, &eager_won);
  EXPECT_FALSE(eager_won);
  EXPECT_EQ(trial.program_nanoseconds(), 3000);
  EXPECT_EQ(trial.eager_nanoseconds(), 2990);
}

TEST(EagerTrialTest, KnowsWhatEndsOccurrences) {
  EagerTrial trial;
  EXPECT_FALSE(trial.EndsAt("aten::nonzero"));
  trial.NoteEnd("aten::nonzero");
  EXPECT_TRUE(trial.EndsAt("aten::nonzero"));
  EXPECT_FALSE(trial.EndsAt("aten::item"));
}

}  // namespace
}  // namespace lazuli::guards
