// Products of a few rows with a matrix whose rows are contiguous, as a linear layer's weight is: y = x * w^T + bias.
//
// Libraries copy such a matrix into another order at each call, which pays only where many rows meet it. Here it is read once, where it is.
#pragma once

#include <cstdint>

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
};

// Whether RunProduct beats the library: few rows, and instructions that the options in force allow. Sums are taken in another order than
// the library's, and always in the same one, whatever the number of threads.
bool SuitsProduct(int64_t rows, int64_t cols, int64_t depth);

// On LibTorch's threads. `isa`, for tests: another than that of the options in force; kAvx2 or kAvx512. Throws std::bad_alloc.
void RunProduct(const Product& product);
void RunProduct(const Product& product, runtime::Isa isa);

}  // namespace lazuli::codegen
