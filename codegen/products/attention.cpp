#include "codegen/products/attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "codegen/products/attention_tiles.h"
#include "codegen/thread_scratch.h"

namespace lazuli::codegen {
namespace {

template <class Rows>
auto* HeadOf(const Rows& rows, int64_t batch, int64_t head) {
  return rows.data + batch * rows.batch + head * rows.head;
}

// Those of one head, from row `first` on.
template <class Float>
BlockRows<Float> RowsFrom(const HeadRows<Float>& rows, int64_t batch, int64_t head, int64_t first) {
  return {HeadOf(rows, batch, head) + first * rows.row, rows.row};
}

template <class Element>
ScoreRows<Element> ScoresOf(const ScoreTable<Element>& table, int64_t batch, int64_t head, int64_t first) {
  if (table.data == nullptr) return {};
  return {table.data + batch * table.batch + head * table.head + first * table.query, table.query, table.key};
}

// Queries [first, first + rows) of one head.
AttentionBlock BlockOf(const Attention& a, int64_t batch, int64_t head, int64_t first, int64_t rows) {
  const int64_t kv_head = head / (a.heads / a.kv_heads);
  AttentionBlock block;
  block.rows = rows;
  block.keys = a.causal ? std::min(a.keys, first + rows) : a.keys;
  block.width = a.width;
  block.q = RowsFrom(a.q, batch, head, first);
  block.k = RowsFrom(a.k, batch, kv_head, 0);
  block.v = RowsFrom(a.v, batch, kv_head, 0);
  block.y = RowsFrom(a.y, batch, head, first);
  block.hidden_from = a.causal ? first : a.keys;
  block.scale = a.scale;
  block.bias = ScoresOf(a.bias, batch, head, first);
  block.filled = ScoresOf(a.filled, batch, head, first);
  block.keeps = a.keeps;
  block.fill = a.fill;
  block.zero_if_unseen = a.zero_if_unseen;
  return block;
}

void RunBlock(const Attention& a, const ProductTiles& tiles, int64_t batch, int64_t head, int64_t first, int64_t rows) {
  ThreadScratch& scratch = ScratchOfThread<Attention>();
  const int64_t vectors = at::divup(rows, tiles.lanes);
  const int64_t floats = AttentionScratchFloats(tiles, vectors, a.width), stats_floats = 2 * vectors * tiles.lanes;
  auto* const room = static_cast<float*>(scratch.Reserve((floats + stats_floats) * static_cast<int64_t>(sizeof(float))));
  float* const stats = room + floats;
  tiles.attend(BlockOf(a, batch, head, first, rows), vectors, room, stats);
  float* const logsumexp = HeadOf(a.logsumexp, batch, head) + first * a.logsumexp.row;
  float* const max = a.max.data != nullptr ? HeadOf(a.max, batch, head) + first * a.max.row : nullptr;
  for (int64_t r = 0; r < rows; ++r) {
    const float log_sum = std::log(stats[vectors * tiles.lanes + r]);
    logsumexp[r * a.logsumexp.row] = max != nullptr ? log_sum : stats[r] + log_sum;
    if (max != nullptr) max[r * a.max.row] = stats[r];
  }
}

// Sums over queries are taken in so many parts, one after another in each, so that few heads are work enough for many threads.
constexpr int64_t kManyHeads = 48, kQueriesOfPart = 64;

int64_t MostParts(const Attention& a) {
  return std::clamp<int64_t>(a.queries / kQueriesOfPart, 1, at::divup(kManyHeads, a.batch * a.kv_heads));
}

// Where a part of the sums for one head of keys and values goes.
struct KeyGradients {
  BlockRows<float> k, v;
};

void ZeroRows(const BlockRows<float>& rows, int64_t count, int64_t width) {
  for (int64_t r = 0; r < count; ++r) std::fill_n(rows.first + r * rows.stride, width, 0.0f);
}

void AddRow(const BlockRows<float>& rows, int64_t row, int64_t width, const BlockRows<float>& sums) {
  const float* const more = rows.first + row * rows.stride;
  float* const sum = sums.first + row * sums.stride;
  for (int64_t e = 0; e < width; ++e) sum[e] += more[e];
}

// Queries [first, last) of all heads that share these keys.
void RunBack(const AttentionGradient& g, const ProductTiles& tiles, int64_t batch, int64_t kv_head, int64_t first, int64_t last,
             const KeyGradients& to) {
  ThreadScratch& scratch = ScratchOfThread<AttentionGradient>();
  const Attention& a = g.attention;
  const int64_t most = tiles.max_vectors * tiles.lanes, sharing = a.heads / a.kv_heads;
  const int64_t floats = AttentionGradScratchFloats(tiles, tiles.max_vectors, a.width);
  auto* const room = static_cast<float*>(scratch.Reserve(floats * static_cast<int64_t>(sizeof(float))));
  ZeroRows(to.k, a.keys, a.width);
  ZeroRows(to.v, a.keys, a.width);
  for (int64_t head = kv_head * sharing; head < (kv_head + 1) * sharing; ++head) {
    for (int64_t begin = first; begin < last; begin += most) {
      const int64_t rows = std::min(most, last - begin);
      AttentionGradBlock block;
      block.scores = BlockOf(a, batch, head, begin, rows);
      block.grad_y = RowsFrom(g.grad_y, batch, head, begin);
      block.logsumexp = {HeadOf(a.logsumexp, batch, head) + begin * a.logsumexp.row, a.logsumexp.row};
      block.max = {a.max.data != nullptr ? HeadOf(a.max, batch, head) + begin * a.max.row : nullptr, a.max.row};
      block.grad_q = RowsFrom(g.grad_q, batch, head, begin);
      block.grad_k = to.k;
      block.grad_v = to.v;
      tiles.attend_back(block, at::divup(rows, tiles.lanes), room);
    }
  }
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

void RunAttentionGradient(const AttentionGradient& g, runtime::Isa isa) {
  const ProductTiles& tiles = *TilesFor(isa);
  const Attention& a = g.attention;
  const int64_t heads = a.batch * a.kv_heads, rows_floats = a.keys * a.width, block = tiles.max_vectors * tiles.lanes;
  const int64_t queries_of_part = at::divup(at::divup(a.queries, MostParts(a)), block) * block;
  const int64_t parts = at::divup(a.queries, queries_of_part);
  // What is not the first part of a head: gradients of keys, then of values.
  const at::Tensor further = at::empty({heads, parts - 1, 2, rows_floats}, at::kFloat);
  float* const room = parts > 1 ? further.mutable_data_ptr<float>() : nullptr;
  const auto place = [&](int64_t head, int64_t part) -> KeyGradients {
    if (part > 0) {
      float* const rows = room + (head * (parts - 1) + part - 1) * 2 * rows_floats;
      return {{rows, a.width}, {rows + rows_floats, a.width}};
    }
    const int64_t batch = head / a.kv_heads, kv_head = head % a.kv_heads;
    return {RowsFrom(g.grad_k, batch, kv_head, 0), RowsFrom(g.grad_v, batch, kv_head, 0)};
  };
  at::parallel_for(0, heads * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t head = i / parts, part = i % parts, first = std::min(a.queries, part * queries_of_part);
      RunBack(g, tiles, head / a.kv_heads, head % a.kv_heads, first, std::min(a.queries, first + queries_of_part), place(head, part));
    }
  });
  if (parts == 1) return;
  constexpr int64_t kRowsOfTask = 32;
  at::parallel_for(0, heads * a.keys, kRowsOfTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t head = i / a.keys, key = i % a.keys;
      const KeyGradients sums = place(head, 0);
      for (int64_t part = 1; part < parts; ++part) {
        const KeyGradients more = place(head, part);
        AddRow(more.k, key, a.width, sums.k);
        AddRow(more.v, key, a.width, sums.v);
      }
    }
  });
}

void RunAttentionGradient(const AttentionGradient& gradient) { RunAttentionGradient(gradient, runtime::Active().isa); }

}  // namespace lazuli::codegen
