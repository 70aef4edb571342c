// How far two tensors' values are apart: what verification, tools and tests mean by "the same".
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>

namespace lazuli::codegen {

// How far values may be off. Both zero: every element bit-equal, signs of zeros included; any NaN equals any other.
struct Tolerance {
  double ulps = 0;   // Of each element of the expected tensor, in its own dtype.
  double scale = 0;  // Machine epsilons of the dtype, times the largest finite magnitude in the expected tensor or 1, whichever is larger.
};

// The machine epsilon of a floating dtype, a complex one's parts included; that of double for others.
double EpsilonOf(c10::ScalarType dtype);

struct ValueDifference {
  int64_t index = 0;  // Of the first element that differs, in the tensor's order of elements.
  std::string expected, actual;
  std::string text;  // "element 3: expected 1.5, got 1.25 (off by 2.0972e+06 ulp, 4 allowed)".
};

// The first difference between two defined tensors of one dtype and one size; none when `actual` is near enough everywhere. NaNs and
// infinities must be in the same places; integers and bools are never off.
std::optional<ValueDifference> FirstValueDifference(const at::Tensor& expected, const at::Tensor& actual, const Tolerance& tolerance);

// The largest distance between finite elements; infinite where only one of two is finite.
double LargestDifference(const at::Tensor& expected, const at::Tensor& actual);

}  // namespace lazuli::codegen
