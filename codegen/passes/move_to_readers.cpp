#include "codegen/passes/move_to_readers.h"

#include <algorithm>
#include <cstdlib>

#include "absl/container/flat_hash_map.h"
#include "codegen/lower.h"
#include "codegen/lower_group.h"
#include "codegen/passes/value_uses.h"

namespace lazuli::codegen {
namespace {

class Mover {
 public:
  explicit Mover(WorkGroups* groups) : groups_(*groups), graph_(groups->graph()), overwritten_(OverwrittenValues(graph_)) {}

  // Later groups come first: what moves into one may be what an earlier one computes for that alone.
  void Run() {
    for (int g = static_cast<int>(groups_.groups().size()) - 1; g >= 0; --g) {
      for (const int reader : ReadersOf(g)) {
        if (groups_.groups()[g].alive && groups_.groups()[reader].alive) TryMove(g, reader);
      }
    }
  }

 private:
  const WorkGroup& At(int group) const { return groups_.groups()[group]; }

  // Other groups of the segment that become kernels and read what nodes of group `g` make.
  std::vector<int> ReadersOf(int g) const {
    std::vector<int> readers;
    if (!At(g).alive || !At(g).fusable) return readers;
    for (const NodeId n : At(g).nodes) {
      ForEachDef(graph_.nodes[n], [&](ValueId value) {
        for (const NodeId user : groups_.UsersOf(value)) {
          if (!groups_.IsInSegment(user) || groups_.GroupOf(user) == g || !At(groups_.GroupOf(user)).fusable) continue;
          readers.push_back(groups_.GroupOf(user));
        }
      });
    }
    std::sort(readers.begin(), readers.end());
    readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
    return readers;
  }

  void TryMove(int from, int to) {
    const std::vector<NodeId> nodes = NodesOnlyFor(from, to);
    if (nodes.empty() || !Pays(nodes, from, to) || !groups_.Move(nodes, from, to)) return;
    MergeWithMakers(nodes);
    if (At(from).alive) MergeWithReaders(std::vector<NodeId>(At(from).nodes));
  }

  // The groups of `nodes` with those that make what they read.
  void MergeWithMakers(const std::vector<NodeId>& nodes) {
    for (const NodeId n : nodes) {
      ForEachUse(graph_.nodes[n], [&](const TensorRef& use) {
        if (!IsUniform(graph_, use.storage)) Merge(graph_.values[use.storage].producer, n);
      });
    }
  }

  // The group of `nodes`, which may have kept others away, with those that read the same.
  void MergeWithReaders(const std::vector<NodeId>& nodes) {
    for (const NodeId n : nodes) {
      ForEachUse(graph_.nodes[n], [&](const TensorRef& use) {
        if (IsUniform(graph_, use.storage)) return;
        for (const NodeId user : groups_.UsersOf(use.storage)) {
          if (std::abs(user - n) < kSiblingDistance) Merge(user, n);
        }
      });
    }
  }

  void Merge(NodeId a, NodeId b) {
    if (!groups_.IsInSegment(a) || !At(groups_.GroupOf(a)).fusable) return;
    groups_.TryMerge(groups_.GroupOf(a), groups_.GroupOf(b));
  }

  // Those of `from` that compute, point by point, what only `to` needs, in ascending order.
  std::vector<NodeId> NodesOnlyFor(int from, int to) const {
    std::vector<NodeId> nodes;
    const std::vector<NodeId>& members = At(from).nodes;
    for (auto n = members.rbegin(); n != members.rend(); ++n) {
      if (IsOnlyFor(*n, nodes, to)) nodes.insert(nodes.begin(), *n);
    }
    return nodes;
  }

  // Whether node `n` may be moved, with `moved`, to the group `to`.
  bool IsOnlyFor(NodeId n, const std::vector<NodeId>& moved, int to) const {
    const Node& node = graph_.nodes[n];
    if (node.kind != Node::Kind::kCompute || node.results.size() != 1 || Reduces(node) || node.row->index_args != 0) return false;
    const ValueId result = node.results[0];
    if (result == kNoValue || groups_.UsersOf(result).empty() || overwritten_[result] ||
        graph_.contents[graph_.values[result].storage] == result)
      return false;
    const std::vector<NodeId>& users = groups_.UsersOf(result);
    const bool only_for = std::all_of(users.begin(), users.end(), [&](NodeId user) {
      return std::binary_search(moved.begin(), moved.end(), user) || (groups_.IsInSegment(user) && groups_.GroupOf(user) == to);
    });
    bool stays = true;  // What it reads, until then.
    ForEachUse(node, [&](const TensorRef& use) { stays = stays && !overwritten_[use.storage]; });
    return only_for && stays;
  }

  // Whether kernels move fewer bytes with `nodes` in `to` than with them in `from`.
  bool Pays(const std::vector<NodeId>& nodes, int from, int to) const {
    int64_t gain = 0;
    absl::flat_hash_map<ValueId, int64_t> operands;  // What `nodes` read that others make, and how many bytes that is.
    for (const NodeId n : nodes) {
      const ValueId result = graph_.nodes[n].results[0];
      if (groups_.LeavesGroup(result, from)) gain += 2 * StoredBytes(graph_, graph_.values[result].layout);
      ForEachUse(graph_.nodes[n], [&](const TensorRef& use) {
        const NodeId producer = graph_.values[use.storage].producer;
        if (IsUniform(graph_, use.storage) || std::binary_search(nodes.begin(), nodes.end(), producer)) return;
        int64_t& bytes = operands[use.storage];
        bytes = std::max(bytes, StoredBytes(graph_, use));
      });
    }
    for (const auto& [value, bytes] : operands) {
      const NodeId producer = graph_.values[value].producer;
      const bool made_here = groups_.IsInSegment(producer) && groups_.GroupOf(producer) == from;
      if (made_here && !groups_.LeavesGroup(value, from)) gain -= bytes;
      if (!Reads(to, value, {})) gain -= bytes;
      if (!made_here && !Reads(from, value, nodes)) gain += bytes;
    }
    return gain > 0;
  }

  // Whether a node of `group` reads `value`, those of `but` aside.
  bool Reads(int group, ValueId value, const std::vector<NodeId>& but) const {
    const std::vector<NodeId>& users = groups_.UsersOf(value);
    return std::any_of(users.begin(), users.end(), [&](NodeId user) {
      return groups_.IsInSegment(user) && groups_.GroupOf(user) == group && !std::binary_search(but.begin(), but.end(), user);
    });
  }

  WorkGroups& groups_;
  const Graph& graph_;
  const std::vector<bool> overwritten_;  // By value.
};

}  // namespace

void MoveToReaders(WorkGroups* groups) { Mover(groups).Run(); }

}  // namespace lazuli::codegen
