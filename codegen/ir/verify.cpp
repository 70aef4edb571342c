#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "codegen/ir/graph.h"
#include "codegen/lower.h"

namespace lazuli::codegen {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {}

  absl::Status Run() {
    if (graph_.contents.size() != graph_.storages.size()) return absl::InternalError("contents and storages differ in number");
    for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) {
      if (auto status = CheckNode(n); !status.ok()) return status;
    }
    for (ValueId content : graph_.contents) {
      if (content != kNoValue && !IsValue(content)) return absl::InternalError(absl::StrCat("content %", content, " is no value"));
    }
    return graph_.groups.empty() ? absl::OkStatus() : CheckGroups();
  }

 private:
  bool IsValue(ValueId value) const { return value >= 0 && value < static_cast<ValueId>(graph_.values.size()); }

  absl::Status Error(NodeId n, const std::string& what) const {
    const auto* info = graph_.nodes[n].op.info;
    return absl::InternalError(absl::StrCat("node ", n, " (", info != nullptr ? info->name : "update", "): ", what));
  }

  absl::Status CheckNode(NodeId n) const {
    const Node& node = graph_.nodes[n];
    if (node.kind == Node::Kind::kCompute && node.row == nullptr) return Error(n, "compute node without a row");
    const bool update = node.kind == Node::Kind::kUpdate;
    if ((update && node.row == nullptr) != (node.op.info == nullptr)) return Error(n, "only plain updates have no operator");
    if (update && (node.results.size() != 1 || (node.row == nullptr ? node.op.args.size() != 2 : node.row->target_arg < 0))) {
      return Error(n, "malformed update");
    }
    std::string problem;
    ForEachUse(node, [&](const TensorRef& use) {
      if (!IsValue(use.storage)) {
        problem = absl::StrCat("uses %", use.storage, ", which is no value");
      } else if (graph_.values[use.storage].producer >= n) {
        problem = absl::StrCat("uses %", use.storage, " before it is made");
      } else if (use.sizes.size() != use.strides.size()) {
        problem = absl::StrCat("use of %", use.storage, " has sizes and strides of different length");
      }
    });
    if (!problem.empty()) return Error(n, problem);
    ForEachDef(node, [&](ValueId value) {
      if (!IsValue(value) || graph_.values[value].producer != n) problem = absl::StrCat("makes %", value, ", which names another producer");
    });
    if (!problem.empty()) return Error(n, problem);
    if (update && graph_.values[node.results[0]].previous != node.Target().storage) {
      return Error(n, "overwrites something else than its target");
    }
    return absl::OkStatus();
  }

  // Every node in one group, and every group after what it depends on.
  absl::Status CheckGroups() const {
    std::vector<int> group_of(graph_.nodes.size(), -1);
    for (size_t g = 0; g < graph_.groups.size(); ++g) {
      const Group& group = graph_.groups[g];
      for (NodeId n : group.nodes) {
        if (group_of[n] >= 0) return Error(n, "is in two groups");
        group_of[n] = static_cast<int>(g);
        if (group.is_kernel() == (graph_.nodes[n].kind == Node::Kind::kExtern)) return Error(n, "is in a group of the wrong kind");
      }
      if (group.is_kernel() && group.placements.size() != group.nodes.size()) return absl::InternalError("a group lacks placements");
    }
    const auto preds = Predecessors(graph_);
    for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) {
      if (group_of[n] < 0) return Error(n, "is in no group");
      for (NodeId pred : preds[n]) {
        if (group_of[pred] > group_of[n]) return Error(n, absl::StrCat("runs before node ", pred));
      }
    }
    return absl::OkStatus();
  }

  const Graph& graph_;
};

}  // namespace

absl::Status VerifyGraph(const Graph& graph) { return Verifier(graph).Run(); }

}  // namespace lazuli::codegen
