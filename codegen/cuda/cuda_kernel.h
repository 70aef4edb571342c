// A compiled kernel that runs on a GPU.
#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "codegen/cuda/cuda_plan.h"
#include "codegen/cuda/other_plans.h"
#include "codegen/kernel_compiler.h"
#include "runtime/cuda_driver.h"
#include "runtime/gpu_launch.h"

namespace lazuli::codegen {

class BatchTable;

// Run launches on LibTorch's current stream of its current device, which the buffers must be on, and returns at once. Its first call of all
// loads the code. Throws c10::Error with the kernel's name when the driver refuses.
class CudaKernel : public CompiledKernel {
 public:
  // `code`: what NVRTC made of the plan's text. Of a kernel with symbols, `wide` makes the same with 64-bit numbers of elements, if they
  // ever get too large for 32 bits.
  using MakeWide = std::function<absl::StatusOr<std::shared_ptr<const CompiledKernel>>()>;
  // `others` makes it with other plans; null: one plan is right for all sizes.
  CudaKernel(const CudaPlan& plan, std::string code, MakeWide wide, OtherPlans::Make others = nullptr);
  ~CudaKernel() override;

  void Run(void* const* buffers, const uint64_t* scalars, const int64_t* symbols) const override;
  void RunUnits(void* const* buffers, const uint64_t* scalars, const int64_t* symbols, int64_t begin, int64_t end) const override;
  bool Walks(int /*buffer*/) const override { return false; }
  UnitWalk WalkOf(int /*buffer*/, const int64_t* /*symbols*/) const override { return {}; }
  bool CanBatch() const override { return launch_.batch_entries > 0; }
  // All must be this kernel.
  void RunFirstOfBatch(absl::Span<const runtime::BoundKernel> batch) const override;

 private:
  // Sizes and strides of a buffer whose product's sum is how far it reaches.
  using Extent = std::vector<std::pair<runtime::Product, runtime::Product>>;

  using Argument = runtime::GpuLaunch::Argument;

  void Load() const;
  void LoadOnce() const {
    std::call_once(loaded_, [&] { Load(); });
  }
  // Tells the driver, once for each device, how much shared memory launches there will ask for.
  void AllowRowBytes(int device) const;
  // Whether 32 bits are too few to count its elements.
  bool IsTooLarge(const int64_t* symbols) const;
  runtime::CudaKernelHandle Find(const std::string& function) const;
  // Launches what is in the table, and empties it.
  void RunTable(BatchTable* table) const;
  // Memory for partial results; none while a graph that has its own is patched.
  static c10::DataPtr Scratch(int64_t bytes);
  // `num_own`: GpuLaunch::num_own.
  void Launch(const CudaLaunch::Phase& phase, runtime::CudaKernelHandle function, unsigned blocks, unsigned splits,
              runtime::CudaStreamHandle stream, absl::Span<const Argument> arguments, size_t num_own) const;

  const CudaLaunch launch_;
  const int num_buffers_;
  const int num_scalars_;
  const int num_symbols_;
  std::vector<Extent> extents_;  // Of the domain and the buffers; empty where their sizes are known.
  const MakeWide make_wide_;
  std::unique_ptr<const OtherPlans> others_;  // Null: there are none.

  mutable std::once_flag loaded_;
  mutable std::string code_;
  mutable runtime::CudaLibrary library_ = nullptr;
  mutable std::vector<runtime::CudaKernelHandle> functions_;
  mutable std::vector<runtime::CudaKernelHandle> batch_functions_;
  mutable bool waits_ = false;                        // GpuLaunch::waits.
  mutable std::atomic<uint64_t> allowed_devices_{0};  // A bit for each.
  mutable std::once_flag widened_;
  mutable std::shared_ptr<const CompiledKernel> wide_;
};

}  // namespace lazuli::codegen
