// What tells two results of one program apart, in words: for tests that run thousands of small programs.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "codegen/value_diff.h"

namespace lazuli::testing {

using Tensors = std::vector<torch::Tensor>;

using Tolerance = codegen::Tolerance;

// "" when `actual` is like `expected` in definedness, dtype, sizes, strides, storage offset, requires_grad and values; else the first
// difference. NaNs and infinities must always be in the same places; integers and bools are never off.
std::string DiffTensors(const torch::Tensor& expected, const torch::Tensor& actual, const Tolerance& tolerance);

// The first difference among tensors, or in which of them share memory.
std::string DiffAll(const Tensors& expected, const Tensors& actual, const Tolerance& tolerance);

// For each tensor the number of the first one in the same storage.
std::vector<int> AliasClasses(const Tensors& tensors);

}  // namespace lazuli::testing
