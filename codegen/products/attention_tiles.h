// The part of an attention that one thread computes, for one instruction set.
#pragma once

#include <cstdint>

namespace lazuli::codegen {

constexpr int64_t kKeyBlock = 128;  // Keys whose scores exist at a time.

// Some queries of one head against all keys that they see. Strides are from row to row.
struct AttentionBlock {
  int64_t rows;  // Queries.
  int64_t keys;
  int64_t width;
  const float* q;
  int64_t q_stride;
  const float* k;
  int64_t k_stride;
  const float* v;
  int64_t v_stride;
  float* y;
  int64_t y_stride;
  int64_t hidden_from;  // Key i is hidden from query r of the block if i > r + hidden_from; that and more than `keys` for none.
  float scale;
};

struct AttentionTiles {
  int64_t lanes;        // Queries in a vector.
  int64_t max_vectors;  // In a block.
  // `scratch` has room for ScratchFloats. Leaves the largest score and the sum of exp(score - largest) of query r in stats[r] and
  // stats[lanes * vectors + r].
  void (*attend)(const AttentionBlock& block, int64_t vectors, float* scratch, float* stats);

  // Queries, results, scores; and what is read past the results when they are turned round.
  int64_t ScratchFloats(int64_t vectors, int64_t width) const { return (2 * width + kKeyBlock + lanes) * vectors * lanes; }
};

extern const AttentionTiles kAttentionTilesAvx2;
extern const AttentionTiles kAttentionTilesAvx512;

}  // namespace lazuli::codegen
