// What convolutions on a GPU take and give lies channels last, where the trace itself makes it: cuDNN's kernels for tensor cores work on
// that order, and copy to it and back otherwise, and it has kernels for depthwise convolutions that ATen's own are several times slower
// than.
#pragma once

#include "absl/status/statusor.h"
#include "codegen/ir/graph.h"

namespace lazuli::codegen {

struct ConvolutionLayoutOptions {
  bool halves = false;
  bool floats = false;  // Where cuDNN may use TF32.
  constexpr bool any() const { return halves || floats; }
};

// After cse. Gives values another order of dimensions, all that pointwise operators and the like make of each other alike, where everyone
// who reads them can read them there. Convolutions then add up in another order. What leaves the trace, or is read by ATen's other
// operators, lies as recorded.
absl::StatusOr<Graph> ChooseConvolutionLayout(Graph graph, const ConvolutionLayoutOptions& options);

}  // namespace lazuli::codegen
