// The part of an attention that one thread computes, for one instruction set.
#pragma once

#include <cstdint>

#include "codegen/products/product_tiles.h"

namespace lazuli::codegen {

constexpr int64_t kKeyBlock = 128;  // Keys whose scores exist at a time.

// Numbers of scores: that of the block's query r and key i at first + r * query + i * key.
template <class Element>
struct ScoreRows {
  const Element* first = nullptr;
  int64_t query = 0;
  int64_t key = 0;
};

// Rows: element e of row r at first[r * stride + e].
template <class Float>
struct BlockRows {
  Float* first;
  int64_t stride;
};

// Some queries of one head against all keys that they see.
struct AttentionBlock {
  int64_t rows;  // Queries.
  int64_t keys;
  int64_t width;
  BlockRows<const float> q;
  BlockRows<const float> k;
  BlockRows<const float> v;
  BlockRows<float> y;
  int64_t hidden_from;  // Key i is hidden from query r of the block if i > r + hidden_from; that and more than `keys` for none.
  float scale;
  ScoreRows<float> bias;
  ScoreRows<uint8_t> filled;
  bool keeps;  // It is 0 where scores are filled.
  float fill;
  bool zero_if_unseen;
};

// The gradients of such a block: what is added to those of the keys and values that it sees, and that of its queries. y is read.
struct AttentionGradBlock {
  AttentionBlock scores;
  BlockRows<const float> grad_y;
  BlockRows<const float> logsumexp;
  BlockRows<const float> max;  // Null: it is in logsumexp.
  BlockRows<float> grad_q, grad_k, grad_v;
};

// What ProductTiles::attend takes as scratch memory: queries, results, scores, and what is read past the results when they are turned
// round.
inline int64_t AttentionScratchFloats(const ProductTiles& tiles, int64_t vectors, int64_t width) {
  return (2 * width + kKeyBlock + tiles.lanes) * vectors * tiles.lanes;
}

// The same of ProductTiles::attend_back: queries, gradients and those of queries, both once more as they lie, weights and gradients of
// scores, and three numbers of each query.
inline int64_t AttentionGradScratchFloats(const ProductTiles& tiles, int64_t vectors, int64_t width) {
  const int64_t row = vectors * tiles.lanes, whole_width = (width + tiles.lanes - 1) / tiles.lanes * tiles.lanes;
  return (3 * width + tiles.lanes + 2 * whole_width + 2 * kKeyBlock + 3) * row;
}

}  // namespace lazuli::codegen
