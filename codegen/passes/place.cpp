#include "codegen/passes/place.h"

#include <algorithm>

#include "codegen/lower.h"
#include "codegen/lower_group.h"
#include "codegen/passes/value_uses.h"

namespace lazuli::codegen {
namespace {

bool MayBePlaced(const Node& node) { return node.kind == Node::Kind::kCompute && node.row->place != nullptr; }

}  // namespace

bool MayPlace(const Graph& graph) { return std::any_of(graph.nodes.begin(), graph.nodes.end(), MayBePlaced); }

std::vector<bool> OpsToPlace(const Graph& fused, size_t num_ops) {
  const std::vector<int> uses = CountUses(fused);
  std::vector<bool> in_kernel(fused.nodes.size(), false);
  for (const Group& group : fused.groups) {
    for (const NodeId n : group.nodes) in_kernel[n] = group.is_kernel();
  }
  const std::vector<bool> pinned = PinnedValues(fused), overwritten = OverwrittenValues(fused);
  std::vector<bool> ops;
  for (const Group& group : fused.groups) {
    const Node& node = fused.nodes[group.nodes[0]];
    if (!group.is_kernel() || group.nodes.size() != 1 || !MayBePlaced(node)) continue;
    const TensorRef& operand = node.op.args[0].tensors[0];
    const ValueId value = operand.storage;
    const NodeId maker = fused.values[value].producer;
    if (maker == kNoNode || !in_kernel[maker] || IsUniform(fused, value)) continue;
    if (uses[value] != 1 || pinned[value] || overwritten[value]) continue;
    if (2 * StoredElements(fused, operand) < StoredElements(fused, node.op.results[0])) continue;
    ops.resize(num_ops, false);
    ops[node.op.index] = true;
  }
  return ops;
}

}  // namespace lazuli::codegen
