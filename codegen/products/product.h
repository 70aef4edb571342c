// Products of a few rows with a matrix whose rows are contiguous, as a linear layer's weight is: y = x * w^T + bias.
//
// Libraries copy such a matrix into another order at each call, which pays only where many rows meet it. Here it is read once, where it is.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "runtime/options.h"

namespace lazuli::codegen {

// y (rows x cols) = x (rows x depth) * w (cols x depth)^T + bias (cols). Row r of x begins at x + r * x_stride, and so on; within a row,
// elements are neighbours. y must not overlap an operand.
struct Product {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t depth = 0;
  const float* x = nullptr;
  int64_t x_stride = 0;
  const float* w = nullptr;
  int64_t w_stride = 0;
  const float* bias = nullptr;  // May be null: no bias.
  float* y = nullptr;
  int64_t y_stride = 0;
  // Whether w was written lately: then most of it is in the caches of the threads that did, each a part, and expensive to read for others.
  bool fresh_w = false;
  // Rows of x come in groups of so many, that begin so far from each other: the pixels that a convolution with strides takes. 0: all rows
  // are one group. Only for a product with stages.
  int64_t x_group = 0;
  int64_t x_group_stride = 0;
};

// Whether RunProduct beats the library: few rows, and instructions that the options in force allow. Sums are taken in another order than
// the library's, and always in the same one, whatever the number of threads.
bool SuitsProduct(int64_t rows, int64_t cols, int64_t depth);

// On LibTorch's threads. `isa`, for tests: another than that of the options in force; kAvx2 or kAvx512. Throws std::bad_alloc.
void RunProduct(const Product& product);
void RunProduct(const Product& product, runtime::Isa isa);

// What else is done with the rows of a product, some at a time, while they are in a core's cache.
struct RowStages {
  using Stage = absl::FunctionRef<void(int64_t begin, int64_t end, float* rows)>;
  // Computes rows [begin, end) of x before they are multiplied, and uses those of y when they are complete. Each row comes once, on any of
  // LibTorch's threads. `rows`, where x or y is private: where its row 0 would be, of which only the rows at hand exist. Otherwise null.
  Stage before, after;
  // Whether nobody else needs x or y: then its rows exist for the time of a block, one after another, and Product::x or y is not used.
  bool private_x = false;
  bool private_y = false;
  int64_t granule = 1;  // `begin` is a multiple of it, and `end`, but at the end of all rows.
};

// Whether a product in blocks of whole rows is as fast as any other. Of `product`, only its sizes and fresh_w count.
bool SuitsRowStages(const Product& product, int64_t granule);

// The product with its stages. Throws std::bad_alloc.
void RunProduct(const Product& product, const RowStages& stages, runtime::Isa isa);

}  // namespace lazuli::codegen
