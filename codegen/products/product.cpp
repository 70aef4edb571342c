#include "codegen/products/product.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "codegen/products/product_tiles.h"
#include "codegen/thread_scratch.h"

namespace lazuli::codegen {
namespace {

constexpr double kGrainNs = 2000;        // A thread is worth waking for this much work: the others still spin, just after another product.
constexpr double kFlopsPerNs = 60;       // Of one core, at least.
constexpr double kBytesPerNs = 20;       // Of weights, from memory.
constexpr int64_t kColumnsPerUnit = 16;  // Threads get columns by so many: a cache line of y.

// How many threads are worth waking.
int64_t NumThreads(const Product& product) {
  const double weights = static_cast<double>(product.depth * product.cols);
  const double ns = std::max(weights * 2 * static_cast<double>(product.rows) / kFlopsPerNs, weights * sizeof(float) / kBytesPerNs);
  return std::clamp<int64_t>(static_cast<int64_t>(ns / kGrainNs), 1, at::get_num_threads());
}

// y, cut into parts for the threads, none of which waits for another.
struct Partition {
  int64_t rows, cols;  // Of a part; the last ones may have fewer.
  int64_t row_parts, col_parts;
};

// Each thread fetches its rows of x from where another one wrote them, packs them, and multiplies while it fetches its rows of w. Costs are
// in cycles for each element of the depth: measured, on a server CPU of 2022.
Partition Divide(const Product& product, int64_t threads, int64_t lanes) {
  constexpr double kFetchAndPack = 2.4, kMultiply = 1.0 / 32, kMultiplyNarrow = 1.5 / 32;  // Narrow: rows of one vector.
  constexpr int64_t kOwnCacheFloats = 1 << 18;  // Larger weights come from where all threads get theirs.
  const double fetch_weight = product.fresh_w ? 2.0 : (product.cols * product.depth <= kOwnCacheFloats ? 0.6 : 1.2);
  Partition best{};
  double least = 0;
  for (int64_t row_parts = 1; row_parts <= std::min(threads, at::divup(product.rows, lanes)); ++row_parts) {
    const int64_t rows = at::divup(at::divup(product.rows, lanes), row_parts) * lanes;
    const int64_t cols = at::divup(at::divup(product.cols, kColumnsPerUnit), threads / row_parts) * kColumnsPerUnit;
    const auto r = static_cast<double>(rows), c = static_cast<double>(cols);
    const double cost = r * kFetchAndPack + std::max(c * fetch_weight, r * c * (rows > lanes ? kMultiply : kMultiplyNarrow));
    if (row_parts > 1 && cost >= least) continue;
    least = cost;
    best = {rows, cols, at::divup(product.rows, rows), at::divup(product.cols, cols)};
  }
  return best;
}

// Calls fn(part) for each, on LibTorch's threads.
template <class Fn>
void ForParts(int64_t count, const Fn& fn) {
  if (count == 1) return fn(0);
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) fn(part);
  });
}

// Rows [first, end) of x against rows [begin_col, end_col) of w.
void RunPart(const Product& product, const ProductTiles& tiles, int64_t first, int64_t end, int64_t begin_col, int64_t end_col) {
  ThreadScratch& panels = ScratchOfThread<struct Panels>();
  alignas(64) float scratch[kProductBlock * kMaxPanelFloats];
  const int64_t all_vectors = at::divup(end - first, tiles.lanes);
  const int64_t num_blocks = at::divup(all_vectors, tiles.max_vectors);
  const int64_t vectors = at::divup(all_vectors, num_blocks);  // Of a panel's row.
  const int64_t panel_floats = product.depth * vectors * tiles.lanes;
  auto* const panel = static_cast<float*>(panels.Reserve(num_blocks * panel_floats * static_cast<int64_t>(sizeof(float))));
  const auto for_blocks = [&](const auto& fn) {
    float* block = panel;
    for (int64_t row = first; row < end; row += vectors * tiles.lanes, block += panel_floats) {
      const int64_t count = std::min(end - row, vectors * tiles.lanes);
      fn(row, count, at::divup(count, tiles.lanes), block);
    }
  };
  for_blocks([&](int64_t row, int64_t count, int64_t width, float* block) { tiles.pack(product, row, count, width, block); });
  for (int64_t col = begin_col; col < end_col; col += kProductBlock) {
    for_blocks([&](int64_t row, int64_t count, int64_t width, const float* block) {
      tiles.panel(product, row, count, width, block, col, std::min(col + kProductBlock, end_col), scratch);
    });
  }
}

