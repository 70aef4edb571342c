// A set of small numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lazuli::codegen {

class BitSet {
 public:
  explicit BitSet(size_t bits = 0) : words_((bits + 63) / 64, 0) {}
  bool Test(int bit) const { return words_[bit >> 6] >> (bit & 63) & 1; }
  void Set(int bit) { words_[bit >> 6] |= uint64_t{1} << (bit & 63); }
  void Clear(int bit) { words_[bit >> 6] &= ~(uint64_t{1} << (bit & 63)); }
  // Whether anything was new.
  bool Add(const BitSet& other) {
    uint64_t fresh = 0;
    for (size_t i = 0; i < words_.size(); ++i) {
      fresh |= other.words_[i] & ~words_[i];
      words_[i] |= other.words_[i];
    }
    return fresh != 0;
  }

 private:
  std::vector<uint64_t> words_;
};

}  // namespace lazuli::codegen
