// Products of matrices on a GPU whose rows are no whole number of the pieces that its tensor cores read: 50257 classes, say.
#pragma once

#include <optional>

#include "codegen/ir/trace.h"

namespace lazuli::codegen {

struct PadProductsOptions {
  bool halves = false;  // Products of BFloat16 and Half,
  bool floats = false;  // and of Float, which are computed in TF32.
};

// `trace` with the operands of such products (mm, addmm) padded by zeros, so that all rows in memory are a multiple of 16 bytes, where the
// libraries' kernels are several times as fast; what is beyond the result is cut off. None where it has none for which that takes less
// time. Padding is not another copy where a kernel makes the operand, nor cutting off where one reads the result.
std::optional<Trace> PadProducts(const Trace& trace, const PadProductsOptions& options);

}  // namespace lazuli::codegen
