// Product tiles over vectors of one instruction set. Included by a file that is compiled for it and defines, before:
//   kLanes; Vec; Zero(), Load(p), LoadFirst(p, n), Store(p, v), StoreFirst(p, v, n), Broadcast(p), MultiplyAdd(a, b, c), Add(a, b);
//   Low(a, b), High(a, b), LowPairs(a, b), HighPairs(a, b): the lower or upper elements, or pairs of them, of each quarter (128 bits), by
//   turns from both; TransposeQuarters(t, v); AddQuarters(v): the sum of the quarters, as an __m128.
// Everything is in an unnamed namespace, and nothing of the standard library is used: code for a wide instruction set must not become
// the one copy of an inline function that the whole program runs.
#pragma once

constexpr int64_t kCacheLine = 16;  // Floats.
// Elements of a row of w that are summed one after another; sums of blocks are then added. The longer, the larger the rounding errors.
// A panel of so many elements, and what meets it, fit a core's nearest cache.
constexpr int64_t kDepthBlock = 128;

// A tile: so many rows times so many vectors fit into registers.
template <int kRowsOfIt, int kVectorsOfIt>
struct Shape {
  static constexpr int kRows = kRowsOfIt, kVectors = kVectorsOfIt;
};

using Vec4 = __m128;

inline Vec4 Add4(Vec4 a, Vec4 b) { return _mm_add_ps(a, b); }
inline Vec4 Load4(const float* p) { return _mm_loadu_ps(p); }
inline void Store4(float* p, Vec4 v) { _mm_storeu_ps(p, v); }

// Transposes 4x4 blocks within quarters of the vectors, then the quarters.
inline __attribute__((always_inline)) void Transpose(Vec (&v)[kLanes]) {
  Vec t[kLanes];
#pragma GCC unroll 4
  for (int i = 0; i < kLanes; i += 4) {
    const Vec low01 = Low(v[i], v[i + 1]), high01 = High(v[i], v[i + 1]);
    const Vec low23 = Low(v[i + 2], v[i + 3]), high23 = High(v[i + 2], v[i + 3]);
    t[i] = LowPairs(low01, low23);
    t[i + 1] = HighPairs(low01, low23);
    t[i + 2] = LowPairs(high01, high23);
    t[i + 3] = HighPairs(high01, high23);
  }
  TransposeQuarters(t, v);
}

// The four sums of elements.
inline Vec4 SumEach(Vec a, Vec b, Vec c, Vec d) {
  const Vec ab = Add(Low(a, b), High(a, b));
  const Vec cd = Add(Low(c, d), High(c, d));
  return AddQuarters(Add(LowPairs(ab, cd), HighPairs(ab, cd)));
}

// Rows of a matrix, one after another in memory.
struct MatrixRows {
  const float* first;
  const float* next;  // What will be read after them.
  int64_t stride;
  inline __attribute__((always_inline)) const float* At(int64_t row, int64_t k) const { return first + row * stride + k; }
  inline __attribute__((always_inline)) void FetchNext(int64_t row, int64_t k) const { __builtin_prefetch(next + row * stride + k); }
  // From `row` on; then comes `next_row`, or what comes after all of them if that is negative.
  MatrixRows From(int64_t row, int64_t next_row) const { return {At(row, 0), next_row >= 0 ? At(next_row, 0) : next, stride}; }
};

// The same of a matrix that lies transposed.
struct MatrixColumns {
  const float* first;
  int64_t stride;
  inline __attribute__((always_inline)) const float* At(int64_t row, int64_t k) const { return first + k * stride + row; }
  void FetchNext(int64_t, int64_t) const {}
  MatrixColumns From(int64_t row, int64_t) const { return {At(row, 0), stride}; }
};

