// Computes what is small where kernels of more points read it, rather than in a kernel of its own.
#pragma once

#include "absl/status/statusor.h"
#include "codegen/ir/graph.h"
#include "codegen/passes/fuse.h"

namespace lazuli::codegen {

// A group of pointwise nodes that only kernels read, which use each of its elements at many of their points (positions, masks of lengths,
// scaled biases, rates), goes: each of these kernels gets nodes of its own that compute it at every point. So it is where that takes less
// than a launch, over all of them. A pass over the groups that Fuse makes, whose options say how large these may be.
absl::StatusOr<Graph> InlineBroadcasts(Graph graph, const FuseOptions& options);

}  // namespace lazuli::codegen
