// Memory to time a kernel on.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "codegen/kernel_compiler.h"
#include "codegen/kernel_ir.h"

namespace lazuli::codegen {

// Whether `kernel` may be run on memory of our own: what it does with numbers that it reads as places might go anywhere.
bool MayRunOnTrialOperands(const KernelIR& kernel);

// Memory like that of a kernel's operands, with ordinary values; sizes that are symbols are what they were when the kernel was made.
class TrialOperands {
 public:
  explicit TrialOperands(const KernelIR& kernel);

  int64_t bytes() const;

  // On a GPU: on the current stream of its device, which must be the current one. Throws c10::Error when there is too little memory.
  void Allocate(c10::Device device);

  bool any_in_place() const { return any_in_place_; }
  // What a kernel updates again and again would run out of ordinary values.
  void Renew();
  void Run(const CompiledKernel& kernel) const { kernel.Run(pointers_.data(), scalars_.data(), symbols_.data()); }

 private:
  struct Extent {
    int64_t bytes = 0;
    int64_t first = 0;  // Where the point at the beginning of all dimensions lies.
  };

  Extent ExtentOf(const KBuffer& buffer) const;
  void Fill(size_t b);

  const KernelIR& kernel_;
  c10::Device device_ = c10::kCPU;
  std::vector<bool> in_place_;
  bool any_in_place_ = false;
  std::vector<Extent> extents_;
  std::vector<at::DataPtr> memory_;
  std::vector<void*> pointers_;
  std::vector<uint64_t> scalars_;
  std::vector<int64_t> symbols_;
};

}  // namespace lazuli::codegen
