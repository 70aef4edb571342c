// The part of an attention that one thread computes, for one instruction set.
#pragma once

#include <cstdint>

#include "codegen/products/product_tiles.h"

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

// What ProductTiles::attend takes as scratch memory: queries, results, scores, and what is read past the results when they are turned
// round.
inline int64_t AttentionScratchFloats(const ProductTiles& tiles, int64_t vectors, int64_t width) {
  return (2 * width + kKeyBlock + tiles.lanes) * vectors * tiles.lanes;
}

}  // namespace lazuli::codegen
