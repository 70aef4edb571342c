// The parts of a product that one thread computes, for one instruction set.
#pragma once

#include <cstdint>

#include "codegen/products/product.h"

namespace lazuli::codegen {

constexpr int64_t kProductBlock = 48;    // Columns of y that are collected, transposed, before they are written.
constexpr int64_t kMaxPanelFloats = 64;  // Floats in a panel's row, at most.

struct AttentionBlock;
struct AttentionGradBlock;

struct ProductTiles {
  int64_t lanes;        // Floats in a vector.
  int64_t max_vectors;  // Vectors in a panel's row.
  int64_t direct_rows;  // Rows of x at most this many are taken as they are; more are first packed, transposed, into panels.
  // Rows [first, first + count) of x, transposed: element k of the panel is `vectors` vectors, of which what is past `count` is 0.
  void (*pack)(const Product& product, int64_t first, int64_t count, int64_t vectors, float* panel);
  // Columns [begin, end) of those rows of y, from their panel: kProductBlock at most. `scratch` has room for the block.
  void (*panel)(const Product& product, int64_t first, int64_t count, int64_t vectors, const float* panel, int64_t begin, int64_t end,
                float* scratch);
  // Rows [first, end) of y, `count` columns from `begin` on, from a panel of these rows of w.
  void (*columns)(const Product& product, int64_t first, int64_t end, int64_t vectors, const float* panel, int64_t begin, int64_t count);
  // Columns [begin, end) of y, from x itself. At most direct_rows rows.
  void (*direct)(const Product& product, int64_t begin, int64_t end);
  // Attention (attention_tiles.h) of at most `vectors` vectors of queries. `scratch` has room for AttentionScratchFloats. Leaves the
  // largest score and the sum of exp(score - largest) of query r in stats[r] and stats[lanes * vectors + r].
  void (*attend)(const AttentionBlock& block, int64_t vectors, float* scratch, float* stats);
  // Its gradients. `scratch` has room for AttentionGradScratchFloats.
  void (*attend_back)(const AttentionGradBlock& block, int64_t vectors, float* scratch);
};

// Null where there are none for `isa`.
const ProductTiles* TilesFor(runtime::Isa isa);

extern const ProductTiles kProductTilesAvx2;
extern const ProductTiles kProductTilesAvx512;

}  // namespace lazuli::codegen
