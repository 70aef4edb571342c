#include "codegen/passes/inline_broadcasts.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "codegen/lower.h"
#include "codegen/lower_group.h"
#include "codegen/passes/columns.h"
#include "codegen/passes/space.h"
#include "codegen/passes/value_uses.h"

namespace lazuli::codegen {
namespace {

// So many kernels may compute the same.
constexpr size_t kMostReaders = 4;
// Operations, as Weight counts them, that take about as long as a launch of a kernel on a GPU, and a step of a program on a CPU.
constexpr double kLaunch = 1 << 24;
constexpr double kStep = 1 << 11;

class Inliner {
 public:
  Inliner(Graph graph, const FuseOptions& options)
      : options_(options),
        graph_(std::move(graph)),
        num_nodes_(graph_.nodes.size()),
        overwritten_(OverwrittenValues(graph_)),
        pinned_(PinnedValues(graph_)),
        group_of_(num_nodes_, -1),
        gone_(num_nodes_, false),
        anchor_(num_nodes_),
        users_(graph_.values.size()),
        before_(num_nodes_) {
    std::iota(anchor_.begin(), anchor_.end(), 0);
    for (size_t g = 0; g < graph_.groups.size(); ++g) {
      for (const NodeId n : graph_.groups[g].nodes) group_of_[n] = static_cast<int>(g);
    }
    for (size_t n = 0; n < num_nodes_; ++n) AddUses(static_cast<NodeId>(n));
  }

  // Later groups first: what goes into a reader may itself read what another group makes.
  Graph Run() {
    for (int g = static_cast<int>(graph_.groups.size()) - 1; g >= 0; --g) TryGroup(g);
    if (changed_) Rebuild();
    return std::move(graph_);
  }

 private:
  // A reader as it would be.
  struct Joined {
    int group;
    DimMap inlined;  // How the nodes of the group that goes lie in it.
    DimMap own;      // How its own do.
    Space space;
  };

  Group& At(int group) { return graph_.groups[group]; }
  const Group& At(int group) const { return graph_.groups[group]; }
  const Node& NodeAt(NodeId n) const { return graph_.nodes[n]; }

  void AddUses(NodeId n) {
    ForEachUse(graph_.nodes[n], [&](const TensorRef& use) {
      if (users_[use.storage].empty() || users_[use.storage].back() != n) users_[use.storage].push_back(n);
    });
  }

  void TryGroup(int g) {
    if (!CanGo(At(g))) return;
    const std::vector<int> readers = ReadersOf(g);
    if (readers.empty() || readers.size() > kMostReaders) return;
    const double weight = LoweredWeight(graph_, At(g));
    double work = 0;
    std::vector<Joined> joined;
    for (const int reader : readers) {
      std::optional<Joined> with = Join(g, reader);
      if (!with.has_value()) return;
      work += weight * static_cast<double>(graph_.symbols.Hint(with->space.numel()));
      joined.push_back(*std::move(with));
    }
    if (work > (NodeAt(At(g).nodes[0]).op.device.is_cpu() ? kStep : kLaunch)) return;
    for (Joined& with : joined) Inline(g, std::move(with));
    for (const NodeId n : At(g).nodes) gone_[n] = true;
    changed_ = true;
  }

  // Whether all that the group does is compute single values, point by point, that need no memory but for kernels to read them from, of
  // what will still be there then.
  bool CanGo(const Group& group) const {
    if (!group.is_kernel()) return false;
    return std::all_of(group.nodes.begin(), group.nodes.end(), [&](NodeId n) {
      const Node& node = NodeAt(n);
      if (node.kind != Node::Kind::kCompute || node.results.size() != 1 || Reduces(node) || node.row->index_args != 0) return false;
      const ValueId result = node.results[0];
      if (result == kNoValue || pinned_[result] || overwritten_[result] || IsUniform(graph_, result)) return false;
      bool stays = true;
      ForEachUse(node, [&](const TensorRef& use) { stays = stays && !overwritten_[use.storage]; });
      return stays;
    });
  }

  // The other groups that read what group `g` makes; none where one of them is no kernel.
  std::vector<int> ReadersOf(int g) const {
    std::vector<int> readers;
    for (const NodeId n : At(g).nodes) {
      for (const NodeId user : users_[NodeAt(n).results[0]]) {
        if (gone_[user]) continue;
        if (!At(group_of_[user]).is_kernel()) return {};
        if (group_of_[user] != g) readers.push_back(group_of_[user]);
      }
    }
    std::sort(readers.begin(), readers.end());
    readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
    return readers;
  }

