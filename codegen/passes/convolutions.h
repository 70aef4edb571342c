// The convolutions of a graph whose images may lie channels last, and what that is worth to them.
#pragma once

#include <vector>

#include "codegen/ir/graph.h"
#include "codegen/lower_pieces.h"

namespace lazuli::codegen {

struct ConvolutionLayoutOptions {
  bool halves = false;  // On GPUs.
  bool floats = false;  // There, where cuDNN may use TF32.
  bool cpu = false;     // Floats, where oneDNN may be used.
  constexpr bool any() const { return halves || floats || cpu; }
};

struct Convolution {
  NodeId node = kNoNode;
  int input = 0;  // Arguments; the weight comes after it, and the output's gradient, of a backward pass, before it.
  bool backward = false;
  bool moves = false;
  // What the layout is worth to it where all its images have it, for each of their elements: in quarters of what copying one costs.
  int gain = 0;
  bool copies_weight = false;  // To that layout.
};

// Those of two dimensions, in the graph's order.
std::vector<Convolution> FindConvolutions(const Graph& graph, const ConvolutionLayoutOptions& options);

// Calls `fn(ValueId, const TensorRef&)` for each tensor that the convolution takes or gives but for weights and sums.
template <class Fn>
void ForEachImage(const Graph& graph, const Convolution& conv, const Fn& fn) {
  const Node& node = graph.nodes[conv.node];
  for (int arg = 0; arg <= conv.input; ++arg) fn(RefOf(node.op, arg).storage, RefOf(node.op, arg));
  if (node.results[0] != kNoValue) fn(node.results[0], node.op.results[0]);
}

}  // namespace lazuli::codegen
