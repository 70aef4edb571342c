// Finds results that are made by copying an operand to its place in them, where the kernel that makes the operand had better write there.
#pragma once

#include <vector>

#include "codegen/ir/graph.h"

namespace lazuli::codegen {

// Whether `graph` has a node that may be one (OpRow::place).
bool MayPlace(const Graph& graph);

// By op of the trace of `fused`, the graph after fuse: those that are, for BuildOptions::placed_ops. Empty when there are none. An operand
// counts if a kernel makes it that does not make the result as well, and stores it for this node alone; if the node's kernel does nothing
// else; and if the operand is at least half of the result, so that the rest is filled at less than the copy's cost.
std::vector<bool> OpsToPlace(const Graph& fused, size_t num_ops);

}  // namespace lazuli::codegen
