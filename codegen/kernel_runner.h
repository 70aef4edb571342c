// Runs the phases of a compiled kernel on LibTorch's thread pool.
#pragma once

#include <memory>
#include <vector>

#include "codegen/kernel_compiler.h"
#include "codegen/orc_compiler.h"

namespace lazuli::codegen {

using KernelFunction = void (*)(void* const* buffers, const uint64_t* scalars, int64_t unit_begin, int64_t unit_end, void* scratch);

struct RunnablePhase {
  KernelFunction function = nullptr;
  int64_t num_units = 1;
  int64_t grain = 1;  // Units that are worth a thread.
};

// Phases run one after another, each over its units, in parallel where there are more units than the grain.
class KernelRunner : public CompiledKernel {
 public:
  // `code` holds the phases' functions. Without phases, Run does nothing.
  KernelRunner(std::shared_ptr<const JitCode> code, std::vector<RunnablePhase> phases, int64_t scratch_bytes);
  void Run(void* const* buffers, const uint64_t* scalars) const override;

 private:
  std::shared_ptr<const JitCode> code_;
  std::vector<RunnablePhase> phases_;
  int64_t scratch_bytes_;
};

}  // namespace lazuli::codegen