// sink(r, v, sum over k of w[r][k] * panel[k * kVectors + v]) for each r and v.
template <int kRows, int kVectors, class Matrix, class Sink>
inline __attribute__((always_inline)) void Tile(const Matrix& w, const float* panel, int64_t depth, const Sink& sink) {
  Vec sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[r][v] = Zero();
  }
  for (int64_t line = 0; line < depth; line += kCacheLine) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) w.FetchNext(r, line);
    const int64_t end = depth - line < kCacheLine ? depth : line + kCacheLine;
    for (int64_t k = line; k < end; ++k) {
      Vec x[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) x[v] = Load(panel + (k * kVectors + v) * kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const Vec weight = Broadcast(w.At(r, k));
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sums[r][v] = MultiplyAdd(weight, x[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sink(r, v, sums[r][v]);
  }
}

// Tile for a number of rows that is known only now, at most kRows.
template <int kRows, int kVectors, class Matrix, class Sink>
void LastTile(int64_t rows, const Matrix& w, const float* panel, int64_t depth, const Sink& sink) {
  if (rows == kRows) return Tile<kRows, kVectors>(w, panel, depth, sink);
  if constexpr (kRows > 1) LastTile<kRows - 1, kVectors>(rows, w, panel, depth, sink);
}

// Tiles for all of `rows` rows of w; sink(row, v, sum).
template <int kRows, int kVectors, class Matrix, class Sink>
inline __attribute__((always_inline)) void Tiles(int64_t rows, const Matrix& w, const float* panel, int64_t depth, const Sink& sink) {
  int64_t row = 0;
  const auto shifted = [&](int r, int v, Vec sum) __attribute__((always_inline)) { sink(row + r, v, sum); };
  for (; rows - row >= kRows; row += kRows) {
    Tile<kRows, kVectors>(w.From(row, rows - row > kRows ? row + kRows : -1), panel, depth, shifted);
  }
  if (rows > row) LastTile<kRows, kVectors>(rows - row, w.From(row, -1), panel, depth, shifted);
}

// y[i][j] = scratch[j * row + i] + bias[j] for the first `height` rows and `width` columns, at most kLanes each.
inline __attribute__((always_inline)) void WriteTile(const float* scratch, int64_t row, Vec bias, int64_t height, int64_t width,
                                                     int64_t y_stride, float* y) {
  Vec tile[kLanes];
#pragma GCC unroll 16
  for (int j = 0; j < kLanes; ++j) tile[j] = Load(scratch + j * row);
  Transpose(tile);
  if (height == kLanes && width == kLanes) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) Store(y + i * y_stride, Add(tile[i], bias));
    return;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if (i < height) StoreFirst(y + i * y_stride, Add(tile[i], bias), width);
  }
}

// Columns [begin, begin + count) of y from scratch, where y lies transposed.
template <int kVectors>
void WriteBlock(const Product& product, int64_t first, int64_t rows, int64_t begin, int64_t count, const float* scratch) {
  for (int64_t c = 0; c < count; c += kLanes) {
    const int64_t width = count - c < kLanes ? count - c : kLanes;
    const Vec bias = product.bias != nullptr ? LoadFirst(product.bias + begin + c, width) : Zero();
    for (int64_t r = 0; r < rows; r += kLanes) {
      const int64_t height = rows - r < kLanes ? rows - r : kLanes;
      WriteTile(scratch + c * kVectors * kLanes + r, kVectors * kLanes, bias, height, width, product.y_stride,
                product.y + (first + r) * product.y_stride + begin + c);
    }
  }
}

