// Computes values anew where that moves fewer bytes than storing them.
#pragma once

#include "absl/status/statusor.h"
#include "codegen/ir/graph.h"

namespace lazuli::codegen {

// A value that arithmetic makes of one tensor which is in memory anyway, or none, and of numbers for each row or column, need not be stored
// for kernels that read it after the one that makes it: each gets nodes of its own that compute it (Node::again). So the gradient
// of a cross entropy reads the logits, and for each row two numbers, in place of log-probabilities. A kernel that picks some elements
// picks them out of that tensor, and computes the value for these alone. So it is where the arithmetic takes less time than moving the
// bytes would.
//
// Which values would be stored is known from how the graph fuses as it is.
absl::StatusOr<Graph> Rematerialize(Graph graph);

}  // namespace lazuli::codegen
