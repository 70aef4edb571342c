// Which steps may run ahead, in which parts where these are graphs, and what is saved for them.
#include "runtime/run_ahead.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "runtime/program_parts.h"

namespace lazuli::runtime {
namespace {

// A program for a GPU; its trace mentions inputs, numbers and offsets one after the other: with its first operator number 0 of each, ...
class Spec {
 public:
  explicit Spec(int count) {
    for (int i = 0; i < count; ++i) {
      MemorySpec memory;
      memory.kind = MemorySpec::Kind::kInput;
      memory.storage = i;
      memory.device = c10::Device(c10::kCUDA, 0);
      spec_.memories.push_back(memory);
      for (auto* list : {&spec_.known_at.storages, &spec_.known_at.scalars, &spec_.known_at.offsets}) list->push_back(i + 1);
    }
    spec_.num_offsets = count;
  }

  // A step that takes these, and writes input 0.
  Spec& Add(const std::vector<int32_t>& inputs, const std::vector<int32_t>& scalars = {}, const std::vector<int32_t>& offsets = {}) {
    KernelLaunch launch;
    for (const int32_t input : inputs) launch.buffers.push_back({input, -1, 4});
    for (const int32_t offset : offsets) launch.buffers.push_back({-1, offset, 4});
    launch.scalar_slots = scalars;
    StepSpec step;
    step.writes = {0};
    step.work = std::move(launch);
    spec_.steps.push_back(std::move(step));
    return *this;
  }
  Spec& Overwrites(int64_t bytes, int32_t at) {
    spec_.steps.back().overwrites = bytes;
    spec_.steps.back().overwrites_at = at;
    return *this;
  }
  Spec& Together(size_t first, int32_t count) {
    spec_.steps[first].batch = count;
    return *this;
  }
  ProgramSpec& get() { return spec_; }

 private:
  ProgramSpec spec_;
};

// What the first `num_ops` operators mention, and what is known beside them.
struct Known {
  std::vector<c10::StorageImpl*> storages;
  std::vector<uint8_t> scalars, offsets;
  size_t num_ops;