template <int kRows, int kVectors>
void PanelBlock(const Product& product, int64_t first, int64_t rows, const float* panel, int64_t begin, int64_t end, float* scratch) {
  for (int64_t k = 0; k < product.depth; k += kDepthBlock) {
    const int64_t depth = product.depth - k < kDepthBlock ? product.depth - k : kDepthBlock;
    const float* w = product.w + begin * product.w_stride + k;
    const float* next = k + depth < product.depth ? w + depth : product.w + end * product.w_stride;  // After this part of the rows.
    const auto sink = [&](int64_t row, int v, Vec sum) __attribute__((always_inline)) {
      float* place = scratch + (row * kVectors + v) * kLanes;
      Store(place, k > 0 ? Add(Load(place), sum) : sum);
    };
    Tiles<kRows, kVectors>(end - begin, MatrixRows{w, next, product.w_stride}, panel + k * kVectors * kLanes, depth, sink);
  }
  WriteBlock<kVectors>(product, first, rows, begin, end - begin, scratch);
}

// The other way round: the panel is of rows of w, and y is written as it lies. kFull: columns fill the vectors.
template <int kRows, int kVectors, bool kFull>
void ColumnsBlock(const Product& product, int64_t first, int64_t end, const float* panel, int64_t begin, int64_t count) {
  for (int64_t k = 0; k < product.depth; k += kDepthBlock) {
    const int64_t depth = product.depth - k < kDepthBlock ? product.depth - k : kDepthBlock;
    const float* x = product.x + first * product.x_stride + k;
    const auto sink = [&](int64_t row, int v, Vec sum) __attribute__((always_inline)) {
      const int64_t column = begin + v * kLanes, width = count - v * kLanes < kLanes ? count - v * kLanes : kLanes;
      const auto load = [&](const float* p) __attribute__((always_inline)) { return kFull ? Load(p) : LoadFirst(p, width); };
      float* y = product.y + (first + row) * product.y_stride + column;
      if (k > 0) sum = Add(load(y), sum);
      if (k + depth == product.depth && product.bias != nullptr) sum = Add(sum, load(product.bias + column));
      if (kFull) {
        Store(y, sum);
      } else {
        StoreFirst(y, sum, width);
      }
    };
    Tiles<kRows, kVectors>(end - first, MatrixRows{x, x + depth, product.x_stride}, panel + k * kVectors * kLanes, depth, sink);
  }
}

template <int kRows, int kVectors>
void ColumnsBlock(const Product& product, int64_t first, int64_t end, const float* panel, int64_t begin, int64_t count) {
  if (count == kVectors * kLanes) return ColumnsBlock<kRows, kVectors, true>(product, first, end, panel, begin, count);
  ColumnsBlock<kRows, kVectors, false>(product, first, end, panel, begin, count);
}

// panel[k * row + r] = x[r][k] for the first `height` rows and `width` elements of kLanes each; 0 for other rows.
inline __attribute__((always_inline)) void PackTile(const float* x, int64_t x_stride, int64_t height, int64_t width, int64_t row,
                                                    float* panel) {
  Vec tile[kLanes];
  if (height >= kLanes && width == kLanes) {
#pragma GCC unroll 16
    for (int r = 0; r < kLanes; ++r) tile[r] = Load(x + r * x_stride);
    Transpose(tile);
#pragma GCC unroll 16
    for (int k = 0; k < kLanes; ++k) Store(panel + k * row, tile[k]);
    return;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r) tile[r] = r < height ? LoadFirst(x + r * x_stride, width) : Zero();
  Transpose(tile);
#pragma GCC unroll 16
  for (int k = 0; k < kLanes; ++k) {
    if (k < width) Store(panel + k * row, tile[k]);
  }
}

template <int kVectors>
void PackPanel(const Product& product, int64_t first, int64_t rows, float* panel) {
  for (int64_t k = 0; k < product.depth; k += kLanes) {
    const int64_t width = product.depth - k < kLanes ? product.depth - k : kLanes;
    for (int64_t r = 0; r < kVectors * kLanes; r += kLanes) {
      PackTile(product.x + (first + r) * product.x_stride + k, product.x_stride, rows - r, width, kVectors * kLanes,
               panel + k * kVectors * kLanes + r);
    }
  }
}

