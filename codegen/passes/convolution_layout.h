// What convolutions take and give lies channels last, where the trace itself makes it: on a GPU cuDNN's kernels for tensor cores work on
// that order, and copy to it and back otherwise, and it has kernels for depthwise convolutions that ATen's own are several times slower
// than; on a CPU oneDNN's kernels for few channels and groups are, and batches of small images are copied otherwise.
#pragma once

#include "absl/status/statusor.h"
#include "codegen/passes/convolutions.h"

namespace lazuli::codegen {

// After cse. Gives values another order of dimensions, all that pointwise operators and the like make of each other alike, where everyone
// who reads them can read them there. Convolutions then add up in another order. What leaves the trace, or is read by ATen's other
// operators, lies as recorded.
absl::StatusOr<Graph> ChooseConvolutionLayout(Graph graph, const ConvolutionLayoutOptions& options);

}  // namespace lazuli::codegen
