// Steps of a program for a GPU run while its trace is still recorded (runtime::Program::RunAhead): in order, each when what it takes of the
// trace is known.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/ir/graph.h"
#include "runtime/executor.h"

namespace lazuli::codegen {

// Operators recorded further apart than this do not become one kernel, or one batch of kernels, where that would hold up others: a batch
// only saves launches.
constexpr int32_t kMostOpsApart = 64, kMostOpsApartInBatch = 16;

// What had better not become one step. Holds on to the graph, and by value, the nodes that use it.
class RecordedApart {
 public:
  RecordedApart(const Graph& graph, const std::vector<std::vector<NodeId>>& users);

  // Whether `joining`, the younger nodes, should not become one step with `nodes`, for one of these reasons: on a CPU, the second.
  bool KeepsApart(const std::vector<NodeId>& nodes, const std::vector<NodeId>& joining) const;

 private:
  // Others that use what `nodes` make would wait for operators of `joining` that are recorded much later.
  bool HoldsUp(const std::vector<NodeId>& nodes, const std::vector<NodeId>& joining) const;
  // Reductions among `nodes` (the gradients of biases) would keep large operands alive until `joining` is recorded much later, which does
  // not read these. Their results alone take next to nothing. Where `joining` updates an input (an optimizer's step) on a GPU, operands
  // need not be large: the reductions are done while the rest is recorded, and the updates are batched with others.
  bool PutsOff(const std::vector<NodeId>& nodes, const std::vector<NodeId>& joining) const;
  // Others that use what one of the two makes would wait until it is recorded that the other updates a small input (batch norm's running
  // statistics), which can as well come later (sink_updates.h).
  bool UpdatesEarly(const std::vector<NodeId>& updates, const std::vector<NodeId>& makes) const;

  bool IsOnCpu(const std::vector<NodeId>& nodes) const { return graph_.nodes[nodes[0]].op.device.is_cpu(); }
  bool IsSmallUpdate(NodeId n) const;
  int64_t Overwrites(const Node& node) const;

  const Graph& graph_;
  const std::vector<std::vector<NodeId>>& users_;
  int32_t first_large_;  // The first operator that overwrites more of an input than can be saved: what comes then does not run ahead.
};

// When each argument of `trace` is mentioned.
runtime::KnownAt KnownAtOf(const Trace& trace);

}  // namespace lazuli::codegen
