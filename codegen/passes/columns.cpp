#include "codegen/passes/columns.h"

#include <algorithm>

#include "codegen/lower.h"
#include "codegen/lower_group.h"

namespace lazuli::codegen {
namespace {

// Neighbouring columns that a warp's threads take, with several each.
constexpr int64_t kWideColumns = 128;

bool IsWhole(const c10::DimVector& strides, const Space& space) {
  for (size_t d = 0; d < space.sizes.size(); ++d) {
    if (space.reduced[d] && strides[d] != 0) return true;
  }
  return false;
}

class Columns {
 public:
  Columns(const Graph& graph, const std::vector<Placement>& placements, const std::vector<NodeId>& nodes, const Space& space)
      : graph_(graph), placements_(placements), nodes_(nodes), space_(space) {}

  bool Fit(absl::FunctionRef<bool(ValueId)> leaves) {
    if (HasInnermost(/*reduced=*/true, 1)) return true;
    const bool on_the_way = HasScans() || (!graph_.nodes[nodes_[0]].op.device.is_cpu() && HasInnermost(/*reduced=*/false, kWideColumns));
    for (const NodeId n : nodes_) {
      const Node& node = graph_.nodes[n];
      const bool late = IsLate(node);
      for (size_t i = 0; i < node.results.size(); ++i) {
        if (node.results[i] == kNoValue) continue;
        if (late) late_.push_back(node.results[i]);
        if (!IsWhole(placements_[n].results[i], space_)) continue;
        const bool update = node.kind == Node::Kind::kUpdate;
        // What an update of fresh memory writes is a result like others.
        const bool overwrites = update && node.family == 0;
        if ((update || leaves(node.results[i])) && (overwrites || late || !on_the_way)) return false;
      }
    }
    return true;
  }

 private:
  bool HasScans() const {
    return std::any_of(nodes_.begin(), nodes_.end(), [&](NodeId n) { return ScanOf(graph_.nodes[n]) != ScanDirection::kNone; });
  }

  // Whether something is read along dimensions of at least so many points whose elements are neighbours.
  bool HasInnermost(bool reduced, int64_t least) const {
    for (const NodeId n : nodes_) {
      for (const auto& strides : placements_[n].uses) {
        int64_t points = 1;
        for (size_t d = space_.sizes.size(); d-- > 0;) {
          if (space_.reduced[d] == reduced && strides[d] == points) points *= graph_.symbols.Hint(space_.sizes[d]);
        }
        if (points > 1 && points >= least) return true;
      }
    }
    return false;
  }

  // Whether the node reduces (scans have results on the way), or uses what waits for a reduction of the group.
  bool IsLate(const Node& node) const {
    bool late = Reduces(node) && ScanOf(node) == ScanDirection::kNone;
    ForEachUse(node, [&](const TensorRef& use) { late = late || std::find(late_.begin(), late_.end(), use.storage) != late_.end(); });
    return late;
  }

  const Graph& graph_;
  const std::vector<Placement>& placements_;
  const std::vector<NodeId>& nodes_;
  const Space& space_;
  std::vector<ValueId> late_;
};

}  // namespace

bool ColumnsFit(const Graph& graph, const std::vector<Placement>& placements, const std::vector<NodeId>& nodes, const Space& space,
                absl::FunctionRef<bool(ValueId)> leaves) {
  return Columns(graph, placements, nodes, space).Fit(leaves);
}

}  // namespace lazuli::codegen
