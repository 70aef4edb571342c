#include "codegen/passes/fuse.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "codegen/lower.h"
#include "codegen/lower_group.h"
#include "codegen/passes/bit_set.h"
#include "codegen/passes/columns.h"
#include "codegen/passes/left_to_aten.h"
#include "codegen/passes/recorded_apart.h"
#include "codegen/passes/space.h"
#include "codegen/passes/value_uses.h"

namespace lazuli::codegen {
namespace {

// A path from one node to another only passes through nodes between them, so ancestors are tracked within a segment of the program.
constexpr NodeId kSegment = 4096;
// How far back a group is looked for that merely reads the same value.
constexpr NodeId kSiblingDistance = 48;
constexpr int kSiblings = 4;
// Points of a space that takes no time to speak of.
constexpr int64_t kSmallSpace = int64_t{1} << 16;
// A space with so many times fewer points than another is small beside it.
constexpr int64_t kSmaller = 16;

struct WorkGroup {
  bool alive = false;
  bool fusable = false;
  bool updates = false;     // Holds an update.
  bool overwrites = false;  // Holds one of memory that had content before.
  bool scatters = false;    // Holds one that writes where indices say.
  bool checks = false;      // Holds a node that checks indices.
  int buffers = 0;          // At most so many does its kernel have.
  Space space;
  std::vector<NodeId> nodes;
  BitSet ancestors;  // Other groups of the segment that have to run before.
};

class Fuser {
 public:
  Fuser(Graph graph, const FuseOptions& options)
      : graph_(std::move(graph)),
        options_(options),
        preds_(Predecessors(graph_)),
        placements_(graph_.nodes.size()),
        group_of_(graph_.nodes.size(), -1),
        users_(graph_.values.size()),
        apart_(graph_, users_),
        readers_(graph_.values.size()) {
    for (NodeId n = 0; n < NumNodes(); ++n) ForEachUse(graph_.nodes[n], [&](const TensorRef& use) { users_[use.storage].push_back(n); });
  }

  Graph Run() {
    for (NodeId begin = 0; begin < NumNodes(); begin += kSegment) {
      begin_ = begin;
      end_ = std::min(NumNodes(), begin + kSegment);
      groups_.assign(end_ - begin_, WorkGroup());
      for (NodeId n = begin_; n < end_; ++n) {
        Start(n);
        if (options_.enabled && groups_[n - begin_].fusable && !graph_.nodes[n].again) TryCandidates(n);
      }
      TryPostponed();
      for (WorkGroup& group : groups_) {
        if (group.alive) done_.push_back(std::move(group));
      }
    }
    Order();
    return std::move(graph_);
  }

 private:
  NodeId NumNodes() const { return static_cast<NodeId>(graph_.nodes.size()); }

  // Makes a group of node `n` alone.
  void Start(NodeId n) {
    WorkGroup& group = groups_[n - begin_];
    const Node& node = graph_.nodes[n];
    if (node.row != nullptr && node.row->made_by != nullptr && !IsMadeAsNeeded(graph_, node)) LeaveToAten(n);
    group.alive = true;
    group.nodes = {n};
    group.ancestors = BitSet(end_ - begin_);
    group.fusable = node.kind != Node::Kind::kExtern;
    group.updates = node.kind == Node::Kind::kUpdate;
    group.overwrites = group.updates && !node.is_scatter() && node.family == 0;
    group.scatters = node.is_scatter();
    group.checks = node.row != nullptr && node.row->index_args != 0;
    group.buffers = 3;  // Results; updates have one.
    ForEachUse(node, [&](const TensorRef&) { ++group.buffers; });
    group_of_[n] = n - begin_;
    for (NodeId pred : preds_[n]) {
      if (pred < begin_) continue;
      group.ancestors.Add(groups_[group_of_[pred]].ancestors);
      group.ancestors.Set(group_of_[pred]);
    }
    if (!group.fusable) return;
    Iteration iteration = IterationOf(node);
    Placement& placement = placements_[n];
    placement.uses = std::move(iteration.uses);
    placement.results = std::move(iteration.results);
    placement.coordinates = std::move(iteration.coordinates);
    group.space = SqueezeSpace(iteration.sizes, iteration.reduced, Reduces(node), &placement);
  }

  void LeaveToAten(NodeId n) {
    graph_.nodes[n].kind = Node::Kind::kExtern;
    graph_.nodes[n].row = nullptr;
  }