  // How group `g` fits into `reader`, if it does.
  std::optional<Joined> Join(int g, int reader) const {
    const Group &small = At(g), &large = At(reader);
    if (static_cast<int>(small.nodes.size() + large.nodes.size()) > options_.max_nodes) return std::nullopt;
    if (NodeAt(small.nodes[0]).op.device != NodeAt(large.nodes[0]).op.device) return std::nullopt;
    const Space space = SpaceOf(small), other = SpaceOf(large);
    std::optional<Joined> joined;
    bool fits = !std::any_of(large.nodes.begin(), large.nodes.end(), [&](NodeId n) { return NodeAt(n).is_scatter(); });
    ForEachLink(
        g, reader,
        [&](const c10::DimVector& made, const c10::DimVector& used) {
          if (!fits || joined.has_value() || std::count(made.begin(), made.end(), 0) != 0) return;
          auto with = JoinBroadcast(space, made, other, used);
          fits = with.has_value();
          if (fits) joined = Joined{reader, std::move(with->a), std::move(with->b), std::move(with->space)};
        },
        &fits);
    if (!joined.has_value()) return std::nullopt;
    ForEachLink(
        g, reader,
        [&](const c10::DimVector& made, const c10::DimVector& used) {
          fits = fits && joined->inlined.Apply(made) == joined->own.Apply(used);
        },
        &fits);
    if (!fits || CountOperands(small, large) > options_.max_operands || !ColumnsStillFit(small, *joined)) return std::nullopt;
    return joined;
  }

  bool ColumnsStillFit(const Group& small, const Joined& joined) const {
    const Group& large = At(joined.group);
    if (!std::any_of(large.nodes.begin(), large.nodes.end(), [&](NodeId n) { return Reduces(NodeAt(n)); })) return true;
    std::vector<Placement> placements(graph_.nodes.size());
    std::vector<NodeId> nodes;
    const auto add = [&](const Group& group, const DimMap& map) {
      for (size_t i = 0; i < group.nodes.size(); ++i) {
        nodes.push_back(group.nodes[i]);
        placements[group.nodes[i]] = group.placements[i];
        MapPlacement(map, NodeAt(group.nodes[i]), &placements[group.nodes[i]]);
      }
    };
    add(small, joined.inlined);
    add(large, joined.own);
    return ColumnsFit(graph_, placements, nodes, joined.space, [&](ValueId value) { return IsStored(value, joined.group); });
  }

  // Whether others than group `group`, which makes it, may need `value`.
  bool IsStored(ValueId value, int group) const {
    const NodeId producer = graph_.values[value].producer;
    if (producer == kNoNode || group_of_[producer] != group) return false;
    return pinned_[value] || overwritten_[value] ||
           std::any_of(users_[value].begin(), users_[value].end(), [&](NodeId n) { return group_of_[n] != group; });
  }

  static Space SpaceOf(const Group& group) {
    Space space;
    space.sizes = group.sizes;
    space.reduced = group.reduced;
    return space;
  }

  // Calls `fn` with how each value of group `g` that `reader` uses lies in the one and in the other. False in `fits` where it is not used
  // as it is made.
  template <class Fn>
  void ForEachLink(int g, int reader, const Fn& fn, bool* fits) const {
    const Group &small = At(g), &large = At(reader);
    for (size_t i = 0; i < large.nodes.size(); ++i) {
      const Node& node = NodeAt(large.nodes[i]);
      size_t ordinal = 0;
      ForEachArgUse(node, [&](size_t arg, const TensorRef& use) {
        const c10::DimVector& used = large.placements[i].uses[ordinal++];
        const NodeId producer = graph_.values[use.storage].producer;
        const auto made = std::find(small.nodes.begin(), small.nodes.end(), producer);
        if (made == small.nodes.end()) return;
        const bool window = node.kind == Node::Kind::kUpdate && static_cast<int>(arg) == node.target_arg();
        const bool read = node.row == nullptr || (node.row->index_args >> arg & 1) == 0;
        *fits = *fits && !window && read && !ReadsElsewhere(node, arg) && use.offset_slot == -1 &&
                use.dtype == NodeAt(producer).op.results[0].dtype;
        fn(small.placements[static_cast<size_t>(made - small.nodes.begin())].results[0], used);
      });
    }
  }

  // At most so many buffers has the kernel of both.
  int CountOperands(const Group& small, const Group& large) const {
    std::vector<ValueId> values;
    for (const Group* group : {&small, &large}) {
      for (const NodeId n : group->nodes) {
        ForEachUse(NodeAt(n), [&](const TensorRef& use) { values.push_back(use.storage); });
        if (group == &large) ForEachDef(NodeAt(n), [&](ValueId value) { values.push_back(value); });
      }
    }
    std::sort(values.begin(), values.end());
    return static_cast<int>(std::unique(values.begin(), values.end()) - values.begin());
  }

