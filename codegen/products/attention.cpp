#include "codegen/products/attention.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "codegen/products/attention_tiles.h"
#include "codegen/thread_scratch.h"

namespace lazuli::codegen {
namespace {

// Queries [first, first + rows) of one head.
void RunBlock(const Attention& a, const ProductTiles& tiles, int64_t batch, int64_t head, int64_t first, int64_t rows) {
  thread_local ThreadScratch scratch;
  const auto rows_of = [&](const auto& tensor, int64_t h) { return tensor.data + batch * tensor.batch + h * tensor.head; };
  const int64_t vectors = at::divup(rows, tiles.lanes), kv_head = head / (a.heads / a.kv_heads);
  AttentionBlock block;
  block.rows = rows;
  block.keys = a.causal ? std::min(a.keys, first + rows) : a.keys;
  block.width = a.width;
  block.q = rows_of(a.q, head) + first * a.q.row;
  block.q_stride = a.q.row;
  block.k = rows_of(a.k, kv_head);
  block.k_stride = a.k.row;
  block.v = rows_of(a.v, kv_head);
  block.v_stride = a.v.row;
  block.y = rows_of(a.y, head) + first * a.y.row;
  block.y_stride = a.y.row;
  block.hidden_from = a.causal ? first : a.keys;
  block.scale = a.scale;
  const int64_t floats = AttentionScratchFloats(tiles, vectors, a.width), stats_floats = 2 * vectors * tiles.lanes;
  auto* const room = static_cast<float*>(scratch.Reserve((floats + stats_floats) * static_cast<int64_t>(sizeof(float))));
  float* const stats = room + floats;
  tiles.attend(block, vectors, room, stats);
  float* const logsumexp = rows_of(a.logsumexp, head) + first * a.logsumexp.row;
  for (int64_t r = 0; r < rows; ++r) logsumexp[r * a.logsumexp.row] = stats[r] + std::log(stats[vectors * tiles.lanes + r]);
}

}  // namespace

bool SuitsAttention(int64_t queries, int64_t keys, int64_t width) {
  const ProductTiles* tiles = TilesFor(runtime::Active().isa);
  constexpr int64_t kMaxWidth = 512;  // Of which a block's results are in the second cache.
  // Fewer queries leave lanes empty.
  return tiles != nullptr && queries >= tiles->lanes && keys > 0 && width > 0 && width <= kMaxWidth;
}

void RunAttention(const Attention& a, runtime::Isa isa) {
  const ProductTiles& tiles = *TilesFor(isa);
  // Narrower blocks where there are not enough wide ones for the threads.
  int64_t rows = std::min(tiles.max_vectors, at::divup(a.queries, tiles.lanes)) * tiles.lanes;
  const int64_t heads = a.batch * a.heads;
  while (rows > tiles.lanes && heads * at::divup(a.queries, rows) < at::get_num_threads())
    rows = at::divup(rows / tiles.lanes, 2) * tiles.lanes;
  const int64_t blocks = at::divup(a.queries, rows);
  at::parallel_for(0, heads * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t head = i / blocks, first = i % blocks * rows;
      RunBlock(a, tiles, head / a.heads, head % a.heads, first, std::min(rows, a.queries - first));
    }
  });
}

void RunAttention(const Attention& attention) { RunAttention(attention, runtime::Active().isa); }

}  // namespace lazuli::codegen