  void TryCandidates(NodeId n) {
    std::vector<int> candidates;
    const auto add = [&](NodeId node) {
      if (node < begin_) return;
      const int group = group_of_[node];
      if (group >= 0 && groups_[group].fusable && std::find(candidates.begin(), candidates.end(), group) == candidates.end()) {
        candidates.push_back(group);
      }
    };
    ForEachUseOf(n, [&](const TensorRef& use) {
      const NodeId producer = graph_.values[use.storage].producer;
      if (producer != kNoNode && !IsUniform(graph_, use.storage)) add(producer);
    });
    const size_t num_producers = candidates.size();
    ForEachUseOf(n, [&](const TensorRef& use) {
      if (IsUniform(graph_, use.storage)) return;  // A number in the kernel's text: reading it once saves nothing.
      auto& readers = readers_[use.storage];
      for (size_t i = readers.size(), tried = 0; i-- > 0 && tried < kSiblings && n - readers[i] < kSiblingDistance; ++tried) {
        add(readers[i]);
      }
      readers.push_back(n);
    });
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (!groups_[candidates[i]].alive) continue;
      const int group = group_of_[n];
      const bool may_wait = i >= num_producers ? MakesWait(candidates[i], group) || MakesWait(group, candidates[i])
                                               : IsSmallBeside(candidates[i], n) && MakesWait(candidates[i], group);
      if (may_wait) {
        postponed_.emplace_back(candidates[i], n);
      } else {
        TryMerge(candidates[i], group);
      }
    }
  }

  // That a group goes through. Symbols count as a value that they had.
  int64_t Points(int group) const { return graph_.symbols.Hint(groups_[group].space.numel()); }

  // Whether a group is small beside what node `n` goes through, or picks from: targets beside logits.
  bool IsSmallBeside(int group, NodeId n) const {
    int64_t elements = Points(group_of_[n]);
    ForEachUse(graph_.nodes[n], [&](const TensorRef& use) { elements = std::max(elements, StoredElements(graph_, use)); });
    return Points(group) <= elements / kSmaller;
  }

  // Whether a small group `a`, which others need, too, would have to wait for more than it does if `b` joined it.
  bool MakesWait(int a, int b) {
    if (a == b || Points(a) > kSmallSpace) return false;
    BitSet joined = groups_[a].ancestors;
    if (!joined.Add(groups_[b].ancestors)) return false;
    for (const NodeId n : groups_[a].nodes) {
      for (const ValueId result : graph_.nodes[n].results) {
        if (result == kNoValue) continue;
        for (const NodeId user : users_[result]) {
          if (user >= end_ || (group_of_[user] != a && group_of_[user] != b)) return true;
        }
      }
    }
    return false;
  }

  // What is small saves little where it is read once for two groups, and may keep large groups from each other: it comes last.
  void TryPostponed() {
    for (const auto& [group, n] : postponed_) {
      if (groups_[group].alive) TryMerge(group, group_of_[n]);
    }
    postponed_.clear();
  }

  // The uses of node `n`: first those of what is computed again for it, with which it fuses before anything else, then all others, those of
  // these nodes included.
  template <class Fn>
  void ForEachUseOf(NodeId n, const Fn& fn) {
    std::vector<NodeId> nodes = {n};
    const auto is_again = [&](const TensorRef& use) {
      const NodeId producer = graph_.values[use.storage].producer;
      return producer != kNoNode && graph_.nodes[producer].again;
    };
    for (size_t i = 0; i < nodes.size(); ++i) {
      ForEachUse(graph_.nodes[nodes[i]], [&](const TensorRef& use) {
        if (!is_again(use)) return;
        fn(use);
        nodes.push_back(graph_.values[use.storage].producer);
      });
    }
    for (const NodeId node : nodes) {
      ForEachUse(graph_.nodes[node], [&](const TensorRef& use) {
        if (!is_again(use)) fn(use);
      });
    }
  }

  // Merges the younger of two groups into the older.
  void TryMerge(int a, int b) {
    if (a == b) return;
    if (a > b) std::swap(a, b);
    WorkGroup& into = groups_[a];
    WorkGroup& from = groups_[b];
    if (static_cast<int>(into.nodes.size() + from.nodes.size()) > options_.max_nodes) return;
    if (graph_.nodes[into.nodes[0]].op.device != graph_.nodes[from.nodes[0]].op.device) return;
    if (apart_.KeepsApart(into.nodes, from.nodes)) return;
    // What a failed check leaves undone must not have been written over anything.
    if ((into.checks && from.overwrites) || (into.overwrites && from.checks)) return;
    // Writes in the order of the indices are for one pass over them.
    if (into.scatters != from.scatters && (into.scatters ? from : into).space.reduces) return;
    for (const bool along_link : {false, true}) {
      auto joined = along_link ? JoinAlongLink(into, from) : JoinSpaces(into.space, from.space);
      if (!joined.has_value()) continue;
      if (PathThroughOther(a, b) || PathThroughOther(b, a) || Merge(a, b, std::move(*joined))) return;
    }
  }

