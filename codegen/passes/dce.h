// Removes nodes whose results nobody can see: neither a visible storage's content nor an operand of a node that stays.
#pragma once

#include "absl/status/statusor.h"
#include "codegen/ir/graph.h"

namespace lazuli::codegen {

// Results that nothing uses are marked kNoValue in nodes that stay, so that lowering makes no memory for them.
absl::StatusOr<Graph> EliminateDeadCode(Graph graph);

}  // namespace lazuli::codegen
