// Attention over vectors of one instruction set. Included after product_tiles_impl.h by a file that defines, besides what that needs:
//   Subtract(a, b); Multiply(a, b); Divide(a, b); Max(a, b): b where one is not a number; LaneIndex(): 0, 1, 2...;
//   ReplaceAbove(limit, index, other, v): v where index <= limit, `other` elsewhere; Round(v): to the nearest whole number; LoadBytes(p):
//   kLanes small whole numbers;
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

constexpr float kInfinity = __builtin_inff();
constexpr float kLargest = 3.40282347e+38f;  // Finite.

inline Vec LoadNumbers(const float* p, int64_t count) { return LoadFirst(p, count); }
inline Vec LoadNumbers(const uint8_t* p, int64_t count) {
  if (count == kLanes) return LoadBytes(p);
  float numbers[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) numbers[i] = p[i];
  return Load(numbers);
}

// rows[j], lane i: the table's number of query `query` + i, of which there are `queries`, and key `key` + j, of which there are `keys`.
template <class Element>
inline __attribute__((always_inline)) void LoadTile(const ScoreRows<Element>& table, int64_t query, int64_t queries, int64_t key,
                                                    int64_t keys, Vec (&rows)[kLanes]) {
  const Element* first = table.first + query * table.query + key * table.key;
  if (table.query == 0) {
    for (int j = 0; j < kLanes; ++j) rows[j] = j < keys ? Constant(static_cast<float>(first[j * table.key])) : Zero();
  } else if (table.key == 1) {
    for (int i = 0; i < kLanes; ++i) rows[i] = i < queries ? LoadNumbers(first + i * table.query, keys) : Zero();
    Transpose(rows);
  } else {
    for (int j = 0; j < kLanes; ++j) {
      float numbers[kLanes] = {};
      for (int i = 0; i < kLanes && i < queries && j < keys; ++i) numbers[i] = static_cast<float>(first[i * table.query + j * table.key]);
      rows[j] = Load(numbers);
    }
  }
}

// scores = change(score, the table's number) for keys [begin, end).
template <int kVectors, class Element, class Change>
void ChangeScores(const AttentionBlock& block, const ScoreRows<Element>& table, int64_t begin, int64_t end, float* scores,
                  const Change& change) {
  for (int64_t key = begin; key < end; key += kLanes) {
    const int64_t keys = end - key < kLanes ? end - key : kLanes;
    for (int64_t v = 0; v < kVectors && v * kLanes < block.rows; ++v) {
      Vec numbers[kLanes];
      LoadTile(table, v * kLanes, block.rows - v * kLanes, key, keys, numbers);
      for (int64_t j = 0; j < keys; ++j) {
        float* place = scores + ((key - begin + j) * kVectors + v) * kLanes;
        Store(place, change(Load(place), numbers[j]));
      }
    }
  }
}

// Scores that the table says are `fill` instead.
template <int kVectors>
void FillScores(const AttentionBlock& block, int64_t begin, int64_t end, float fill, float* scores) {
  const Vec instead = Constant(fill);
  // Above a half where they are filled.
  const Vec sign = Constant(block.keeps ? -1.0f : 1.0f), shift = Constant(block.keeps ? 1.0f : 0.0f), half = Constant(0.5f);
  const auto change = [&](Vec score, Vec number) __attribute__((always_inline)) {
    return ReplaceAbove(half, MultiplyAdd(number, sign, shift), instead, score);
  };
  ChangeScores<kVectors>(block, block.filled, begin, end, scores, change);
}

template <class Element, class Hides>
bool HidesAll(const AttentionBlock& block, const ScoreRows<Element>& table, int64_t begin, int64_t end, const Hides& hides) {
  const int64_t rows = table.query == 0 ? 1 : block.rows, last = table.key == 0 ? begin + 1 : end;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t key = begin; key < last; ++key) {
      if (!hides(table.first[r * table.query + key * table.key])) return false;
    }
  }
  return true;
}

// Whether none of the queries sees one of the keys [begin, end).
inline bool AreUnseen(const AttentionBlock& block, int64_t begin, int64_t end) {
  const auto is_set = [&](uint8_t number) { return (number != 0) != block.keeps; };
  const bool fills = block.filled.first != nullptr;
  if (fills && block.fill != -kInfinity) return false;
  if (fills && HidesAll(block, block.filled, begin, end, is_set)) return true;
  const auto is_infinite = [](float bias) { return bias == -kInfinity; };
  return block.bias.first != nullptr && HidesAll(block, block.bias, begin, end, is_infinite);
}

