// Attention that a program writes as its formula becomes one operator, forward and backward, so that no score is ever stored
// (products/attention_op.h).
#pragma once

#include "absl/status/statusor.h"
#include "codegen/ir/graph.h"

namespace lazuli::codegen {

struct AttentionOptions {
  bool cpu = true;     // Attention of floats on the CPU.
  bool gpu = false;    // Of halves on a GPU, by flash attention, which needs an architecture from sm_80 on.
  bool cudnn = false;  // And by cuDNN's, with bias and fills, if sizes are fixed.
  constexpr bool any() const { return cpu || gpu; }
};

// After cse. Replaces
//   scores = bmm(q, k^T), perhaps times or divided by a number, perhaps plus a bias, perhaps with some filled by a number
//   y = bmm(softmax(scores), v)
// and, if there is any, all of the gradient's nodes, where nobody else looks at what is between: sums then come in another order, and where
// halves are multiplied, scores and weights are not rounded to halves. What follows may read results from another layout.
// A gradient of the bias needs those of the scores, so that such an attention stays as it is.
absl::StatusOr<Graph> FuseAttention(Graph graph, const AttentionOptions& options);

}  // namespace lazuli::codegen
