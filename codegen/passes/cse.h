// Merges nodes that compute the same thing from the same values.
#pragma once

#include "absl/status/statusor.h"
#include "codegen/ir/graph.h"

namespace lazuli::codegen {

// Only compute nodes are merged. A result that has to have memory of its own (a visible storage's content, or one that is overwritten
// in place later) is never replaced.
absl::StatusOr<Graph> EliminateCommonSubexpressions(Graph graph);

}  // namespace lazuli::codegen
