// Brings sums of columns on a GPU next to the kernel that goes through the same rows, so that it can take them over (cuda/partial_sums.h).
#pragma once

#include "absl/status/statusor.h"
#include "codegen/ir/graph.h"

namespace lazuli::codegen {

// Moves each group that sums columns of what a nearby group, which reduces rows, reads or makes to right after that, where nothing in
// between forbids it. Other groups stay in order.
absl::StatusOr<Graph> PlaceColumnSums(Graph graph);

}  // namespace lazuli::codegen
