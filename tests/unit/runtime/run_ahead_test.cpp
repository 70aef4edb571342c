// Which steps may run ahead, and what is saved for them.
#include "runtime/run_ahead.h"

#include <gtest/gtest.h>

#include <array>

namespace lazuli::runtime {
namespace {

// Steps on a GPU, each with what it needs, overwrites and is together with.
ProgramSpec SpecOf(const std::vector<std::array<int64_t, 3>>& steps) {
  ProgramSpec spec;
  MemorySpec memory;
  memory.device = c10::Device(c10::kCUDA, 0);
  spec.memories = {memory};
  for (const auto& [needed, overwrites, batch] : steps) {
    StepSpec step;
    step.writes = {0};
    step.ops_needed = static_cast<int32_t>(needed);
    step.overwrites = overwrites;
    step.batch = static_cast<int32_t>(batch);
    spec.steps.push_back(std::move(step));
  }
  return spec;
}

TEST(AheadSteps, EachWaitsForItsOperatorsAndThoseOfStepsBeforeIt) {
  const AheadSteps ahead(SpecOf({{2, 0, 1}, {9, 0, 1}, {4, 0, 1}, {12, 0, 1}}));
  EXPECT_EQ(ahead.NumberFor(1), 0u);
  EXPECT_EQ(ahead.NumberFor(4), 1u);
  EXPECT_EQ(ahead.NumberFor(9), 3u);
  EXPECT_EQ(ahead.NumberFor(100), 4u);
  EXPECT_EQ(ahead.NextAt(0), 2u);
  EXPECT_EQ(ahead.NextAt(2), 9u);
  EXPECT_EQ(ahead.NextAt(4), Program::kNever);
  EXPECT_EQ(ahead.LastAt(), 12u);
}

TEST(AheadSteps, BatchesRunWhole) {
  const AheadSteps ahead(SpecOf({{2, 0, 3}, {5, 0, 1}, {7, 0, 1}, {8, 0, 1}}));
  EXPECT_EQ(ahead.NumberFor(6), 0u);
  EXPECT_EQ(ahead.NumberFor(7), 3u);
}

TEST(AheadSteps, EndWhereTooMuchIsOverwritten) {
  const AheadSteps ahead(SpecOf({{1, kMostSavedBytes, 1}, {2, kMostSavedBytes + 1, 1}, {3, 0, 1}}));
  EXPECT_EQ(ahead.NumberFor(100), 1u);
  EXPECT_EQ(ahead.NextAt(1), Program::kNever);
}

TEST(AheadSteps, ProgramsOfTheCpuHaveNone) {
  ProgramSpec spec = SpecOf({{1, 0, 1}});
  spec.memories[0].device = c10::kCPU;
  EXPECT_EQ(AheadSteps(spec).NextAt(0), Program::kNever);
}

TEST(SavedMemory, RestoresWhatWasThereFirst) {
  int numbers[3] = {1, 2, 3};
  SavedMemory saved;
  saved.Save(numbers, sizeof(numbers), c10::kCPU);
  numbers[1] = 7;
  saved.Save(numbers, sizeof(numbers), c10::kCPU);  // Saved already.
  numbers[2] = 8;
  saved.Restore();
  EXPECT_EQ(numbers[1], 2);
  EXPECT_EQ(numbers[2], 3);
  numbers[0] = 5;
  saved.Restore();  // Nothing is saved any more.
  EXPECT_EQ(numbers[0], 5);
}

}  // namespace
}  // namespace lazuli::runtime
