// Runs the phases of a compiled kernel on LibTorch's thread pool.
#pragma once

#include <memory>
#include <vector>

#include "codegen/emit_llvm_plan.h"
#include "codegen/kernel_compiler.h"
#include "codegen/orc_linker.h"

namespace lazuli::codegen {

using KernelFunction = void (*)(void* const* buffers, const uint64_t* scalars, const int64_t* symbols, int64_t unit_begin, int64_t unit_end,
                                void* scratch);

struct RunnablePhase {
  KernelFunction function = nullptr;
  UnitCount units;
  int64_t grain = 1;    // Units that are worth a thread.
  int min_threads = 1;  // With fewer, all units run in one.
};

// Phases run one after another, each over its units, in parallel where there are more units than the grain.
class KernelRunner : public CompiledKernel {
 public:
  // `code` holds the phases' functions. Without phases, Run does nothing.
  KernelRunner(std::shared_ptr<const JitCode> code, std::vector<RunnablePhase> phases, ScratchSize scratch);
  void Run(void* const* buffers, const uint64_t* scalars, const int64_t* symbols) const override;

 private:
  std::shared_ptr<const JitCode> code_;
  std::vector<RunnablePhase> phases_;
  ScratchSize scratch_;
};

}  // namespace lazuli::codegen
