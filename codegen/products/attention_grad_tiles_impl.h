// The gradients of attention over vectors of one instruction set. Included after attention_tiles_impl.h.
#pragma once

// Defined by the including file: fn(shape) with the shape of tiles for so many vectors.
template <class Fn>
void ForShape(int64_t vectors, const Fn& fn);

// Rows of one matrix as panels: columns by up to kMost vectors at a time, and of those one row after another, filled up with zeros.
template <int64_t kMost>
struct RowPanels {
  float* panels;
  int64_t rows, width;

  static int64_t Vectors(int64_t width) { return (width + kLanes - 1) / kLanes; }

  // fn(first column, columns, vectors, panel).
  template <class Fn>
  void ForEach(const Fn& fn) const {
    float* panel = panels;
    for (int64_t column = 0; column < width; column += kMost * kLanes) {
      const int64_t columns = width - column < kMost * kLanes ? width - column : kMost * kLanes, vectors = Vectors(columns);
      fn(column, columns, vectors, panel);
      panel += rows * vectors * kLanes;
    }
  }

  void Pack(const float* data, int64_t stride) const {
    ForEach([&](int64_t column, int64_t columns, int64_t vectors, float* panel) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t v = 0; v < vectors; ++v) {
          const int64_t left = columns - v * kLanes;
          Store(panel + (r * vectors + v) * kLanes, LoadFirst(data + r * stride + column + v * kLanes, left < kLanes ? left : kLanes));
        }
      }
    });
  }
};

// result[key][e] += the sum over rows of weights[key * weights_row + row] * rows[row][e], for `keys` keys.
template <int64_t kMost>
void AddProduct(const float* weights, int64_t weights_row, int64_t keys, const RowPanels<kMost>& rows, float* result, int64_t stride) {
  rows.ForEach([&](int64_t column, int64_t columns, int64_t vectors, const float* panel) {
    ForShape(vectors, [&](auto shape) {
      const auto sink = [&](int64_t key, int v, Vec sum) __attribute__((always_inline)) {
        float* place = result + key * stride + column + v * kLanes;
        const int64_t left = columns - v * kLanes;
        if (left >= kLanes) {
          Store(place, Add(Load(place), sum));
        } else {
          StoreFirst(place, Add(LoadFirst(place, left), sum), left);
        }
      };
      const MatrixRows matrix{weights, weights + keys * weights_row, weights_row};
      Tiles<shape.kRows, shape.kVectors>(keys, matrix, panel, rows.rows, sink);
    });
  });
}

// Of each query: its largest score and the rest of its logsumexp, and the sum of y * grad_y.
template <int kVectors>
void SumQueries(const AttentionGradBlock& block, const float* ys, const float* grads, float* max, float* logsumexp, float* sums) {
  constexpr int64_t kRow = kVectors * kLanes;
  for (int v = 0; v < kVectors; ++v) {
    Vec sum = Zero();
    for (int64_t e = 0; e < block.scores.width; ++e) {
      sum = MultiplyAdd(Load(ys + e * kRow + v * kLanes), Load(grads + e * kRow + v * kLanes), sum);
    }
    Store(sums + v * kLanes, sum);
  }
  // The weights of queries that there are not are exp(-inf).
  for (int64_t r = 0; r < kRow; ++r) {
    logsumexp[r] = r < block.scores.rows ? block.logsumexp.first[r * block.logsumexp.stride] : kInfinity;
    max[r] = r < block.scores.rows && block.max.first != nullptr ? block.max.first[r * block.max.stride] : 0.0f;
  }
}

// Replaces scores by exp(score - max - logsumexp).
template <int kVectors>
void Weigh(int64_t keys, const float* max, const float* logsumexp, float* scores) {
  Vec base[kVectors], rest[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) base[v] = Load(max + v * kLanes), rest[v] = Load(logsumexp + v * kLanes);
  for (int64_t key = 0; key < keys; ++key) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* place = scores + (key * kVectors + v) * kLanes;
      Store(place, ExpOfNegative(Subtract(Subtract(Load(place), base[v]), rest[v])));
    }
  }
}

