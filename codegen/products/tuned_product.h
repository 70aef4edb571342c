// Mode max-autotune: products on GPUs by the algorithm of cuBLASLt's that is the fastest there, timed.
#pragma once

#include "codegen/ir/graph.h"
#include "codegen/ir/op_info.h"
#include "runtime/executor.h"

namespace lazuli::codegen {

// For `node`, which operator `called` computes on a GPU, its own or its out-variant: what to try before calling that. The first time that
// a product of its shape comes (where there are very many shapes, the eighth), the algorithms that cuBLASLt proposes are timed where the
// operands are, each by turns with the best so far, for as long as LAZULI_AUTOTUNE_MS says; the fastest serves all products of that shape
// from then on, and is kept on disk. Sums come in its own order. Null where cuBLASLt does not compute the operator.
runtime::DirectCall FindTunedProduct(const Node& node, const OpInfo& called);

}  // namespace lazuli::codegen
