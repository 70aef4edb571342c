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

KernelRunner::KernelRunner(std::shared_ptr<const JitCode> code, std::vector<RunnablePhase> phases, int64_t scratch_bytes)
    : code_(std::move(code)), phases_(std::move(phases)), scratch_bytes_(scratch_bytes) {}

void KernelRunner::Run(void* const* buffers, const uint64_t* scalars) const {
  thread_local Scratch thread_scratch;
  void* scratch = scratch_bytes_ > 0 ? thread_scratch.Reserve(scratch_bytes_) : nullptr;
  for (const RunnablePhase& phase : phases_) {
    if (phase.num_units <= phase.grain) {
      phase.function(buffers, scalars, 0, phase.num_units, scratch);
      continue;
    }
    at::parallel_for(0, phase.num_units, phase.grain,
                     [&](int64_t begin, int64_t end) { phase.function(buffers, scalars, begin, end, scratch); });
  }
}

}  // namespace lazuli::codegen