// Whether a query sees nothing, or what is not a number, and spoils the gradients of all values.
inline bool Spoils(const AttentionBlock& block, const float* logsumexp) {
  bool spoils = false;
  for (int64_t r = 0; r < block.rows; ++r) spoils |= !(logsumexp[r] > -kInfinity);
  return spoils && !block.zero_if_unseen;
}

template <int kRows, int kVectors>
void AttendBlockBack(const AttentionGradBlock& block, float* scratch) {
  constexpr int64_t kRow = kVectors * kLanes;
  const AttentionBlock& s = block.scores;
  using Panels = RowPanels<kMostVectors>;
  float* const queries = scratch;
  float* const grads = queries + s.width * kRow;
  float* const results = grads + s.width * kRow;
  const Panels query_rows{results + (s.width + kLanes) * kRow, s.rows, s.width};
  const Panels grad_rows{query_rows.panels + Panels::Vectors(s.width) * kLanes * kRow, s.rows, s.width};
  float* const weights = grad_rows.panels + Panels::Vectors(s.width) * kLanes * kRow;
  float* const grad_scores = weights + kKeyBlock * kRow;
  float* const logsumexp = grad_scores + kKeyBlock * kRow;
  float* const sums = logsumexp + kRow;
  float* const max = sums + kRow;
  const auto pack = [&](const float* data, int64_t stride, float* panel) {
    Product rows;
    rows.depth = s.width;
    rows.x = data;
    rows.x_stride = stride;
    PackPanel<kVectors>(rows, 0, s.rows, panel);
  };
  pack(s.q.first, s.q.stride, queries);
  pack(block.grad_y.first, block.grad_y.stride, grads);
  pack(s.y.first, s.y.stride, results);
  SumQueries<kVectors>(block, results, grads, max, logsumexp, sums);
  query_rows.Pack(s.q.first, s.q.stride);
  grad_rows.Pack(block.grad_y.first, block.grad_y.stride);
  const Vec scale = Constant(s.scale);
  const bool spoils = Spoils(s, logsumexp);
  bool has_results = false;
  for (int64_t begin = 0; begin < s.keys; begin += kKeyBlock) {
    const int64_t end = s.keys - begin < kKeyBlock ? s.keys : begin + kKeyBlock, keys = end - begin;
    if (!spoils && AreUnseen(s, begin, end)) continue;
    Score<kRows, kVectors>(s, queries, begin, end, weights);
    Weigh<kVectors>(keys, max, logsumexp, weights);
    AddProduct(weights, kRow, keys, grad_rows, block.grad_v.first + begin * block.grad_v.stride, block.grad_v.stride);
    const auto sink = [&](int64_t key, int v, Vec grad_weight) __attribute__((always_inline)) {
      const Vec weight = Load(weights + (key * kVectors + v) * kLanes);
      const Vec grad = Multiply(Multiply(weight, Subtract(grad_weight, Load(sums + v * kLanes))), scale);
      Store(grad_scores + (key * kVectors + v) * kLanes, grad);
    };
    const float* const values = s.v.first + begin * s.v.stride;
    Tiles<kRows, kVectors>(keys, MatrixRows{values, values + keys * s.v.stride, s.v.stride}, grads, s.width, sink);
    if (s.filled.first != nullptr) FillScores<kVectors>(s, begin, end, 0.0f, grad_scores);
    AddWeighted<kRows, kVectors>(MatrixColumns{s.k.first + begin * s.k.stride, s.k.stride}, s.width, keys, grad_scores, has_results,
                                 results);
    AddProduct(grad_scores, kRow, keys, query_rows, block.grad_k.first + begin * block.grad_k.stride, block.grad_k.stride);
    has_results = true;
  }
  for (int64_t i = 0; !has_results && i < s.width * kRow; i += kLanes) Store(results + i, Zero());
  Product rows;
  rows.y = block.grad_q.first;
  rows.y_stride = block.grad_q.stride;
  WriteBlock<kVectors>(rows, 0, s.rows, 0, s.width, results);
}
