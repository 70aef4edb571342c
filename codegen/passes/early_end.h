// Where a trace is best cut, so that its first parts can run while the rest is recorded.
#pragma once

#include "codegen/ir/graph.h"
#include "runtime/program.h"

namespace lazuli::codegen {

// By twelfth of the work that the trace's operators are for a GPU: the number of operators before the best place to cut near its end; 0:
// there is no good one. A cut costs what has to be stored and read again where one kernel has operators of both sides, and memory that is
// not taken then (passes/reuse.h): little between two layers, much where an optimizer updates each weight in one kernel or where a loss
// meets its gradient. A place is good where that is little beside the work between two places, and where it does not raise the most memory
// that is in use at once. Groups are known.
runtime::EarlyEnds FindEarlyEnds(const Graph& graph);

}  // namespace lazuli::codegen
