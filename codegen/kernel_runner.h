// Runs the phases of compiled kernels on LibTorch's thread pool.
#pragma once

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "codegen/emit_llvm_plan.h"
#include "codegen/kernel_compiler.h"
#include "codegen/orc_linker.h"
#include "runtime/executor.h"

namespace lazuli::codegen {

constexpr int64_t kGrainNs = 8000;  // A thread is worth waking for this much work.

using KernelFunction = void (*)(void* const* buffers, const uint64_t* scalars, const int64_t* symbols, int64_t unit_begin, int64_t unit_end,
                                void* scratch);

struct RunnablePhase {
  KernelFunction function = nullptr;
  UnitCount units;
  int64_t unit_ns = 0;  // Estimated.
  int64_t grain = 1;    // Units that are worth a thread.
  int min_threads = 1;  // With fewer, all units run in one.
};

// UnitWalk for any values of the symbols.
struct SymbolicWalk {
  bool walks = false;
  runtime::Product step;  // Elements of one index of the loop that is cut into chunks.
};

// By buffer of `plan`'s kernel.
std::vector<SymbolicWalk> WalksOf(const LoopPlan& plan);

// Phases run one after another, each over its units, in parallel where there are more units than the grain.
class KernelRunner : public CompiledKernel {
 public:
  // `code` holds the phases' functions. Without phases, Run does nothing.
  KernelRunner(std::shared_ptr<const JitCode> code, std::vector<RunnablePhase> phases, ScratchSize scratch, bool can_batch,
               std::vector<SymbolicWalk> walks = {});
  void Run(void* const* buffers, const uint64_t* scalars, const int64_t* symbols) const override;
  bool CanBatch() const override { return can_batch_; }
  void RunUnits(void* const* buffers, const uint64_t* scalars, const int64_t* symbols, int64_t begin, int64_t end) const override;
  bool Walks(int buffer) const override;
  UnitWalk WalkOf(int buffer, const int64_t* symbols) const override;

  // The first phases of all kernels, then their second ones and so on. What is worth all threads by itself
  // is cut as Run cuts it; the rest is laid end to end by its estimated time, of which each thread takes a piece.
  void RunFirstOfBatch(absl::Span<const runtime::BoundKernel> batch) const override;

 private:
  std::shared_ptr<const JitCode> code_;
  std::vector<RunnablePhase> phases_;
  ScratchSize scratch_;
  bool can_batch_;
  std::vector<SymbolicWalk> walks_;
};

}  // namespace lazuli::codegen
