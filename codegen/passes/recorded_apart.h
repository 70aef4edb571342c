// Steps of a program for a GPU run while its trace is still recorded (runtime::Program::RunAhead): in order, each when its last operator is
// there.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/ir/graph.h"

namespace lazuli::codegen {

// Operators recorded further apart than this do not become one kernel, or one batch of kernels, where that would hold up others: a batch
// only saves launches.
constexpr int32_t kMostOpsApart = 64, kMostOpsApartInBatch = 16;

// Whether nodes on a GPU that use what `nodes` make would wait for operators of `joining`, recorded much later, if these became one step
// with `nodes`. `users`: by value, the nodes that use it.
bool HoldsUp(const Graph& graph, const std::vector<std::vector<NodeId>>& users, const std::vector<NodeId>& nodes,
             const std::vector<NodeId>& joining);

}  // namespace lazuli::codegen