constexpr int64_t kBlockRows = 64;  // That go through all stages at a time.

// All of w in panels, for many rows of x.
class PackedWeights {
 public:
  PackedWeights(const Product& product, const ProductTiles& tiles) : tiles_(tiles), width_(tiles.lanes * tiles.max_vectors) {
    ThreadScratch& scratch = ScratchOfThread<PackedWeights>();
    const int64_t panels = at::divup(product.cols, width_), panel_floats = width_ * product.depth;
    panels_ = static_cast<float*>(scratch.Reserve(panels * panel_floats * static_cast<int64_t>(sizeof(float))));
    Product transposed = product;
    transposed.x = product.w;
    transposed.x_stride = product.w_stride;
    ForParts(panels, [&](int64_t p) {
      const int64_t count = std::min(width_, product.cols - p * width_);
      tiles.pack(transposed, p * width_, count, at::divup(count, tiles.lanes), panels_ + p * panel_floats);
    });
  }

  // Rows [first, end) of y.
  void Multiply(const Product& product, int64_t first, int64_t end) const {
    for (int64_t col = 0; col < product.cols; col += width_) {
      const int64_t count = std::min(width_, product.cols - col);
      tiles_.columns(product, first, end, at::divup(count, tiles_.lanes), panels_ + col * product.depth, col, count);
    }
  }

 private:
  const ProductTiles& tiles_;
  int64_t width_;
  float* panels_;
};

// Whether all of w is to be packed: then rows of x need not be, and y comes out as it lies. Measured where both are equal.
bool PaysToPack(const Product& product, int64_t threads) {
  constexpr int64_t kWeights = 5;
  return product.rows / threads * (product.depth + product.cols) > kWeights * product.depth * product.cols;
}

// Rows [first, end) through all stages. `weights`: null where w is to be read where it lies.
void RunBlock(Product product, const ProductTiles& tiles, const PackedWeights* weights, const RowStages& stages, int64_t first,
              int64_t end) {
  ThreadScratch &x_rows = ScratchOfThread<struct RowsOfX>(), &y_rows = ScratchOfThread<struct RowsOfY>();
  const auto room = [&](ThreadScratch* scratch, int64_t row) {
    return static_cast<float*>(scratch->Reserve((end - first) * row * static_cast<int64_t>(sizeof(float)))) - first * row;
  };
  float* const x = stages.private_x ? room(&x_rows, product.depth) : nullptr;
  float* const y = stages.private_y ? room(&y_rows, product.cols) : nullptr;
  if (x != nullptr) {
    product.x_stride = product.depth;
    product.x = x;
  }
  if (y != nullptr) {
    product.y_stride = product.cols;
    product.y = y;
  }
  stages.before(first, end, x);
  if (product.x_group > 0) {
    float* const rows = room(&x_rows, product.depth);
    for (int64_t row = first; row < end; ++row) {
      const float* from = product.x + row / product.x_group * product.x_group_stride + row % product.x_group * product.x_stride;
      std::copy_n(from, product.depth, rows + row * product.depth);
    }
    product.x = rows;
    product.x_stride = product.depth;
  }
  if (weights != nullptr) {
    weights->Multiply(product, first, end);
  } else {
    RunPart(product, tiles, first, end, 0, product.cols);
  }
  stages.after(first, end, y);
}

}  // namespace

