// cuDNN's attention where sizes change from run to run. cuDNN makes a plan for each set of sizes, which takes tens of milliseconds on the
// host: a decoder whose cache grows by a token would wait for one at each token. Flash attention, which needs none and gives the same
// results, takes its place until what cuDNN would have been faster by comes to what a plan takes.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "codegen/ir/graph.h"
#include "runtime/executor.h"

namespace lazuli::codegen {

// FindDirectCall (direct_calls.h) for aten::_scaled_dot_product_cudnn_attention and its gradient, where sizes of `node` are symbols; null
// for any other operator.
runtime::DirectCall FindFlashCall(const Node& node, const OpInfo& called, const Graph& graph);

// Whether a plan pays by now for attention that comes once more. `sizes` say which plan it is; the call takes so many
// `multiplications`. Thread-safe.
bool PlanPays(absl::Span<const int64_t> sizes, double multiplications);

}  // namespace lazuli::codegen