  // One space for two groups that go through a value of which the one is made, and the other makes it, in different orders.
  std::optional<JoinedSpace> JoinAlongLink(const WorkGroup& a, const WorkGroup& b) const {
    if (a.space.reduces || b.space.reduces || a.scatters || b.scatters || a.space.numel() != b.space.numel()) return std::nullopt;
    if (const auto link = FindLink(a, b)) return JoinSpacesAlong(a.space, link->first, b.space, link->second);
    if (const auto link = FindLink(b, a)) return JoinSpacesAlong(a.space, link->second, b.space, link->first);
    return std::nullopt;
  }

  // How the first value that `maker` makes and `user` uses lies in their spaces.
  std::optional<std::pair<c10::DimVector, c10::DimVector>> FindLink(const WorkGroup& maker, const WorkGroup& user) const {
    std::optional<std::pair<c10::DimVector, c10::DimVector>> link;
    for (const NodeId n : user.nodes) {
      size_t ordinal = 0;
      ForEachUse(graph_.nodes[n], [&](const TensorRef& use) {
        const auto& strides = placements_[n].uses[ordinal++];
        const NodeId producer = graph_.values[use.storage].producer;
        if (link.has_value() || !std::binary_search(maker.nodes.begin(), maker.nodes.end(), producer)) return;
        const Node& node = graph_.nodes[producer];
        for (size_t i = 0; node.kind == Node::Kind::kCompute && i < node.results.size(); ++i) {
          if (node.results[i] == use.storage) link = {placements_[producer].results[i], strides};
        }
      });
    }
    return link;
  }

  // Merges `b` into `a`, if that is consistent.
  bool Merge(int a, int b, JoinedSpace joined) {
    WorkGroup& into = groups_[a];
    WorkGroup& from = groups_[b];
    std::vector<NodeId> nodes;
    std::merge(into.nodes.begin(), into.nodes.end(), from.nodes.begin(), from.nodes.end(), std::back_inserter(nodes));
    std::vector<std::pair<NodeId, Placement>> saved;
    Place(into.nodes, joined.a, &saved);
    Place(from.nodes, joined.b, &saved);
    for (NodeId n : from.nodes) group_of_[n] = a;
    // Older members that stay where they are cannot use what is younger than all of them.
    const bool only_new = joined.a.IsIdentity() && into.nodes.back() < from.nodes.front();
    int buffers = into.buffers + from.buffers;
    if (buffers > options_.max_operands) buffers = CountBuffers(nodes, a);
    const auto scatters_rows = [&](const WorkGroup& group) {
      const NodeId n = group.nodes[0];
      return group.nodes.size() == 1 && joined.space.reduces && ScattersRows(graph_.nodes[n], placements_[n], joined.space);
    };
    if (buffers > options_.max_operands || scatters_rows(into) || scatters_rows(from) ||
        !IsConsistent(nodes, only_new ? from.nodes : nodes, a, joined.space, into.updates || from.updates)) {
      for (NodeId n : from.nodes) group_of_[n] = b;
      for (auto& [n, placement] : saved) placements_[n] = std::move(placement);
      return false;
    }
    into.space = std::move(joined.space);
    into.updates = into.updates || from.updates;
    into.overwrites = into.overwrites || from.overwrites;
    into.scatters = into.scatters || from.scatters;
    into.checks = into.checks || from.checks;
    into.buffers = buffers;
    into.nodes = std::move(nodes);
    from.alive = false;
    from.nodes.clear();
    JoinAncestors(a, b);
    return true;
  }

  void Place(const std::vector<NodeId>& nodes, const DimMap& map, std::vector<std::pair<NodeId, Placement>>* saved) {
    if (map.IsIdentity()) return;
    for (NodeId n : nodes) {
      saved->emplace_back(n, placements_[n]);
      for (auto& strides : placements_[n].uses) strides = map.Apply(strides);
      for (auto& strides : placements_[n].coordinates) strides = map.Apply(strides);
      for (size_t i = 0; i < placements_[n].results.size(); ++i) {
        auto& strides = placements_[n].results[i];
        if (graph_.nodes[n].results[i] != kNoValue) strides = map.Apply(strides);
      }
    }
  }