  void Inline(int g, Joined with) {
    Group& large = At(with.group);
    for (size_t i = 0; i < large.nodes.size(); ++i) MapPlacement(with.own, NodeAt(large.nodes[i]), &large.placements[i]);
    large.sizes = std::move(with.space.sizes);
    large.reduced = std::move(with.space.reduced);
    // The last nodes first: each is copied if one of the reader's needs it by then, before the first of these.
    const Group small = At(g);
    for (size_t i = small.nodes.size(); i-- > 0;) {
      const ValueId value = NodeAt(small.nodes[i]).results[0];
      NodeId first = kNoNode;
      for (const NodeId user : users_[value]) {
        if (group_of_[user] == with.group && (first == kNoNode || anchor_[user] < first)) first = anchor_[user];
      }
      if (first == kNoNode) continue;
      const NodeId copy = AddCopy(small.nodes[i], first, with.group);
      before_[first].insert(before_[first].begin(), copy);
      for (const NodeId n : large.nodes) {
        ForEachUse(graph_.nodes[n], [&](TensorRef& use) {
          if (use.storage == value) use.storage = NodeAt(copy).results[0];
        });
      }
      users_[value].erase(std::remove_if(users_[value].begin(), users_[value].end(), [&](NodeId n) { return group_of_[n] == with.group; }),
                          users_[value].end());
      large.nodes.insert(large.nodes.begin(), copy);
      large.placements.insert(large.placements.begin(), small.placements[i]);
      MapPlacement(with.inlined, NodeAt(copy), &large.placements.front());
    }
  }

  // A copy of node `n`, which makes a value of its own, for `group`, before node `anchor`.
  NodeId AddCopy(NodeId n, NodeId anchor, int group) {
    Node copy = NodeAt(n);
    const auto id = static_cast<NodeId>(graph_.nodes.size());
    Value value = graph_.values[copy.results[0]];
    value.producer = id;
    copy.results[0] = graph_.AddValue(std::move(value));
    graph_.nodes.push_back(std::move(copy));
    overwritten_.push_back(false);
    pinned_.push_back(false);
    users_.emplace_back();
    group_of_.push_back(group);
    gone_.push_back(false);
    anchor_.push_back(anchor);
    AddUses(id);
    return id;
  }

  // Puts the copies where they belong, and leaves out what is gone.
  void Rebuild() {
    std::vector<NodeId> order, renumbered(graph_.nodes.size(), kNoNode);
    for (size_t n = 0; n < num_nodes_; ++n) {
      order.insert(order.end(), before_[n].begin(), before_[n].end());
      order.push_back(static_cast<NodeId>(n));
    }
    order.erase(std::remove_if(order.begin(), order.end(), [&](NodeId n) { return gone_[n]; }), order.end());
    std::vector<Node> nodes;
    for (const NodeId n : order) {
      renumbered[n] = static_cast<NodeId>(nodes.size());
      nodes.push_back(std::move(graph_.nodes[n]));
    }
    graph_.nodes = std::move(nodes);
    for (Value& value : graph_.values) {
      if (value.producer != kNoNode) value.producer = renumbered[value.producer];
    }
    std::vector<Group> groups;
    for (Group& group : graph_.groups) {
      if (!gone_[group.nodes[0]]) groups.push_back(Renumbered(std::move(group), renumbered));
    }
    graph_.groups = std::move(groups);
  }

  static Group Renumbered(Group group, const std::vector<NodeId>& renumbered) {
    std::vector<size_t> order(group.nodes.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return renumbered[group.nodes[a]] < renumbered[group.nodes[b]]; });
    std::vector<NodeId> nodes;
    std::vector<Placement> placements;
    for (const size_t i : order) {
      nodes.push_back(renumbered[group.nodes[i]]);
      if (group.is_kernel()) placements.push_back(std::move(group.placements[i]));
    }
    group.nodes = std::move(nodes);
    group.placements = std::move(placements);
    return group;
  }

  const FuseOptions options_;
  Graph graph_;
  const size_t num_nodes_;                   // Without copies.
  std::vector<bool> overwritten_, pinned_;   // By value.
  std::vector<int> group_of_;                // By node.
  std::vector<bool> gone_;                   // By node.
  std::vector<NodeId> anchor_;               // By node: itself, or what a copy comes before.
  std::vector<std::vector<NodeId>> users_;   // By value.
  std::vector<std::vector<NodeId>> before_;  // By node: copies that come before it.
  bool changed_ = false;
};

}  // namespace

absl::StatusOr<Graph> InlineBroadcasts(Graph graph, const FuseOptions& options) {
  if (!options.enabled) return graph;
  return Inliner(std::move(graph), options).Run();
}

}  // namespace lazuli::codegen
