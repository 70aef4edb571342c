// Attention over vectors of one instruction set. Included after product_tiles_impl.h by a file that defines, besides what that needs:
//   Subtract(a, b); Multiply(a, b); Divide(a, b); Max(a, b): b where one is not a number; LaneIndex(): 0, 1, 2...;
//   HideAbove(limit, index, v): v where index <= limit, minus infinity elsewhere; Round(v): to the nearest whole number;
//   ZeroBelow(limit, x, v): 0 where x < limit, v elsewhere; ScaleByPowerOf2(v, n): v * 2^n for whole n from -126 to 0, v in [0.5, 2).
#pragma once

// exp(x) for x of at most 0 within an ulp; 0 where it would be denormal, which takes CPUs a hundred times as long. The polynomial is that
// of fused kernels (scripts/fit_polynomials.py).
inline __attribute__((always_inline)) Vec ExpOfNegative(Vec unbounded) {
  const Vec least = Constant(-87.0f), x = Max(least, unbounded);
  const Vec n = Round(Multiply(x, Constant(1.44269504f)));
  Vec r = MultiplyAdd(n, Constant(-0.693145751953f), x);
  r = MultiplyAdd(n, Constant(-1.42860677e-06f), r);
  Vec p = Constant(0.00138147012f);
  p = MultiplyAdd(p, r, Constant(0.00836877339f));
  p = MultiplyAdd(p, r, Constant(0.041668389f));
  p = MultiplyAdd(p, r, Constant(0.166665196f));
  p = MultiplyAdd(p, r, Constant(0.49999994f));
  p = MultiplyAdd(p, r, Constant(1.0f));
  p = MultiplyAdd(p, r, Constant(1.0f));
  return ZeroBelow(least, unbounded, ScaleByPowerOf2(p, n));
}

// What is known of the queries after some keys.
template <int kVectors>
struct QueryStats {
  Vec max[kVectors], sum[kVectors];
};

// Asks for rows that others may have written, far from each other.
inline void Fetch(const float* rows, int64_t count, int64_t width, int64_t stride) {
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t e = 0; e < width; e += kCacheLine) __builtin_prefetch(rows + r * stride + e);
  }
}

// scores[key * row + query] for keys [begin, end).
template <int kRows, int kVectors>
void Score(const AttentionBlock& block, const float* queries, int64_t begin, int64_t end, float* scores) {
  constexpr int64_t kRow = kVectors * kLanes;
  const Vec scale = Constant(block.scale);
  const auto sink = [&](int64_t key, int v, Vec sum) __attribute__((always_inline)) {
    Store(scores + key * kRow + v * kLanes, Multiply(sum, scale));
  };
  const float* keys = block.k + begin * block.k_stride;
  Tiles<kRows, kVectors>(end - begin, MatrixRows{keys, keys + (end - begin) * block.k_stride, block.k_stride}, queries, block.width, sink);
  for (int64_t key = begin > block.hidden_from ? begin : block.hidden_from + 1; key < end; ++key) {
    for (int v = 0; v < kVectors; ++v) {
      float* place = scores + (key - begin) * kRow + v * kLanes;
      const Vec last_seen = Add(LaneIndex(), Constant(static_cast<float>(block.hidden_from + v * kLanes)));
      Store(place, HideAbove(last_seen, Constant(static_cast<float>(key)), Load(place)));
    }
  }
}

// Replaces scores by exp(score - max), with the larger of the old and the new maximum; results so far, and their sum, are scaled to it.
template <int kVectors>
void Exponentiate(const AttentionBlock& block, int64_t begin, int64_t end, float* scores, float* results, QueryStats<kVectors>* stats) {
  constexpr int64_t kRow = kVectors * kLanes;
  Vec max[kVectors], sum[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) max[v] = stats->max[v], sum[v] = Zero();
  for (int64_t key = begin; key < end; ++key) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) max[v] = Max(max[v], Load(scores + (key - begin) * kRow + v * kLanes));
  }
  for (int64_t key = begin; key < end; ++key) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* place = scores + (key - begin) * kRow + v * kLanes;
      const Vec p = ExpOfNegative(Subtract(Load(place), max[v]));
      sum[v] = Add(sum[v], p);
      Store(place, p);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const Vec factor = begin > 0 ? ExpOfNegative(Subtract(stats->max[v], max[v])) : Zero();
    for (int64_t e = 0; begin > 0 && e < block.width; ++e) {
      float* place = results + e * kRow + v * kLanes;
      Store(place, Multiply(Load(place), factor));
    }
    stats->max[v] = max[v];
    stats->sum[v] = MultiplyAdd(stats->sum[v], factor, sum[v]);
  }
}

// Adds v, weighted by what scores were turned into.
template <int kRows, int kVectors>
void AddValues(const AttentionBlock& block, const float* weights, int64_t begin, int64_t end, float* results) {
  const auto sink = [&](int64_t e, int v, Vec sum) __attribute__((always_inline)) {
    float* place = results + (e * kVectors + v) * kLanes;
    Store(place, begin > 0 ? Add(Load(place), sum) : sum);
  };
  Tiles<kRows, kVectors>(block.width, MatrixColumns{block.v + begin * block.v_stride, block.v_stride}, weights, end - begin, sink);
}

template <int kRows, int kVectors>
void AttendBlock(const AttentionBlock& block, float* scratch, float* stats_out) {
  constexpr int64_t kRow = kVectors * kLanes;
  float* const queries = scratch;
  float* const scores = queries + block.width * kRow;
  float* const results = scores + kKeyBlock * kRow;
  Product rows;  // What packing and writing know of.
  rows.depth = block.width;
  rows.x = block.q;
  rows.x_stride = block.q_stride;
  rows.y = block.y;
  rows.y_stride = block.y_stride;
  Fetch(block.k, block.keys < kKeyBlock ? block.keys : kKeyBlock, block.width, block.k_stride);
  PackPanel<kVectors>(rows, 0, block.rows, queries);
  QueryStats<kVectors> stats;
  for (int v = 0; v < kVectors; ++v) stats.max[v] = Constant(-__builtin_inff()), stats.sum[v] = Zero();
  for (int64_t begin = 0; begin < block.keys; begin += kKeyBlock) {
    const int64_t end = block.keys - begin < kKeyBlock ? block.keys : begin + kKeyBlock;
    Fetch(block.v + begin * block.v_stride, end - begin, block.width, block.v_stride);
    Score<kRows, kVectors>(block, queries, begin, end, scores);
    Exponentiate<kVectors>(block, begin, end, scores, results, &stats);
    AddValues<kRows, kVectors>(block, scores, begin, end, results);
  }
  for (int v = 0; v < kVectors; ++v) {
    const Vec factor = Divide(Constant(1.0f), stats.sum[v]);
    for (int64_t e = 0; e < block.width; ++e) {
      float* place = results + (e * kVectors + v) * kLanes;
      Store(place, Multiply(Load(place), factor));
    }
    Store(stats_out + v * kLanes, stats.max[v]);
    Store(stats_out + kRow + v * kLanes, stats.sum[v]);
  }
  WriteBlock<kVectors>(rows, 0, block.rows, 0, block.width, results);
}
