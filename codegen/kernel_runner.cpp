#include "codegen/kernel_runner.h"

#include <ATen/Parallel.h>

#include <cstdlib>
#include <new>

namespace lazuli::codegen {
namespace {

// Grows and never shrinks, one per thread: a kernel needs no allocation once its thread has run one as large.
class Scratch {
 public:
  ~Scratch() { std::free(data_); }

  void* Reserve(int64_t bytes) {
    if (bytes <= capacity_) return data_;
    std::free(data_);
    capacity_ = (bytes + 4095) / 4096 * 4096;
    data_ = std::aligned_alloc(64, static_cast<size_t>(capacity_));
    if (data_ == nullptr) {
      capacity_ = 0;
      throw std::bad_alloc();
    }
    return data_;
  }

 private:
  void* data_ = nullptr;
  int64_t capacity_ = 0;
};

}  // namespace

KernelRunner::KernelRunner(std::shared_ptr<const JitCode> code, std::vector<RunnablePhase> phases, ScratchSize scratch)
    : code_(std::move(code)), phases_(std::move(phases)), scratch_(std::move(scratch)) {}

void KernelRunner::Run(void* const* buffers, const uint64_t* scalars, const int64_t* symbols) const {
  thread_local Scratch thread_scratch;
  const int64_t scratch_bytes = scratch_.Bytes(symbols);
  void* scratch = scratch_bytes > 0 ? thread_scratch.Reserve(scratch_bytes) : nullptr;
  for (const RunnablePhase& phase : phases_) {
    const int64_t num_units = phase.units.Count(symbols);
    if (num_units <= phase.grain) {
      phase.function(buffers, scalars, symbols, 0, num_units, scratch);
      continue;
    }
    at::parallel_for(0, num_units, phase.grain,
                     [&](int64_t begin, int64_t end) { phase.function(buffers, scalars, symbols, begin, end, scratch); });
  }
}

}  // namespace lazuli::codegen
