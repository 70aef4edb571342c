// Finds the formula of attention, and its gradient, in a graph.
#pragma once

#include <optional>
#include <vector>

#include "codegen/ir/graph.h"

namespace lazuli::codegen {

// One use of a value: argument `arg` of a node.
struct ValueUse {
  NodeId node = kNoNode;
  size_t arg = 0;
};

// By value: who uses it. Results that are other values' memory are not told.
std::vector<std::vector<ValueUse>> UsesOfValues(const Graph& graph);

// Whether an argument is that, in all runs.
bool IsMinusInfinity(const TraceArg& number);

// Nodes of an attention over n heads. q is [n, queries, width], k_t [n, width, keys], v [n, keys, width]: the operands of its products.
struct AttentionMatch {
  NodeId scores = kNoNode, softmax = kNoNode, product = kNoNode;  // The first product, and the second.
  TensorRef q, k_t, v;
  std::optional<TraceArg> scale;  // The number that scores are multiplied by, or
  bool divides = false;           // divided.
  TensorRef bias, filled;         // Undefined: none. They are broadcast to scores of
  c10::DimVector bias_to, filled_to;
  bool keeps = false;            // `filled` says where scores are kept instead.
  std::optional<TraceArg> fill;  // With `filled`: a number.
  std::vector<NodeId> inner;     // All nodes but the second product.

  // The gradient's; kNoNode and undefined where there is none.
  NodeId grad_weights = kNoNode, grad_q = kNoNode, grad_k_t = kNoNode, grad_v = kNoNode;
  TensorRef grad_y;
  std::optional<TraceArg> grad_scale, grad_fill;
  std::vector<NodeId> grad_inner;  // All of its nodes but grad_q, grad_k_t and grad_v.

  bool has_gradient() const { return grad_weights != kNoNode; }
};

class AttentionMatcher {
 public:
  explicit AttentionMatcher(const Graph& graph);

  // Whether Match may find something.
  static bool MayBeSoftmax(const Node& node);
  // The attention whose softmax is node `n`. None: it is none, or somebody else looks at what is between.
  std::optional<AttentionMatch> Match(NodeId n) const;

 private:
  bool WalkToScores(const TensorRef& end, AttentionMatch* match) const;
  bool TakeStep(const Node& node, AttentionMatch* match, const TensorRef** before) const;
  bool TakeFill(const Node& node, AttentionMatch* match, const TensorRef** before) const;
  bool TakeAdd(const Node& node, AttentionMatch* match, const TensorRef** before) const;
  bool FindProducts(AttentionMatch* match) const;
  bool TakeUse(const ValueUse& use, const TensorRef& scores, AttentionMatch* match) const;
  bool MatchGradient(AttentionMatch* match) const;
  bool WalkToGradients(AttentionMatch* match) const;
  bool TakeGradientStep(const Node& node, AttentionMatch* match) const;
  bool TakeGradientProduct(const ValueUse& use, AttentionMatch* match) const;

  // A number that the host can read when the attention runs: a slot's, an input's on the CPU, or minus infinity.
  bool IsNumber(const TraceArg& arg) const;
  // Fills, whatever they are written with: the arguments that hold the scores, the mask and the number.
  struct Fill {
    size_t scores, mask, number;
    bool keeps;
  };
  std::optional<Fill> FillOf(const Node& node) const;

  // Nobody but one node looks at it, and it is not changed.
  bool IsInner(ValueId value) const { return uses_[value].size() == 1 && IsHidden(value); }
  bool IsHidden(ValueId value) const { return !pinned_[value] && !overwritten_[value]; }
  // The node that makes all of what `use` reads; null where it is none, or not in that order.
  const Node* MakerOf(const TensorRef& use) const;

  const Graph& graph_;
  const std::vector<std::vector<ValueUse>> uses_;
  const std::vector<bool> pinned_;
  const std::vector<bool> overwritten_;
};

}  // namespace lazuli::codegen