  Known(size_t count, size_t num_ops) : storages(count), scalars(count), offsets(count), num_ops(num_ops) {
    for (size_t i = 0; i < num_ops; ++i) Storage(i), scalars[i] = offsets[i] = 1;
  }
  Known& Storage(size_t number) {
    storages[number] = reinterpret_cast<c10::StorageImpl*>(sizeof(void*));  // Not null is all that counts.
    return *this;
  }
  Known& Scalar(size_t slot) {
    scalars[slot] = 1;
    return *this;
  }
  PartialArgs args() const { return {{storages, {}, {}, {}}, scalars, offsets, num_ops}; }
};

TEST(AheadSteps, EachNeedsWhatItTakes) {
  Spec spec(8);
  spec.Add({1, 2}).Add({0}, {4}).Add({}, {}, {6}).Add({});
  const AheadSteps ahead(spec.get());
  ASSERT_EQ(ahead.size(), 4u);
  EXPECT_EQ(ahead.NeededBy(0, 1, Known(8, 2).args()), 3u);
  EXPECT_EQ(ahead.NeededBy(0, 1, Known(8, 3).args()), 0u);
  EXPECT_EQ(ahead.NeededBy(1, 1, Known(8, 1).args()), 5u);
  EXPECT_EQ(ahead.NeededBy(2, 1, Known(8, 6).args()), 7u);
  EXPECT_EQ(ahead.NeededBy(3, 1, Known(8, 0).args()), 0u);
  EXPECT_EQ(ahead.LastAt(), 7u);
}

TEST(AheadSteps, WhatIsForetoldNeedNotBeRecorded) {
  Spec spec(8);
  spec.Add({1, 6}, {7});
  const AheadSteps ahead(spec.get());
  EXPECT_EQ(ahead.NeededBy(0, 1, Known(8, 2).args()), 8u);
  EXPECT_EQ(ahead.NeededBy(0, 1, Known(8, 2).Scalar(7).args()), 7u);
  EXPECT_EQ(ahead.NeededBy(0, 1, Known(8, 2).Scalar(7).Storage(6).args()), 0u);
}

TEST(AheadSteps, OffsetsThatAreSumsNeedWhatIsAdded) {
  Spec spec(4);
  spec.get().offset_sums = {{2, {}}, {-1, {}}};
  spec.Add({}, {}, {4}).Add({}, {}, {5});
  const AheadSteps ahead(spec.get());
  EXPECT_EQ(ahead.NeededBy(0, 1, Known(4, 2).args()), 3u);
  EXPECT_EQ(ahead.NeededBy(1, 1, Known(4, 0).args()), 0u);
}

TEST(AheadSteps, StepsThatRunTogetherWaitForAllThatTheyTake) {
  Spec spec(8);
  spec.Add({1}).Add({4}).Add({2}).Together(0, 3);
  EXPECT_EQ(AheadSteps(spec.get()).NeededBy(0, 3, Known(8, 2).args()), 5u);
}

TEST(AheadSteps, InputsAreOverwrittenOnlyWhenThatIsRecorded) {
  Spec spec(8);
  spec.Add({1}).Overwrites(kMostSavedBytes, 6);
  const AheadSteps ahead(spec.get());
  EXPECT_EQ(ahead.NeededBy(0, 1, Known(8, 5).args()), 6u);
  EXPECT_EQ(ahead.NeededBy(0, 1, Known(8, 6).args()), 0u);
}

TEST(AheadSteps, EndWhereTooMuchIsOverwritten) {
  Spec spec(2);
  spec.Add({0}).Add({0}).Overwrites(kMostSavedBytes + 1, 2).Add({0});
  EXPECT_EQ(AheadSteps(spec.get()).size(), 1u);
}

TEST(AheadSteps, ProgramsOfTheCpuHaveNone) {
  Spec spec(1);
  spec.Add({0});
  spec.get().memories[0].device = c10::kCPU;
  EXPECT_EQ(AheadSteps(spec.get()).size(), 0u);
}

TEST(SavedMemory, RestoresWhatWasThereFirst) {
  int numbers[3] = {1, 2, 3};
  SavedMemory saved;
  saved.Save({{numbers, sizeof(numbers)}}, c10::kCPU);
  numbers[1] = 7;
  char letters[5] = "abcd";
  saved.Save({{numbers, sizeof(numbers)}, {letters, 0}, {letters, sizeof(letters)}, {letters, 2}},
             c10::kCPU);  // Two of them saved already.
  numbers[2] = 8;
  letters[3] = 'x';
  saved.Restore();
  EXPECT_STREQ(letters, "abcd");
  EXPECT_EQ(numbers[1], 2);
  EXPECT_EQ(numbers[2], 3);
  numbers[0] = 5;
  saved.Restore();  // Nothing is saved any more.
  EXPECT_EQ(numbers[0], 5);
}

// By part: its number of steps.
std::vector<size_t> PartsOf(const ProgramSpec& spec, size_t num_ahead) {
  const ProgramParts parts(&spec, num_ahead);
  std::vector<size_t> counts;
  for (size_t first = 0; first < spec.steps.size(); first += counts.back()) {
    const ProgramParts::Part* const part = parts.From(first);
    if (part == nullptr || part->count == 0) return {};
    for (size_t inside = first + 1; inside < first + part->count; ++inside) EXPECT_EQ(parts.From(inside), nullptr);
    counts.push_back(part->count);
  }
  return counts;
}

TEST(ProgramPartsTest, TheFirstAreSmallAndNoneIsTiny) {
  Spec spec(1);
  for (int i = 0; i < 400; ++i) spec.Add({0});
  EXPECT_EQ(PartsOf(spec.get(), 330), (std::vector<size_t>{8, 16, 32, 42, 42, 42, 42, 42, 42, 22, 70}));
  EXPECT_EQ(PartsOf(spec.get(), 400), (std::vector<size_t>{8, 16, 32, 50, 50, 50, 50, 50, 50, 44}));
  EXPECT_EQ(PartsOf(spec.get(), 27), (std::vector<size_t>{8, 8, 11, 373}));
  EXPECT_EQ(PartsOf(spec.get(), 5), (std::vector<size_t>{5, 395}));
}

TEST(ProgramPartsTest, StepsThatRunTogetherAreInOne) {
  Spec spec(1);
  for (int i = 0; i < 30; ++i) spec.Add({0});
  spec.Together(0, 6).Together(6, 9).Together(20, 10);
  EXPECT_EQ(PartsOf(spec.get(), 30), (std::vector<size_t>{15, 15}));
}

}  // namespace
}  // namespace lazuli::runtime