// scores[key * row + query] for keys [begin, end).
template <int kRows, int kVectors>
void Score(const AttentionBlock& block, const float* queries, int64_t begin, int64_t end, float* scores) {
  constexpr int64_t kRow = kVectors * kLanes;
  const Vec scale = Constant(block.scale);
  const auto sink = [&](int64_t key, int v, Vec sum) __attribute__((always_inline)) {
    Store(scores + key * kRow + v * kLanes, Multiply(sum, scale));
  };
  const float* keys = block.k.first + begin * block.k.stride;
  Tiles<kRows, kVectors>(end - begin, MatrixRows{keys, keys + (end - begin) * block.k.stride, block.k.stride}, queries, block.width, sink);
  if (block.bias.first != nullptr) {
    const auto add = [](Vec score, Vec bias) __attribute__((always_inline)) { return Add(score, bias); };
    ChangeScores<kVectors>(block, block.bias, begin, end, scores, add);
  }
  if (block.filled.first != nullptr) FillScores<kVectors>(block, begin, end, block.fill, scores);
  for (int64_t key = begin > block.hidden_from ? begin : block.hidden_from + 1; key < end; ++key) {
    for (int v = 0; v < kVectors; ++v) {
      float* place = scores + (key - begin) * kRow + v * kLanes;
      const Vec last_seen = Add(LaneIndex(), Constant(static_cast<float>(block.hidden_from + v * kLanes)));
      Store(place, ReplaceAbove(last_seen, Constant(static_cast<float>(key)), Constant(-kInfinity), Load(place)));
    }
  }
}

// Replaces the scores of `keys` keys by exp(score - max), with the larger of the old and the new maximum; results so far, if any, and their
// sum are scaled to it.
template <int kVectors>
void Exponentiate(const AttentionBlock& block, int64_t keys, bool has_results, float* scores, float* results, QueryStats<kVectors>* stats) {
  constexpr int64_t kRow = kVectors * kLanes;
  Vec max[kVectors], base[kVectors], sum[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) max[v] = stats->max[v], sum[v] = Zero();
  for (int64_t key = 0; key < keys; ++key) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) max[v] = Max(max[v], Load(scores + key * kRow + v * kLanes));
  }
  // Of a query that has seen no key yet, exp(-inf - 0).
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) base[v] = ZeroBelow(Constant(-kLargest), max[v], max[v]);
  for (int64_t key = 0; key < keys; ++key) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* place = scores + key * kRow + v * kLanes;
      const Vec p = ExpOfNegative(Subtract(Load(place), base[v]));
      sum[v] = Add(sum[v], p);
      Store(place, p);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const Vec factor = has_results ? ExpOfNegative(Subtract(stats->max[v], base[v])) : Zero();
    for (int64_t e = 0; has_results && e < block.width; ++e) {
      float* place = results + e * kRow + v * kLanes;
      Store(place, Multiply(Load(place), factor));
    }
    stats->max[v] = max[v];
    stats->sum[v] = MultiplyAdd(stats->sum[v], factor, sum[v]);
  }
}

// results[e * row + query], if there are any yet, plus the sum over keys of weights[key * row + query] * rows[key][e].
template <int kRows, int kVectors>
void AddWeighted(const MatrixColumns& rows, int64_t width, int64_t keys, const float* weights, bool has_results, float* results) {
  const auto sink = [&](int64_t e, int v, Vec sum) __attribute__((always_inline)) {
    float* place = results + (e * kVectors + v) * kLanes;
    Store(place, has_results ? Add(Load(place), sum) : sum);
  };
  Tiles<kRows, kVectors>(width, rows, weights, keys, sink);
}

template <int kRows, int kVectors>
void AttendBlock(const AttentionBlock& block, float* scratch, float* stats_out) {
  constexpr int64_t kRow = kVectors * kLanes;
  float* const queries = scratch;
  float* const scores = queries + block.width * kRow;
  float* const results = scores + kKeyBlock * kRow;
  Product rows;  // What packing and writing know of.
  rows.depth = block.width;
  rows.x = block.q.first;
  rows.x_stride = block.q.stride;
  rows.y = block.y.first;
  rows.y_stride = block.y.stride;
  Fetch(block.k.first, block.keys < kKeyBlock ? block.keys : kKeyBlock, block.width, block.k.stride);
  PackPanel<kVectors>(rows, 0, block.rows, queries);
  QueryStats<kVectors> stats;
  for (int v = 0; v < kVectors; ++v) stats.max[v] = Constant(-__builtin_inff()), stats.sum[v] = Zero();
  bool has_results = false;
  for (int64_t begin = 0; begin < block.keys; begin += kKeyBlock) {
    const int64_t end = block.keys - begin < kKeyBlock ? block.keys : begin + kKeyBlock;
    if (AreUnseen(block, begin, end)) continue;
    Fetch(block.v.first + begin * block.v.stride, end - begin, block.width, block.v.stride);
    Score<kRows, kVectors>(block, queries, begin, end, scores);
    Exponentiate<kVectors>(block, end - begin, has_results, scores, results, &stats);
    AddWeighted<kRows, kVectors>(MatrixColumns{block.v.first + begin * block.v.stride, block.v.stride}, block.width, end - begin, scores,
                                 has_results, results);
    has_results = true;
  }
  for (int64_t i = 0; !has_results && i < block.width * kRow; i += kLanes) Store(results + i, Zero());
  for (int v = 0; v < kVectors; ++v) {
    if (block.zero_if_unseen) {
      stats.sum[v] = ReplaceAbove(Constant(kLargest), Subtract(Zero(), stats.max[v]), Constant(1.0f), stats.sum[v]);
      stats.max[v] = ZeroBelow(Constant(-kLargest), stats.max[v], stats.max[v]);
    }
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
