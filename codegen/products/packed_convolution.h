// Convolutions whose weights stay the same: these are put into the library's own order once, not at each call.
//
// Nothing is assumed of who may write weights, or how: each run hashes them (a fraction of what reordering takes), and where they changed
// the operator is called as ever.
#pragma once

#include <memory>

#include "codegen/ir/graph.h"
#include "runtime/executor.h"

namespace lazuli::codegen {

// For `node` of `graph`. Null where it is no convolution whose weights may be kept, or the trace writes them. `weight` gets their argument.
std::shared_ptr<runtime::KeptCall> FindPackedCall(const Node& node, const Graph& graph, int* weight);

}  // namespace lazuli::codegen
