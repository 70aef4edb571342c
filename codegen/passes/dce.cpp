#include "codegen/passes/dce.h"

#include <utility>

namespace lazuli::codegen {

absl::StatusOr<Graph> EliminateDeadCode(Graph graph) {
  std::vector<bool> live(graph.values.size(), false);
  std::vector<bool> keep(graph.nodes.size(), false);
  for (ValueId content : graph.contents) {
    if (content != kNoValue) live[content] = true;
  }
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    Node& node = graph.nodes[n];
    bool needed = node.kind == Node::Kind::kExtern && node.op.info->is_random;
    ForEachDef(node, [&](ValueId value) { needed = needed || live[value]; });
    if (!needed) continue;
    keep[n] = true;
    ForEachUse(node, [&](const TensorRef& use) { live[use.storage] = true; });
    // What is written in part shows through in the rest.
    ForEachDef(node, [&](ValueId value) {
      if (graph.values[value].previous != kNoValue) live[graph.values[value].previous] = true;
    });
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!keep[n]) continue;
    for (ValueId& result : graph.nodes[n].results) {
      if (result != kNoValue && !live[result]) result = kNoValue;
    }
  }
  EraseNodes(&graph, keep);
  return graph;
}

}  // namespace lazuli::codegen
