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
  trial.SetEligible();
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
    trial.SetEligible();
    bool eager_won = false;
    PlayTrial(&trial, program_ns, 1000, &eager_won);
    EXPECT_FALSE(eager_won) << program_ns;
    EXPECT_EQ(trial.Choose(), Way::kProgram) << program_ns;
  }
}

TEST(EagerTrialTest, TrialWithoutSamplesEnds) {
  EagerTrial trial;
  trial.SetEligible();
  for (int i = 0; i < 3 * EagerTrial::kWarmUp; ++i) trial.Choose();
  EXPECT_FALSE(trial.timing());
  EXPECT_EQ(trial.Choose(), Way::kProgram);
}

TEST(EagerTrialTest, ProgramRunsAgainAfterAFewMismatches) {
  EagerTrial trial;
  trial.SetEligible();
  bool eager_won = false;
  PlayTrial(&trial, 2000, 1000, &eager_won);
  trial.NoteMismatch();
  trial.NoteMismatch();
  EXPECT_EQ(trial.Choose(), Way::kEager);
  trial.NoteMismatch();
  EXPECT_EQ(trial.Choose(), Way::kProgram);
}

}  // namespace
}  // namespace lazuli::guards
