// Operators that code of our own computes, where it is faster than ATen's, without the dispatcher.
#pragma once

#include "codegen/ir/graph.h"
#include "codegen/ir/op_info.h"
#include "runtime/executor.h"

namespace lazuli::codegen {

// For `node` of `graph`, which `out`, an out-variant, is to compute: what to try before calling `out`. Null where sizes or strides that are
// known by now rule our code out, or there is none.
runtime::DirectCall FindDirectCall(const Node& node, const OpInfo& out, const Graph& graph);

}  // namespace lazuli::codegen
