#include "codegen/passes/dce.h"

#include <utility>

#include "codegen/lower.h"
#include "codegen/random_ops.h"

namespace lazuli::codegen {
namespace {

// Whether the op runs though nobody uses its result: it may throw because of the values it meets (an index out of range, an integer divided
// by zero, a matrix that has no factorisation, a range that is not finite), draws random numbers, or is another library's, with effects
// that its schema does not tell.
bool HasEffects(const Node& node) {
  if (node.kind == Node::Kind::kUpdate && node.row == nullptr) return false;
  const OpRow* row = node.kind != Node::Kind::kExtern ? node.row : FindRow(node.op);
  if (row != nullptr) return row->index_args != 0 && node.part == 0;
  const std::string& name = node.op.info->name;
  if (DrawsInOrderOfMemory(name)) return false;  // Numbers that were taken.
  if (node.op.info->is_random || name.rfind("aten::", 0) != 0) return true;
  for (const char* family : {"linalg_", "cholesky", "aten::lu_", "geqrf", "ormqr", "histc", "histogram", "masked_scatter", "_assert"}) {
    if (name.find(family) != std::string::npos) return true;
  }
  bool has_integers = false;
  ForEachUse(node, [&](const TensorRef& use) { has_integers = has_integers || c10::isIntegralType(use.dtype, /*includeBool=*/false); });
  return has_integers;
}

}  // namespace

absl::StatusOr<Graph> EliminateDeadCode(Graph graph) {
  std::vector<bool> live(graph.values.size(), false);
  std::vector<bool> keep(graph.nodes.size(), false);
  for (ValueId content : graph.contents) {
    if (content != kNoValue) live[content] = true;
  }
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    Node& node = graph.nodes[n];
    bool needed = HasEffects(node);
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
    if (!keep[n] || graph.nodes[n].kind == Node::Kind::kUpdate) continue;
    for (ValueId& result : graph.nodes[n].results) {
      if (result != kNoValue && !live[result]) result = kNoValue;
    }
  }
  EraseNodes(&graph, keep);
  return graph;
}

}  // namespace lazuli::codegen
