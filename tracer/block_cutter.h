// Cuts traces that never come back the same into blocks that do: what a program computes over trees, say, is ever another trace, made of
// the same cells.
//
// Where a cut may be is decided by content, so that equal stretches of operators are cut at equal places: after an operator at which the
// hash of the last two is the least of the last many. In a sequence that repeats itself that is once a period. This is how content-defined
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

  // Whether a block of `size` operators may end after its last, whose name has this hash.
  bool EndsAfter(uint64_t name_hash, size_t size) {
    const uint64_t hash = (previous_ * 0x9E3779B97F4A7C15ull ^ name_hash) * 0xD6E8FEB86659FD93ull >> 8;
    previous_ = name_hash;
    bool least = true;
    const size_t known = count_ < kMany ? count_ : kMany;
    for (size_t i = 0; i < known; ++i) least &= hash <= hashes_[i];
    hashes_[count_ % kMany] = hash;
    ++count_;
    return least && size >= kMinOps;
  }

 private:
  // Of longer stretches, or where more operators are hashed, there are more blocks: a tree's cells have more or fewer leaves between them.
  static constexpr size_t kMinOps = 6, kMany = 12;
  uint64_t previous_ = 0;
  size_t count_ = 0;
  std::array<uint64_t, kMany> hashes_{};
};

}  // namespace lazuli::tracer