  // Whether something that `first` must precede must itself precede `last`.
  bool PathThroughOther(int first, int last) const {
    for (NodeId n : groups_[last].nodes) {
      for (NodeId pred : preds_[n]) {
        if (pred < begin_) continue;
        const int group = group_of_[pred];
        if (group != first && group != last && groups_[group].ancestors.Test(first)) return true;
      }
    }
    return false;
  }

  void JoinAncestors(int a, int b) {
    BitSet joined = groups_[b].ancestors;
    joined.Clear(a);
    groups_[a].ancestors.Clear(b);
    const bool grown = groups_[a].ancestors.Add(joined);
    joined = groups_[a].ancestors;
    for (size_t g = 0; g < groups_.size(); ++g) {
      WorkGroup& other = groups_[g];
      if (!other.alive || static_cast<int>(g) == a) continue;
      const bool after_b = other.ancestors.Test(b);
      if (!after_b && !(grown && other.ancestors.Test(a))) continue;
      other.ancestors.Add(joined);
      other.ancestors.Set(a);
      other.ancestors.Clear(b);
    }
  }

  // What the merged group has to fulfil; see fuse.h. `nodes` already count as members of group `id`, placed in `space`; only those of
  // `changed` have uses to look at.
  bool IsConsistent(const std::vector<NodeId>& nodes, const std::vector<NodeId>& changed, int id, const Space& space, bool updates) {
    for (NodeId n : changed) {
      if (!UsesFit(n, id)) return false;
    }
    if (updates && !MemoryFits(nodes)) return false;
    return !space.reduces || ColumnsFit(graph_, placements_, nodes, space, [&](ValueId value) { return LeavesGroup(value, id); });
  }

  // At most how many buffers the kernel has: values that come from outside or go there.
  int CountBuffers(const std::vector<NodeId>& nodes, int id) const {
    std::vector<ValueId> values;
    for (NodeId n : nodes) {
      ForEachUse(graph_.nodes[n], [&](const TensorRef& use) {
        if (!IsMember(graph_.values[use.storage].producer, id)) values.push_back(use.storage);
      });
      ForEachDef(graph_.nodes[n], [&](ValueId value) {
        if (LeavesGroup(value, id)) values.push_back(value);
      });
    }
    std::sort(values.begin(), values.end());
    return static_cast<int>(std::unique(values.begin(), values.end()) - values.begin());
  }

  bool IsMember(NodeId n, int id) const { return n != kNoNode && n >= begin_ && n < end_ && group_of_[n] == id; }

  // Every use of a value that the group itself makes must be at the point where it is made.
  bool UsesFit(NodeId n, int id) const {
    const Node& node = graph_.nodes[n];
    bool fits = true;
    size_t ordinal = 0;
    ForEachArgUse(node, [&](size_t arg, const TensorRef& use) {
      const auto& strides = placements_[n].uses[ordinal++];
      const NodeId producer = graph_.values[use.storage].producer;
      if (!fits || !IsMember(producer, id)) return;
      if (node.kind == Node::Kind::kUpdate && static_cast<int>(arg) == node.target_arg()) {
        fits = IsSameFamily(node, graph_.nodes[producer]);  // Otherwise content made here and partly overwritten here.
        return;
      }
      if (ReadsElsewhere(node, arg)) {
        fits = false;
        return;
      }
      if (IsUniform(graph_, use.storage) && graph_.nodes[producer].op.results[0].dtype == use.dtype) return;
      fits = IsAtDefinition(use, strides, producer);
    });
    return fits;
  }

  static bool IsSameFamily(const Node& a, const Node& b) { return a.family != 0 && a.family == b.family; }

  bool IsAtDefinition(const TensorRef& use, const c10::DimVector& strides, NodeId producer) const {
    const Node& node = graph_.nodes[producer];
    if (node.is_scatter()) return false;
    if (node.kind == Node::Kind::kUpdate) {
      const TensorRef& window = node.op.args[0].tensors[0];
      return use.offset_slot == window.offset_slot && use.dtype == window.dtype && strides == placements_[producer].results[0];
    }
    for (size_t i = 0; i < node.results.size(); ++i) {
      if (node.results[i] != use.storage) continue;
      return use.offset_slot == -1 && use.dtype == node.op.results[i].dtype && strides == placements_[producer].results[i];
    }
    return false;
  }

