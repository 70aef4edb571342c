#include "codegen/kernel_runner.h"

#include <ATen/Parallel.h>

#include "codegen/thread_scratch.h"

namespace lazuli::codegen {
KernelRunner::KernelRunner(std::shared_ptr<const JitCode> code, std::vector<RunnablePhase> phases, ScratchSize scratch)
    : code_(std::move(code)), phases_(std::move(phases)), scratch_(std::move(scratch)) {}

void KernelRunner::Run(void* const* buffers, const uint64_t* scalars, const int64_t* symbols) const {
  thread_local ThreadScratch thread_scratch;
  const int64_t scratch_bytes = scratch_.Bytes(symbols);
  void* scratch = scratch_bytes > 0 ? thread_scratch.Reserve(scratch_bytes) : nullptr;
  for (const RunnablePhase& phase : phases_) {
    const int64_t num_units = phase.units.Count(symbols);
    if (num_units <= phase.grain || at::get_num_threads() < phase.min_threads) {
      phase.function(buffers, scalars, symbols, 0, num_units, scratch);
      continue;
    }
    at::parallel_for(0, num_units, phase.grain,
                     [&](int64_t begin, int64_t end) { phase.function(buffers, scalars, symbols, begin, end, scratch); });
  }
}

}  // namespace lazuli::codegen
