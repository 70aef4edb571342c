#include "codegen/products/content_hash.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/cpu_features.h"

namespace lazuli::codegen {
namespace {

// Eight numbers that are hashed side by side.
using Lanes = uint64_t __attribute__((vector_size(64)));
constexpr int64_t kLanes = 4;  // Chains that do not wait for each other.
constexpr int64_t kStride = kLanes * static_cast<int64_t>(sizeof(Lanes));
constexpr int64_t kAhead = 2048;  // Of the caches' own prefetchers, which wait at the end of each page.
constexpr int64_t kBlock = int64_t{64} << 10;

uint64_t Mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9fb21c651e98df25;
  return hash ^ (hash >> 32);
}

// Each step is invertible for a given word, so that two contents which differ in one word never meet again.
[[gnu::always_inline]] inline ContentHash HashBlockWith(const char* data, int64_t nbytes) {
  Lanes lanes[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) lanes[i] = Lanes{1, 2, 3, 4, 5, 6, 7, 8} * (static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15 + 1);
  const auto add = [&](const char* from) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < kLanes; ++i) {
      Lanes words;
      std::memcpy(&words, from + i * static_cast<int64_t>(sizeof(Lanes)), sizeof(Lanes));
      __builtin_prefetch(from + i * static_cast<int64_t>(sizeof(Lanes)) + kAhead);
      lanes[i] ^= words;
      lanes[i] += lanes[i] << 9;
      lanes[i] ^= lanes[i] >> 29;
    }
  };
  int64_t at = 0;
  for (; at + kStride <= nbytes; at += kStride) add(data + at);
  if (at < nbytes) {
    char rest[kStride] = {};
    std::memcpy(rest, data + at, static_cast<size_t>(nbytes - at));
    add(rest);
  }
  ContentHash hash = {static_cast<uint64_t>(nbytes), ~static_cast<uint64_t>(nbytes)};
  for (const Lanes& chain : lanes) {
    for (int64_t i = 0; i < 8; ++i) hash = {Mix(hash[0], chain[i]), Mix(hash[1], chain[i] + 0x9e3779b97f4a7c15)};
  }
  return hash;
}

ContentHash HashBlock(const char* data, int64_t nbytes) { return HashBlockWith(data, nbytes); }
[[gnu::target("avx512f")]] ContentHash HashBlockAvx512(const char* data, int64_t nbytes) { return HashBlockWith(data, nbytes); }
[[gnu::target("avx2")]] ContentHash HashBlockAvx2(const char* data, int64_t nbytes) { return HashBlockWith(data, nbytes); }

}  // namespace

ContentHash HashContent(const void* data, int64_t nbytes) {
  static const auto hash_block = runtime::WidestIsa() == runtime::Isa::kAvx512 ? &HashBlockAvx512
                                 : runtime::WidestIsa() == runtime::Isa::kAvx2 ? &HashBlockAvx2
                                                                               : &HashBlock;
  const auto* const bytes = static_cast<const char*>(data);
  std::vector<ContentHash> blocks(static_cast<size_t>(at::divup(nbytes, kBlock)));
  at::parallel_for(0, static_cast<int64_t>(blocks.size()), 2, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      blocks[static_cast<size_t>(b)] = hash_block(bytes + b * kBlock, std::min(kBlock, nbytes - b * kBlock));
    }
  });
  ContentHash hash = {static_cast<uint64_t>(nbytes), 0};
  for (const ContentHash& block : blocks) hash = {Mix(hash[0], block[0]), Mix(hash[1], block[1])};
  return hash;
}

}  // namespace lazuli::codegen