  // A memory that an update of the group writes is touched by the group through that one window only. In a kernel that reduces, stores
  // wait for the last pass over the reduced dimensions, or follow it.
  bool MemoryFits(const std::vector<NodeId>& nodes) const {
    for (NodeId writer : nodes) {
      if (graph_.nodes[writer].kind != Node::Kind::kUpdate) continue;
      const TensorRef& window = graph_.nodes[writer].Target();
      const ValueId memory = graph_.MemoryOf(window.storage);
      for (NodeId n : nodes) {
        if (n == writer) continue;
        const Node& node = graph_.nodes[n];
        if (IsSameFamily(node, graph_.nodes[writer])) continue;
        if (node.kind == Node::Kind::kUpdate && graph_.MemoryOf(node.results[0]) == memory) return false;
        if (graph_.values[memory].producer == n) return false;
        bool fits = true;
        size_t ordinal = 0;
        ForEachArgUse(node, [&](size_t arg, const TensorRef& use) {
          const auto& strides = placements_[n].uses[ordinal++];
          if (graph_.MemoryOf(use.storage) != memory || graph_.values[use.storage].producer == writer) return;
          fits = fits && !ReadsElsewhere(node, arg) && !graph_.nodes[writer].is_scatter() && use.offset_slot == window.offset_slot &&
                 use.dtype == window.dtype && strides == placements_[writer].results[0];
        });
        if (!fits) return false;
      }
    }
    return true;
  }

  bool LeavesGroup(ValueId value, int id) const {
    const StorageId storage = graph_.values[value].storage;
    if (graph_.contents[storage] == value) return true;
    for (NodeId user : users_[value]) {
      if (user >= end_ || user < begin_ || group_of_[user] != id) return true;
    }
    return false;
  }

  // Puts the groups in an order to run them in, as close to program order as they allow.
  void Order() {
    std::vector<int> owner(graph_.nodes.size());
    for (size_t g = 0; g < done_.size(); ++g) {
      for (NodeId n : done_[g].nodes) owner[n] = static_cast<int>(g);
    }
    std::vector<std::vector<int>> after(done_.size());
    std::vector<int> waiting(done_.size(), 0);
    for (NodeId n = 0; n < NumNodes(); ++n) {
      for (NodeId pred : preds_[n]) {
        if (owner[pred] == owner[n]) continue;
        after[owner[pred]].push_back(owner[n]);
        ++waiting[owner[n]];
      }
    }
    using Entry = std::pair<NodeId, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> ready;
    for (size_t g = 0; g < done_.size(); ++g) {
      if (waiting[g] == 0) ready.push({done_[g].nodes.back(), static_cast<int>(g)});
    }
    while (!ready.empty()) {
      const int g = ready.top().second;
      ready.pop();
      Finish(done_[g]);
      for (int next : after[g]) {
        if (--waiting[next] == 0) ready.push({done_[next].nodes.back(), next});
      }
    }
  }

  void Finish(WorkGroup& group) {
    Group out;
    const NodeId first = group.nodes[0];
    if (group.fusable && options_.enabled && group.nodes.size() == 1 &&
        IsBetterLeftToAten(graph_.nodes[first], placements_[first], group.space)) {
      LeaveToAten(first);
      group.fusable = false;
    }
    out.nodes = std::move(group.nodes);
    if (group.fusable) {
      out.sizes = std::move(group.space.sizes);
      out.reduced = std::move(group.space.reduced);
      for (NodeId n : out.nodes) out.placements.push_back(std::move(placements_[n]));
    }
    graph_.groups.push_back(std::move(out));
  }

  Graph graph_;
  const FuseOptions options_;
  const std::vector<std::vector<NodeId>> preds_;
  std::vector<Placement> placements_;       // By node.
  std::vector<int> group_of_;               // By node: index into groups_ of its segment.
  std::vector<std::vector<NodeId>> users_;  // By value.
  const RecordedApart apart_;
  std::vector<std::vector<NodeId>> readers_;  // By value: fusable nodes seen so far that read it.
  NodeId begin_ = 0, end_ = 0;                // The segment.
  std::vector<WorkGroup> groups_;             // Of the segment.
  std::vector<WorkGroup> done_;
  std::vector<std::pair<int, NodeId>> postponed_;  // Of the segment: groups and nodes to merge with them when all else is done.
};

}  // namespace

absl::StatusOr<Graph> Fuse(Graph graph, const FuseOptions& options) { return Fuser(std::move(graph), options).Run(); }

}  // namespace lazuli::codegen
