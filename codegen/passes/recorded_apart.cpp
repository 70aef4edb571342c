#include "codegen/passes/recorded_apart.h"

#include <algorithm>

namespace lazuli::codegen {

bool HoldsUp(const Graph& graph, const std::vector<std::vector<NodeId>>& users, const std::vector<NodeId>& nodes,
             const std::vector<NodeId>& joining) {
  if (graph.nodes[nodes[0]].op.device.is_cpu()) return false;
  int32_t last = 0;
  for (const NodeId n : joining) last = std::max(last, graph.nodes[n].op.index);
  const auto is_earlier = [&](NodeId n) { return graph.nodes[n].op.index < last - kMostOpsApart; };
  const auto holds = [](const std::vector<NodeId>& group, NodeId n) { return std::find(group.begin(), group.end(), n) != group.end(); };
  const auto waits = [&](NodeId user) { return is_earlier(user) && !holds(nodes, user) && !holds(joining, user); };
  bool holds_up = false;
  for (const NodeId n : nodes) {
    if (!is_earlier(n)) continue;
    ForEachDef(graph.nodes[n], [&](ValueId value) { holds_up = holds_up || std::any_of(users[value].begin(), users[value].end(), waits); });
  }
  return holds_up;
}

}  // namespace lazuli::codegen
