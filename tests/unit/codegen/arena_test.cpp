// Which memory is in the arena, which is allocated by the steps that need it, and for how long.
#include "codegen/passes/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lazuli::codegen {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Kind = runtime::MemorySpec::Kind;

constexpr int64_t kMiB = int64_t{1} << 20;

class Steps {
 public:
  explicit Steps(c10::Device device) : device_(device) {}

  int32_t Memory(Kind kind, int64_t nbytes, int32_t storage = -1) {
    runtime::MemorySpec memory;
    memory.kind = kind;
    memory.storage = storage;
    memory.nbytes = nbytes;
    memory.device = device_;
    spec_.memories.push_back(memory);
    return static_cast<int32_t>(spec_.memories.size()) - 1;
  }

  void Step(std::vector<int32_t> reads, std::vector<int32_t> writes) {
    runtime::StepSpec step;
    step.work = runtime::KernelLaunch{};
    step.reads = std::move(reads);
    step.writes = std::move(writes);
    spec_.steps.push_back(std::move(step));
  }

  const runtime::ProgramSpec& Placed(bool own_memory = true) {
    PlaceInArena(&spec_, own_memory);
    return spec_;
  }
  runtime::ProgramSpec& spec() { return spec_; }

 private:
  c10::Device device_;
  runtime::ProgramSpec spec_;
};

// First a library call's result is large and then what kernels make of it, each while the other is not there.
struct ByTurns : Steps {
  explicit ByTurns(c10::Device device, int64_t nbytes = 64 * kMiB) : Steps(device) {
    input = Memory(Kind::kInput, 0, 0);
    adopted = Memory(Kind::kAdopted, nbytes);
    small = Memory(Kind::kArena, 1024);
    large = Memory(Kind::kArena, nbytes);
    result = Memory(Kind::kOutput, 1024, 1);
    Step({input}, {adopted});
    Step({adopted}, {small});
    Step({small}, {large});
    Step({large}, {result});
  }
  int32_t input, adopted, small, large, result;
};

const c10::Device kGpu(c10::kCUDA, 0);

TEST(ArenaTest, LargeMemoryIsThereOnlyWhileItIsNeeded) {
  ByTurns steps(kGpu);
  const runtime::ProgramSpec& spec = steps.Placed();
  EXPECT_EQ(spec.memories[steps.large].kind, Kind::kAdopted);
  EXPECT_THAT(spec.steps[2].acquires, ElementsAre(steps.large));
  EXPECT_THAT(spec.steps[3].releases, ElementsAre(steps.large));
  EXPECT_EQ(spec.memories[steps.small].kind, Kind::kArena);
  ASSERT_EQ(spec.arenas.size(), 1u);
  EXPECT_EQ(spec.arenas[0].nbytes, 1024);
}

TEST(ArenaTest, ResultsOnAGpuAreAllocatedByTheirFirstWriter) {
  ByTurns steps(kGpu);
  EXPECT_THAT(steps.Placed().steps[3].acquires, ElementsAre(steps.result));
  ByTurns on_cpu(c10::kCPU);
  for (const runtime::StepSpec& step : on_cpu.Placed().steps) EXPECT_THAT(step.acquires, IsEmpty());
}

// What it is made of may be an input that goes then.
TEST(ArenaTest, LargeResultsOnACpuAreAllocatedByTheirFirstWriter) {
  for (const bool own_memory : {false, true}) {
    Steps steps(c10::kCPU);
    const int32_t input = steps.Memory(Kind::kInput, 0, 0), between = steps.Memory(Kind::kArena, kMiB),
                  large = steps.Memory(Kind::kOutput, kMiB, 1), small = steps.Memory(Kind::kOutput, 1024, 2);
    steps.Step({input}, {between});
    steps.Step({between}, {large, small});
    const runtime::ProgramSpec& spec = steps.Placed(own_memory);
    EXPECT_THAT(spec.steps[0].acquires, IsEmpty());
    EXPECT_THAT(spec.steps[1].acquires, ElementsAre(large));
    EXPECT_EQ(spec.memories[between].kind, Kind::kArena);
  }
}

TEST(ArenaTest, LargeResultsComeWhenWhatTheyAreMadeOfIsGone) {
  Steps steps(kGpu);
  const int32_t input = steps.Memory(Kind::kInput, 0, 0), large = steps.Memory(Kind::kArena, 64 * kMiB),
                small = steps.Memory(Kind::kArena, 1024), result = steps.Memory(Kind::kOutput, 64 * kMiB, 1);
  steps.Step({input}, {large});
  steps.Step({large}, {small});
  steps.Step({small}, {result});
  EXPECT_THAT(steps.Placed().steps[2].acquires, ElementsAre(result));
}

TEST(ArenaTest, OneArenaWhereThatIsNoMore) {
  ByTurns not_asked(kGpu), little(kGpu, 2 * kMiB), together(kGpu);
  EXPECT_EQ(not_asked.Placed(/*own_memory=*/false).memories[not_asked.large].kind, Kind::kArena);
  for (const runtime::StepSpec& step : not_asked.spec().steps) EXPECT_THAT(step.acquires, IsEmpty());
  EXPECT_EQ(little.Placed().memories[little.large].kind, Kind::kArena);
  together.spec().steps[3].reads.push_back(together.adopted);
  EXPECT_EQ(together.Placed().memories[together.large].kind, Kind::kArena);
}

// Each step of a batch acquires what it is the first to use; what batches use is in use until their end.
TEST(ArenaTest, StepsOfABatchAcquireTheirOwn) {
  ByTurns steps(kGpu);
  const int32_t other = steps.Memory(Kind::kArena, 64 * kMiB);
  runtime::StepSpec beside;
  beside.work = runtime::KernelLaunch{};
  beside.reads = {steps.small};
  beside.writes = {other};
  auto& list = steps.spec().steps;
  list.insert(list.begin() + 3, beside);
  list[2].batch = 2;
  const runtime::ProgramSpec& spec = steps.Placed();
  EXPECT_THAT(spec.steps[2].acquires, ElementsAre(steps.large));
  EXPECT_THAT(spec.steps[3].acquires, ElementsAre(other));
  EXPECT_THAT(spec.steps[3].releases, UnorderedElementsAre(other));
  EXPECT_THAT(spec.steps[4].releases, UnorderedElementsAre(steps.large));
}

}  // namespace
}  // namespace lazuli::codegen