const ProductTiles* TilesFor(runtime::Isa isa) {
  if (isa == runtime::Isa::kAvx512) return &kProductTilesAvx512;
  return isa == runtime::Isa::kAvx2 ? &kProductTilesAvx2 : nullptr;
}

bool SuitsProduct(int64_t rows, int64_t cols, int64_t depth) {
  constexpr int64_t kMaxRows = 64;          // The library's copy of w costs more than we lose elsewhere,
  constexpr int64_t kMaxRowsInCache = 128;  // and up to here, if all of x is at hand.
  constexpr int64_t kCachedFloats = 1 << 18;
  constexpr int64_t kMaxPackedFloats = 1 << 20;  // Each thread keeps room for so many.
  const ProductTiles* tiles = TilesFor(runtime::Active().isa);
  if (rows <= 0 || cols <= 0 || depth <= 0 || tiles == nullptr) return false;
  if (rows <= tiles->direct_rows) return true;
  return rows * depth <= (rows <= kMaxRows ? kMaxPackedFloats : kCachedFloats) && rows <= kMaxRowsInCache;
}

void RunProduct(const Product& product, runtime::Isa isa) {
  const ProductTiles& tiles = *TilesFor(isa);
  const int64_t threads = NumThreads(product);
  if (product.rows <= tiles.direct_rows) {
    const int64_t cols = at::divup(at::divup(product.cols, kColumnsPerUnit), threads) * kColumnsPerUnit;
    return ForParts(at::divup(product.cols, cols),
                    [&](int64_t part) { tiles.direct(product, part * cols, std::min((part + 1) * cols, product.cols)); });
  }
  const Partition parts = Divide(product, threads, tiles.lanes);
  ForParts(parts.row_parts * parts.col_parts, [&](int64_t part) {
    const int64_t row = part % parts.row_parts * parts.rows, col = part / parts.row_parts * parts.cols;
    RunPart(product, tiles, row, std::min(row + parts.rows, product.rows), col, std::min(col + parts.cols, product.cols));
  });
}

void RunProduct(const Product& product) { RunProduct(product, runtime::Active().isa); }

bool SuitsRowStages(const Product& product, int64_t granule) {
  constexpr int64_t kMaxBlockFloats = 1 << 18;  // Rows of x, once more as a panel, and of y, should stay in a core's cache.
  const ProductTiles* tiles = TilesFor(runtime::Active().isa);
  if (product.rows <= 0 || product.cols <= 0 || product.depth <= 0 || tiles == nullptr) return false;
  if (granule <= 0 || granule > 2 * kBlockRows || product.rows <= tiles->direct_rows) return false;
  if ((2 * product.depth + product.cols) * std::max(granule, kBlockRows) > kMaxBlockFloats) return false;
  const int64_t threads = NumThreads(product);
  if (product.rows >= kBlockRows * threads) return true;
  // With fewer rows, dividing columns, too, may be better.
  return Divide(product, threads, tiles->lanes).col_parts == 1 && product.rows >= std::lcm(tiles->lanes, granule) * threads;
}

void RunProduct(const Product& product, const RowStages& stages, runtime::Isa isa) {
  const ProductTiles& tiles = *TilesFor(isa);
  const int64_t granule = std::lcm(tiles.lanes, stages.granule);
  const int64_t granules = at::divup(product.rows, granule);
  const int64_t threads = std::min(NumThreads(product), granules);
  std::optional<PackedWeights> weights;
  if (PaysToPack(product, threads)) weights.emplace(product, tiles);
  ForParts(threads, [&](int64_t thread) {
    const int64_t begin = granules * thread / threads, end = granules * (thread + 1) / threads;
    const int64_t blocks = at::divup((end - begin) * granule, std::max(kBlockRows, granule));
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t first = (begin + (end - begin) * b / blocks) * granule, last = (begin + (end - begin) * (b + 1) / blocks) * granule;
      RunBlock(product, tiles, weights ? &*weights : nullptr, stages, first, std::min(last, product.rows));
    }
  });
}

}  // namespace lazuli::codegen
