// Runs the steps of a program over its memories, which are bound before. A step that fails does not stop those that do not depend on it.
#pragma once

#include <ATen/core/stack.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "runtime/executor.h"
#include "runtime/prepared_call.h"
#include "runtime/program.h"
#include "runtime/program_memory.h"

namespace lazuli::runtime {

// One run at a time, for which all that is called is given the same arguments.
class StepRunner {
 public:
  // Both must outlive it.
  StepRunner(const ProgramSpec* spec, ProgramMemory* memory);

  // Before a run: nothing has failed, and library calls are ready. `resized`: symbols have other values than in the last run.
  void Begin(bool resized);
  // Forgets failures, of steps that did not run after all.
  void Reset();
  // Whether what steps overwrite from now on is saved, and can be taken back.
  void set_saves(bool saves) { saves_ = saves; }
  // Steps ran, or are about to, as a CUDA graph.
  void NoteLaunched(size_t first, size_t count);
  // This run's offsets, as far as they are known.
  void BindOffsets(const RunArgs& args);

  // Runs `count` steps from `first` on, with none of those that run together left out. The first failure goes to `result`.
  void Run(size_t first, size_t count, const RunArgs& args, RunResult* result);
  // The same where launches are captured, or patched, with memories where `bases` says: nothing runs yet.
  void RunInGraph(size_t first, size_t count, const std::vector<void*>& bases, const RunArgs& args, RunResult* result);
  // All that was to be run has failed, because of the exception in flight: `name` threw it.
  void FailAll(const std::string& name, RunResult* result);
  // Lets go of the inputs that `step` uses last, where the run may.
  void ReleaseInputs(const StepSpec& step, const RunArgs& args);

  bool failed() const { return failed_; }
  // A step was not run, and nothing after it, since there is no memory for it. Until then nothing that the program could see has changed.
  bool stopped() const { return stopped_; }
  // By memory: its writer failed in this run.
  const std::vector<bool>& poisoned() const { return poisoned_; }
  // By slot, those that are sums, too.
  absl::Span<const int64_t> offsets() const { return offsets_; }

 private:
  struct Operands {
    absl::InlinedVector<void*, 16> buffers;
    absl::InlinedVector<uint64_t, 16> scalars;
  };

  bool Acquire(size_t first, size_t count, RunResult* result);
  void RunStep(size_t i, const RunArgs& args, RunResult* result);
  void RunBatch(size_t first, size_t count, const RunArgs& args, RunResult* result);
  void RunFused(size_t first, size_t count, const RunArgs& args, RunResult* result);
  void Release(const StepSpec& step, const RunArgs& args);
  bool IsPoisoned(const StepSpec& step);
  void Fail(const AtenCall* call, const std::string& name, const std::vector<int32_t>& writes, RunResult* result);
  void Launch(const KernelLaunch& launch, const RunArgs& args, RunResult* result);
  BoundKernel Bind(const KernelLaunch& launch, const RunArgs& args, char* bad_index, Operands* operands) const;
  void ThrowForIndex(const KernelLaunch& launch, const RunArgs& args, RunResult* result);
  void Call(PreparedCall* prepared, const RunArgs& args);
  bool RunKept(const AtenCall& call, const torch::jit::Stack& arguments, const RunArgs& args);

  const ProgramSpec& spec_;
  ProgramMemory& memory_;
  const std::vector<void*>* bases_;  // Where kernels find memories.
  bool in_graph_ = false;
  bool prepared_ = false;
  bool failed_ = false;
  bool stopped_ = false;
  bool changed_ = false;  // An input was overwritten for good, or freed.
  bool saves_ = false;
  std::vector<bool> poisoned_;
  std::vector<bool> missing_;        // By memory: there was none to allocate.
  std::vector<PreparedCall> calls_;  // By step.
  std::vector<Operands> operands_;   // Of the launch that runs, or of each of its batch. At least one.
  std::vector<BoundKernel> batch_;
  torch::jit::Stack stack_;
  absl::Span<const int64_t> offsets_;  // Only while running.
  std::vector<int64_t> all_offsets_;   // Where some of them are sums.
};

}  // namespace lazuli::runtime
