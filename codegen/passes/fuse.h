// Partitions the nodes into groups that run as one kernel each, and orders the groups.
#pragma once

#include "absl/status/statusor.h"
#include "codegen/ir/graph.h"

namespace lazuli::codegen {

struct FuseOptions {
  bool enabled = true;    // Off: every node is a group of its own.
  int max_nodes = 96;     // In one group.
  int max_operands = 60;  // Buffers of one kernel.
};

// Two groups merge when one iteration space serves both (the same, or one has the other's shape left after its reductions), every value
// made inside is used inside at the point where it is made, no memory is read elsewhere than where it is written, no path leads from
// one group to the other through a third, and, on a GPU, nobody waits for operators that are recorded much later (recorded_apart.h).
absl::StatusOr<Graph> Fuse(Graph graph, const FuseOptions& options);

}  // namespace lazuli::codegen
