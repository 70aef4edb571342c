// What programs do where a step has no memory.
#include "runtime/executor.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace lazuli::runtime {
namespace {

using Kind = MemorySpec::Kind;

void AddOne(const void* /*kernel*/, void* const* buffers, const uint64_t* /*scalars*/, const int64_t* /*symbols*/) {
  *static_cast<float*>(buffers[1]) = *static_cast<float*>(buffers[0]) + 1;
}

// Memory `to` = memory `from` + 1.
StepSpec Step(int32_t from, int32_t to, const char* name) {
  StepSpec step;
  KernelLaunch launch;
  launch.run = &AddOne;
  launch.buffers = {{from, -1, 4}, {to, -1, 4}};
  launch.name = name;
  step.work = launch;
  step.reads = {from};
  step.writes = {to};
  return step;
}

MemorySpec Memory(Kind kind, int32_t storage, int64_t nbytes) {
  MemorySpec memory;
  memory.kind = kind;
  memory.storage = storage;
  memory.nbytes = nbytes;
  return memory;
}

// The input, plus 1, in memory that a step allocates on `device`; plus 1, in the second storage. `counts`: the first step adds 1 to a
// counter, an input as well.
class Sums {
 public:
  explicit Sums(c10::Device device, bool counts = false) {
    ProgramSpec spec;
    spec.memories = {Memory(Kind::kInput, 0, 0), Memory(Kind::kInput, 1, 0), Memory(Kind::kAdopted, -1, 4), Memory(Kind::kOutput, 2, 4)};
    spec.memories[2].device = device;
    if (counts) {
      spec.steps.push_back(Step(1, 1, "counter"));
      spec.steps.back().overwrites = 4;
    }
    spec.steps.push_back(Step(0, 2, "first"));
    spec.steps.back().acquires = {2};
    spec.steps.push_back(Step(2, 3, "second"));
    spec.steps.back().acquires = {3};
    spec.steps.back().releases = {2};
    program_ = MakeProgram(std::move(spec));
  }

  RunResult Run() {
    storages_ = {input_.storage().unsafeGetStorageImpl(), counter_.storage().unsafeGetStorageImpl(), nullptr};
    outputs_.clear();
    outputs_.resize(3);
    return program_->Run({storages_, {}, {}, absl::MakeSpan(outputs_)});
  }

  float result() const { return *static_cast<float*>(outputs_[2].get()); }
  bool has_result() const { return outputs_[2].get() != nullptr; }
  float counter() const { return *counter_.const_data_ptr<float>(); }

 private:
  at::Tensor input_ = at::zeros({1}), counter_ = at::zeros({1});
  std::vector<c10::StorageImpl*> storages_;
  std::vector<at::DataPtr> outputs_;
  std::unique_ptr<Program> program_;
};

const c10::Device kNone(c10::kCUDA, 0);  // This process has no library that could allocate there.

TEST(ExecutorTest, StepsAllocateWhatTheyAcquire) {
  Sums sums(c10::kCPU, /*counts=*/true);
  for (int run = 1; run <= 3; ++run) {
    const RunResult result = sums.Run();
    ASSERT_EQ(result.error, nullptr);
    EXPECT_EQ(sums.result(), 2);
    EXPECT_EQ(sums.counter(), static_cast<float>(run));
  }
}

TEST(ExecutorTest, ARunThatHasChangedNothingIsAsIfNotStarted) {
  Sums sums(kNone);
  for (int run = 0; run < 2; ++run) {
    const RunResult result = sums.Run();
    EXPECT_TRUE(result.not_started);
    EXPECT_NE(result.error, nullptr);
    EXPECT_FALSE(sums.has_result());
  }
}

TEST(ExecutorTest, AfterAChangeTheStepFailsAndWhatDependsOnIt) {
  Sums sums(kNone, /*counts=*/true);
  for (int run = 1; run <= 2; ++run) {
    const RunResult result = sums.Run();
    EXPECT_FALSE(result.not_started);
    ASSERT_NE(result.error, nullptr);
    EXPECT_EQ(result.failed_op, "first");
    EXPECT_FALSE(sums.has_result());
    EXPECT_EQ(sums.counter(), static_cast<float>(run));
  }
}

}  // namespace
}  // namespace lazuli::runtime
