#include "codegen/passes/column_sums.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "codegen/lower_group.h"

namespace lazuli::codegen {
namespace {

// How many groups away rows are looked for, and how many operators further: what others wait for would wait for too much.
constexpr size_t kGroupDistance = 12;
constexpr int32_t kOpDistance = 24;
// Points of a group that are worth it.
constexpr int64_t kLeastPoints = int64_t{1} << 20;

enum class Direction : uint8_t { kNeither, kRows, kColumns };

class ColumnSums {
 public:
  explicit ColumnSums(Graph graph) : graph_(std::move(graph)), preds_(Predecessors(graph_)), group_of_(graph_.nodes.size(), -1) {}

  Graph Run() {
    for (Group& group : graph_.groups) {
      order_.push_back(directions_.size());
      directions_.push_back(DirectionOf(group));
      for (const NodeId n : group.nodes) group_of_[n] = static_cast<int>(order_.back());
    }
    for (size_t g = 0; g < graph_.groups.size(); ++g) {
      if (directions_[g] == Direction::kColumns) Place(g);
    }
    std::vector<Group> groups;
    for (const size_t g : order_) groups.push_back(std::move(graph_.groups[g]));
    graph_.groups = std::move(groups);
    return std::move(graph_);
  }

 private:
  static int64_t Points(const Group& group) {
    return std::accumulate(group.sizes.begin(), group.sizes.end(), int64_t{1}, std::multiplies<int64_t>());
  }

  // Along what a group for a GPU that reduces does so: its neighbouring elements, or rows of them.
  Direction DirectionOf(const Group& group) const {
    if (!group.is_kernel() || graph_.nodes[group.nodes[0]].op.device.is_cpu()) return Direction::kNeither;
    bool reduces = false, along_rows = false, along_columns = false;
    for (size_t i = 0; i < group.nodes.size(); ++i) {
      reduces = reduces || Reduces(graph_.nodes[group.nodes[i]]);
      for (const c10::DimVector& strides : group.placements[i].uses) {
        if (std::find(strides.begin(), strides.end(), 0) != strides.end()) continue;
        for (size_t d = 0; d < strides.size(); ++d) (group.reduced[d] ? along_rows : along_columns) |= strides[d] == 1;
      }
    }
    if (!reduces || graph_.symbols.Hint(Points(group)) < kLeastPoints) return Direction::kNeither;
    return along_rows ? Direction::kRows : along_columns ? Direction::kColumns : Direction::kNeither;
  }

  void Place(size_t columns) {
    const auto at = static_cast<size_t>(std::find(order_.begin(), order_.end(), columns) - order_.begin());
    const size_t begin = at > kGroupDistance ? at - kGroupDistance : 0, end = std::min(order_.size(), at + kGroupDistance + 1);
    for (size_t distance = 1; distance <= kGroupDistance; ++distance) {
      for (const size_t place : {at + distance, at - distance}) {
        if (place >= end || place < begin || place == at || !IsOf(columns, order_[place]) || !CanMove(at, place)) continue;
        const auto from = order_.begin() + static_cast<int64_t>(at), to = order_.begin() + static_cast<int64_t>(place) + 1;
        if (at < place) {
          std::rotate(from, from + 1, to);
        } else {
          std::rotate(to, from, from + 1);
        }
        return;
      }
    }
  }

  // Whether `columns` reads something, as large as all its points, that group `rows` reads or makes.
  bool IsOf(size_t columns, size_t rows) const {
    if (directions_[rows] != Direction::kRows) return false;
    const Group &summed = graph_.groups[columns], &other = graph_.groups[rows];
    const int64_t points = Points(summed);
    const int32_t apart = graph_.nodes[summed.nodes.back()].op.index - graph_.nodes[other.nodes.back()].op.index;
    if (points != Points(other) || std::abs(apart) > kOpDistance) return false;
    std::vector<ValueId> seen;
    for (const NodeId n : other.nodes) {
      ForEachUse(graph_.nodes[n], [&](const TensorRef& use) { seen.push_back(use.storage); });
      ForEachDef(graph_.nodes[n], [&](ValueId value) { seen.push_back(value); });
    }
    bool found = false;
    for (const NodeId n : summed.nodes) {
      ForEachUse(graph_.nodes[n], [&](const TensorRef& use) {
        found = found || (use.numel() == points && std::find(seen.begin(), seen.end(), use.storage) != seen.end());
      });
    }
    return found;
  }

  // Whether the group at `at` can run right after the one at `place`.
  bool CanMove(size_t at, size_t place) const {
    const size_t moved = order_[at];
    for (size_t i = std::min(at + 1, place + 1); i < std::max(at, place + 1); ++i) {
      const size_t other = order_[i];
      if (at < place ? Needs(other, moved) : Needs(moved, other)) return false;
    }
    return true;
  }

  bool Needs(size_t group, size_t other) const {
    const std::vector<NodeId>& nodes = graph_.groups[group].nodes;
    return std::any_of(nodes.begin(), nodes.end(), [&](NodeId n) {
      return std::any_of(preds_[n].begin(), preds_[n].end(), [&](NodeId pred) { return group_of_[pred] == static_cast<int>(other); });
    });
  }

  Graph graph_;
  const std::vector<std::vector<NodeId>> preds_;
  std::vector<int> group_of_;          // By node.
  std::vector<Direction> directions_;  // By group.
  std::vector<size_t> order_;          // Of groups.
};

}  // namespace

absl::StatusOr<Graph> PlaceColumnSums(Graph graph) { return ColumnSums(std::move(graph)).Run(); }

}  // namespace lazuli::codegen
