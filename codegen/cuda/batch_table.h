// What the functions that run many of one kernel take by value; those of split kernels take their scratch memory besides.
#pragma once

#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>

#include "codegen/cuda/cuda_plan.h"
#include "runtime/executor.h"

namespace lazuli::codegen {

// Laid out as the emitter's struct Table: the arguments of as many kernels as `launch` says, a word each; where the blocks of each end; the
// number of kernels.
class BatchTable {
 public:
  static constexpr int kBytes = 4096;  // At most; what every GPU takes as arguments.
  // How many kernels with so many arguments fit.
  static constexpr int Entries(int words) { return (kBytes - static_cast<int>(sizeof(uint64_t))) / (8 * words + 4); }

  BatchTable(const CudaLaunch& launch, int num_buffers, int num_scalars, int num_symbols);

  // Whether one more kernel, of so many blocks, fits.
  bool Fits(int64_t blocks) const { return count_ < entries_ && blocks_ + blocks <= CudaLaunch::kMostBlocks; }
  // Of a split kernel `blocks` is how often it is split.
  void Add(const runtime::BoundKernel& bound, int64_t blocks);
  // For the phase of split kernels that puts the parts together.
  void SetOneBlockEach();
  void Clear();

  int count() const { return count_; }
  int64_t blocks() const { return blocks_; }
  // Of all kernels that were added.
  int64_t scratch_bytes() const { return scratch_bytes_; }
  // What was added last.
  const runtime::BoundKernel& last() const { return *last_; }
  void* data() { return memory_.data(); }
  size_t bytes() const { return memory_.size() * sizeof(uint64_t); }

 private:
  void SetNumber(int place, int64_t number);

  const CudaLaunch& launch_;
  const int entries_;
  const int num_buffers_;
  const int num_scalars_;
  const int num_symbols_;
  const int words_;  // Of one kernel's arguments.
  c10::SmallVector<uint64_t, kBytes / sizeof(uint64_t)> memory_;
  int count_ = 0;
  int64_t blocks_ = 0;
  int64_t scratch_bytes_ = 0;
  const runtime::BoundKernel* last_ = nullptr;
};

}  // namespace lazuli::codegen
