// Where a trace is best cut in two, so that its first part can run while the rest is recorded.
#pragma once

#include <cstdint>

#include "codegen/ir/graph.h"

namespace lazuli::codegen {

// The number of the trace's operators in the first part; 0: there is no good place. A place is good that is in the first half, though not
// at the very start, and where hardly any fused kernel has operators of both parts (a backward pass that updates weights as it goes is full
// of those, the border between two layers is not); the nearest to a quarter is taken. Groups are known.
int32_t EarlyEnd(const Graph& graph);

}  // namespace lazuli::codegen
