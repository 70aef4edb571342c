#include "runtime/hash128.h"

#include <cstddef>

namespace lazuli::runtime {
namespace {

uint64_t Rotate(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

uint64_t LoadLittleEndian(const char* data, size_t size) {
  uint64_t word = 0;
  for (size_t i = 0; i < size; ++i) word |= uint64_t{static_cast<uint8_t>(data[i])} << (8 * i);
  return word;
}

struct SipState {
  uint64_t v0, v1, v2, v3;

  void Rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1, v1 = Rotate(v1, 13), v1 ^= v0, v0 = Rotate(v0, 32);
      v2 += v3, v3 = Rotate(v3, 16), v3 ^= v2;
      v0 += v3, v3 = Rotate(v3, 21), v3 ^= v0;
      v2 += v1, v1 = Rotate(v1, 17), v1 ^= v2, v2 = Rotate(v2, 32);
    }
  }

  void Absorb(uint64_t word) {
    v3 ^= word;
    Rounds(2);
    v0 ^= word;
  }

  uint64_t Squeeze() {
    Rounds(4);
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

}  // namespace

Hash128 SipHash128(std::string_view data, uint64_t key0, uint64_t key1) {
  SipState state{key0 ^ 0x736f6d6570736575, key1 ^ 0x646f72616e646f6d ^ 0xee, key0 ^ 0x6c7967656e657261, key1 ^ 0x7465646279746573};
  const size_t whole = data.size() / 8 * 8;
  for (size_t i = 0; i < whole; i += 8) state.Absorb(LoadLittleEndian(data.data() + i, 8));
  state.Absorb(LoadLittleEndian(data.data() + whole, data.size() - whole) | uint64_t{data.size()} << 56);
  state.v2 ^= 0xee;
  const uint64_t low = state.Squeeze();
  state.v1 ^= 0xdd;
  const uint64_t high = state.Squeeze();
  Hash128 hash{};
  for (size_t i = 0; i < 8; ++i) {
    hash[i] = static_cast<uint8_t>(low >> (8 * i));
    hash[8 + i] = static_cast<uint8_t>(high >> (8 * i));
  }
  return hash;
}

std::string HexOf(const Hash128& hash) {
  std::string text;
  for (const uint8_t byte : hash) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace lazuli::runtime
