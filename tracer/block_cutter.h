// Cuts traces that never come back the same into blocks that do: what a program computes over trees, say, is ever another trace, made of
// the same cells.
//
// Where a cut may be is decided by content, so that equal stretches of operators are cut at equal places: after an operator at which the
// hash of the last few is the least of the last many. In a sequence that repeats itself that is once a period. This is how content-defined
// chunking finds boundaries in files (A. Muthitacharoen et al., A Low-bandwidth Network File System, SOSP 2001, section 3.1), with a
// minimum in place of a fixed value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lazuli::tracer {

class BlockCutter {
 public:
  // Forgets the operators before: what follows has nothing to do with them.
  void Reset() { count_ = 0; }

  // Whether a block of `size` operators may end after `op_id`, its last.
  bool EndsAfter(int32_t op_id, size_t size) {
    window_ = (window_ << 16) ^ (static_cast<uint64_t>(static_cast<uint32_t>(op_id)) * 0x9E3779B97F4A7C15ull >> 40);
    const uint64_t hash = window_ * 0xD6E8FEB86659FD93ull >> 8;
    bool least = true;
    const size_t known = count_ < kMany ? count_ : kMany;
    for (size_t i = 0; i < known; ++i) least &= hash <= hashes_[i];
    hashes_[count_ % kMany] = hash;
    ++count_;
    return least && size >= kMinOps;
  }

 private:
  static constexpr size_t kMinOps = 6, kMany = 32;
  uint64_t window_ = 0;  // Of the last four operators.
  size_t count_ = 0;
  std::array<uint64_t, kMany> hashes_{};
};

}  // namespace lazuli::tracer
