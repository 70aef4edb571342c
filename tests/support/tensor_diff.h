// What tells two results of one program apart, in words: for tests that run thousands of small programs.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

namespace lazuli::testing {

using Tensors = std::vector<torch::Tensor>;

// How far values may be off. Both zero: every element bit-equal, signs of zeros included; any NaN equals any other.
struct Tolerance {
  double ulps = 0;   // Of each element of the expected tensor, in its own dtype.
  double scale = 0;  // Machine epsilons of the dtype, times the largest finite magnitude in the expected tensor or 1, whichever is larger.
};

// "" when `actual` is like `expected` in definedness, dtype, sizes, strides, storage offset, requires_grad and values; else the first
// difference. NaNs and infinities must always be in the same places; integers and bools are never off.
std::string DiffTensors(const torch::Tensor& expected, const torch::Tensor& actual, const Tolerance& tolerance);

// The first difference among tensors, or in which of them share memory.
std::string DiffAll(const Tensors& expected, const Tensors& actual, const Tolerance& tolerance);

// For each tensor the number of the first one in the same storage.
std::vector<int> AliasClasses(const Tensors& tensors);

}  // namespace lazuli::testing