// kXRows rows of x with 4 groups of kGroups rows of w: vectors run along the depth, and their elements are summed in the end.
template <int kXRows, int kGroups>
void DotTile(const Product& product, int64_t first, int64_t column) {
  constexpr int kWRows = 4 * kGroups;
  const float* x = product.x + first * product.x_stride;
  const float* w = product.w + column * product.w_stride;
  Vec sums[kXRows][kWRows];
#pragma GCC unroll 8
  for (int i = 0; i < kXRows; ++i) {
#pragma GCC unroll 8
    for (int r = 0; r < kWRows; ++r) sums[i][r] = Zero();
  }
  const auto step = [&](const auto& load, int64_t k) __attribute__((always_inline)) {
    Vec rows[kXRows];
#pragma GCC unroll 8
    for (int i = 0; i < kXRows; ++i) rows[i] = load(x + i * product.x_stride + k);
#pragma GCC unroll 8
    for (int r = 0; r < kWRows; ++r) {
      const Vec weight = load(w + r * product.w_stride + k);
#pragma GCC unroll 8
      for (int i = 0; i < kXRows; ++i) sums[i][r] = MultiplyAdd(rows[i], weight, sums[i][r]);
    }
  };
  int64_t k = 0;
  for (; k + kLanes <= product.depth; k += kLanes)
    step(
        [](const float* p) __attribute__((always_inline)) { return Load(p); }, k);
  const int64_t rest = product.depth - k;
  if (rest > 0)
    step(
        [rest](const float* p) __attribute__((always_inline)) { return LoadFirst(p, rest); }, k);
#pragma GCC unroll 8
  for (int i = 0; i < kXRows; ++i) {
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      Vec4 y = SumEach(sums[i][4 * g], sums[i][4 * g + 1], sums[i][4 * g + 2], sums[i][4 * g + 3]);
      if (product.bias != nullptr) y = Add4(y, Load4(product.bias + column + 4 * g));
      Store4(product.y + (first + i) * product.y_stride + column + 4 * g, y);
    }
  }
}

// One column: what is left where there are not four.
void DotColumn(const Product& product, int64_t column) {
  const float* w = product.w + column * product.w_stride;
  for (int64_t i = 0; i < product.rows; ++i) {
    const float* x = product.x + i * product.x_stride;
    Vec sum = Zero();
    int64_t k = 0;
    for (; k + kLanes <= product.depth; k += kLanes) sum = MultiplyAdd(Load(x + k), Load(w + k), sum);
    sum = MultiplyAdd(LoadFirst(x + k, product.depth - k), LoadFirst(w + k, product.depth - k), sum);
    float four[4];
    Store4(four, SumEach(sum, Zero(), Zero(), Zero()));
    product.y[i * product.y_stride + column] = four[0] + (product.bias != nullptr ? product.bias[column] : 0.0f);
  }
}

// Rows of x by `kMost`, which with four rows of w fill the registers.
template <int kMost>
void DotRows(const Product& product, int64_t first, int64_t column) {
  const int64_t rows = product.rows - first;
  if (rows >= kMost) {
    DotTile<kMost, 1>(product, first, column);
    if (rows > kMost) DotRows<kMost>(product, first + kMost, column);
  } else if constexpr (kMost > 1) {
    DotRows<kMost - 1>(product, first, column);
  }
}

// kMostOfEight: up to how many rows of x meet eight rows of w at a time.
template <int kMost, int kMostOfEight>
void Direct(const Product& product, int64_t begin, int64_t end) {
  int64_t c = begin;
  if (product.rows <= kMostOfEight) {
    for (; c + 8 <= end; c += 8) {
      if (product.rows == 1) {
        DotTile<1, 2>(product, 0, c);
      } else {
        DotTile<kMostOfEight, 2>(product, 0, c);
      }
    }
  }
  for (; c + 4 <= end; c += 4) DotRows<kMost>(product, 0, c);
  for (; c < end; ++c) DotColumn(product, c);
}
