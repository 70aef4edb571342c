#include "codegen/cuda/batch_table.h"

#include <algorithm>
#include <cstring>

namespace lazuli::codegen {

BatchTable::BatchTable(const CudaLaunch& launch, int num_buffers, int num_scalars, int num_symbols)
    : launch_(launch),
      entries_(launch.batch_entries),
      num_buffers_(num_buffers),
      num_scalars_(num_scalars),
      num_symbols_(num_symbols),
      words_(num_buffers + num_scalars + num_symbols + launch.OwnArguments()) {
  const auto numbers = static_cast<size_t>(entries_) + 1;  // Two to a word.
  memory_.resize(static_cast<size_t>(entries_) * static_cast<size_t>(words_) + (numbers + 1) / 2);
}

// Numbers come after all arguments: where blocks end, then how many kernels there are.
void BatchTable::SetNumber(int place, int64_t number) {
  const auto value = static_cast<uint32_t>(number);
  auto* numbers = reinterpret_cast<char*>(memory_.data() + static_cast<size_t>(entries_) * static_cast<size_t>(words_));
  std::memcpy(numbers + static_cast<size_t>(place) * sizeof(value), &value, sizeof(value));
}

void BatchTable::Add(const runtime::BoundKernel& bound, int64_t blocks) {
  uint64_t* word = memory_.data() + static_cast<size_t>(count_) * static_cast<size_t>(words_);
  for (int b = 0; b < num_buffers_; ++b) *word++ = reinterpret_cast<uint64_t>(bound.buffers[b]);
  word = std::copy_n(bound.scalars, num_scalars_, word);
  word = std::copy_n(bound.symbols, num_symbols_, word);
  if (launch_.split) {
    *word++ = static_cast<uint64_t>(scratch_bytes_);
    *word = static_cast<uint64_t>(blocks);
    scratch_bytes_ += launch_.ScratchBytes(bound.symbols, blocks);
  }
  blocks_ += blocks;
  SetNumber(count_, blocks_);
  ++count_;
  SetNumber(entries_, count_);
  last_ = &bound;
}

void BatchTable::SetOneBlockEach() {
  for (int i = 0; i < count_; ++i) SetNumber(i, i + 1);
  blocks_ = count_;
}

void BatchTable::Clear() {
  count_ = 0;
  blocks_ = 0;
  scratch_bytes_ = 0;
}

}  // namespace lazuli::codegen
