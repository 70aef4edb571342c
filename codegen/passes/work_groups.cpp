#include "codegen/passes/work_groups.h"

#include <algorithm>

#include "codegen/lower.h"
#include "codegen/lower_group.h"
#include "codegen/passes/columns.h"
#include "codegen/passes/left_to_aten.h"
#include "codegen/passes/value_uses.h"

namespace lazuli::codegen {
namespace {

bool IsSameFamily(const Node& a, const Node& b) { return a.family != 0 && a.family == b.family; }

}  // namespace

WorkGroups::WorkGroups(Graph graph, const FuseOptions& options)
    : graph_(std::move(graph)),
      options_(options),
      preds_(Predecessors(graph_)),
      placements_(graph_.nodes.size()),
      group_of_(graph_.nodes.size(), -1),
      users_(graph_.values.size()),
      apart_(graph_, users_) {
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    ForEachUse(graph_.nodes[n], [&](const TensorRef& use) { users_[use.storage].push_back(static_cast<NodeId>(n)); });
  }
}

void WorkGroups::BeginSegment(NodeId begin, NodeId end) {
  begin_ = begin;
  end_ = end;
  groups_.assign(end - begin, WorkGroup());
}

void WorkGroups::Start(NodeId n) {
  WorkGroup& group = groups_[n - begin_];
  const Node& node = graph_.nodes[n];
  if (node.row != nullptr && node.row->made_by != nullptr && !IsMadeAsNeeded(graph_, node)) LeaveToAten(n);
  if (IsOneLongScan(graph_, node) || LacksChannelsLast(node)) LeaveToAten(n);
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

void WorkGroups::LeaveToAten(NodeId n) {
  graph_.nodes[n].kind = Node::Kind::kExtern;
  graph_.nodes[n].row = nullptr;
}

void WorkGroups::TryMerge(int a, int b) {
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
std::optional<JoinedSpace> WorkGroups::JoinAlongLink(const WorkGroup& a, const WorkGroup& b) const {
  if (a.space.reduces || b.space.reduces || a.scatters || b.scatters || a.space.numel() != b.space.numel()) return std::nullopt;
  if (const auto link = FindLink(a, b)) return JoinSpacesAlong(a.space, link->first, b.space, link->second);
  if (const auto link = FindLink(b, a)) return JoinSpacesAlong(a.space, link->second, b.space, link->first);
  return std::nullopt;
}

// How the first value that `maker` makes and `user` uses lies in their spaces.
std::optional<std::pair<c10::DimVector, c10::DimVector>> WorkGroups::FindLink(const WorkGroup& maker, const WorkGroup& user) const {
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
bool WorkGroups::Merge(int a, int b, JoinedSpace joined) {
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
    Restore(std::move(saved));
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

void WorkGroups::Place(const std::vector<NodeId>& nodes, const DimMap& map, std::vector<std::pair<NodeId, Placement>>* saved) {
  if (map.IsIdentity()) return;
  for (NodeId n : nodes) {
    saved->emplace_back(n, placements_[n]);
    MapPlacement(map, graph_.nodes[n], &placements_[n]);
  }
}

void WorkGroups::Restore(std::vector<std::pair<NodeId, Placement>> saved) {
  for (auto& [n, placement] : saved) placements_[n] = std::move(placement);
}

// Whether something that `first` must precede must itself precede `last`.
bool WorkGroups::PathThroughOther(int first, int last) const {
  for (NodeId n : groups_[last].nodes) {
    for (NodeId pred : preds_[n]) {
      if (pred < begin_) continue;
      const int group = group_of_[pred];
      if (group != first && group != last && groups_[group].ancestors.Test(first)) return true;
    }
  }
  return false;
}

void WorkGroups::JoinAncestors(int a, int b) {
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

// Finds anew, for all groups, which others have to run before.
void WorkGroups::FindAncestors() {
  std::vector<std::vector<int>> before(groups_.size()), after(groups_.size());
  std::vector<int> ready;
  std::vector<size_t> waits_for(groups_.size(), 0);
  for (size_t i = 0; i < groups_.size(); ++i) {
    const int g = static_cast<int>(i);
    groups_[i].ancestors = BitSet(groups_.size());
    for (const NodeId n : groups_[i].nodes) {
      for (const NodeId pred : preds_[n]) {
        if (pred >= begin_ && group_of_[pred] != g) before[i].push_back(group_of_[pred]);
      }
    }
    for (const int earlier : before[i]) after[earlier].push_back(g);
    waits_for[i] = before[i].size();
    if (waits_for[i] == 0) ready.push_back(g);
  }
  while (!ready.empty()) {
    const int g = ready.back();
    ready.pop_back();
    for (const int earlier : before[g]) {
      groups_[g].ancestors.Add(groups_[earlier].ancestors);
      groups_[g].ancestors.Set(earlier);
    }
    for (const int later : after[g]) {
      if (--waits_for[later] == 0) ready.push_back(later);
    }
  }
}

bool WorkGroups::Move(const std::vector<NodeId>& nodes, int from, int to) {
  WorkGroup& source = groups_[from];
  WorkGroup& target = groups_[to];
  if (static_cast<int>(target.nodes.size() + nodes.size()) > options_.max_nodes) return false;
  Space whole = source.space;
  whole.reduces = false;
  whole.reduced.assign(whole.sizes.size(), false);
  auto joined = JoinSpaces(whole, target.space);
  if (!joined.has_value()) return false;
  std::vector<std::pair<NodeId, Placement>> saved;
  Place(nodes, joined->a, &saved);
  Place(target.nodes, joined->b, &saved);
  std::vector<NodeId> all;
  std::merge(target.nodes.begin(), target.nodes.end(), nodes.begin(), nodes.end(), std::back_inserter(all));
  for (const NodeId n : nodes) group_of_[n] = to;
  const int buffers = CountBuffers(all, to);
  const auto scatters_rows = [&](NodeId n) {
    return joined->space.reduces && ScattersRows(graph_.nodes[n], placements_[n], joined->space);
  };
  if (buffers > options_.max_operands || !AreThroughout(nodes, joined->space) || std::any_of(nodes.begin(), nodes.end(), scatters_rows) ||
      !IsConsistent(all, all, to, joined->space, target.updates)) {
    for (const NodeId n : nodes) group_of_[n] = from;
    Restore(std::move(saved));
    return false;
  }
  target.space = std::move(joined->space);
  target.buffers = buffers;
  target.nodes = std::move(all);
  const auto moved = [&](NodeId n) { return std::binary_search(nodes.begin(), nodes.end(), n); };
  source.nodes.erase(std::remove_if(source.nodes.begin(), source.nodes.end(), moved), source.nodes.end());
  source.alive = !source.nodes.empty();
  if (source.alive) source.buffers = CountBuffers(source.nodes, from);
  FindAncestors();
  return true;
}

// Whether each of `nodes` computes a value at every point of `space`, or once for those that are reduced.
bool WorkGroups::AreThroughout(const std::vector<NodeId>& nodes, const Space& space) const {
  for (const NodeId n : nodes) {
    for (size_t d = 0; d < space.sizes.size(); ++d) {
      if (placements_[n].results[0][d] == 0 && !space.reduced[d]) return false;
    }
  }
  return true;
}

// What the merged group has to fulfil; see fuse.h. `nodes` already count as members of group `id`, placed in `space`; only those of
// `changed` have uses to look at.
bool WorkGroups::IsConsistent(const std::vector<NodeId>& nodes, const std::vector<NodeId>& changed, int id, const Space& space,
                              bool updates) {
  for (NodeId n : changed) {
    if (!UsesFit(n, id)) return false;
  }
  if (updates && !MemoryFits(nodes)) return false;
  if (space.reduces && !ScansFit(nodes, space)) return false;
  return !space.reduces || ColumnsFit(graph_, placements_, nodes, space, [&](ValueId value) { return LeavesGroup(value, id); });
}

// Scans go along one dimension, all of them in one direction.
bool WorkGroups::ScansFit(const std::vector<NodeId>& nodes, const Space& space) const {
  ScanDirection direction = ScanDirection::kNone;
  for (const NodeId n : nodes) {
    const ScanDirection own = ScanOf(graph_.nodes[n]);
    if (own == ScanDirection::kNone) continue;
    if (direction != ScanDirection::kNone && direction != own) return false;
    direction = own;
  }
  return direction == ScanDirection::kNone || std::count(space.reduced.begin(), space.reduced.end(), true) <= 1;
}

// At most how many buffers the kernel has: values that come from outside or go there.
int WorkGroups::CountBuffers(const std::vector<NodeId>& nodes, int id) const {
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

// Every use of a value that the group itself makes must be at the point where it is made.
bool WorkGroups::UsesFit(NodeId n, int id) const {
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

bool WorkGroups::IsAtDefinition(const TensorRef& use, const c10::DimVector& strides, NodeId producer) const {
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
bool WorkGroups::MemoryFits(const std::vector<NodeId>& nodes) const {
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

bool WorkGroups::LeavesGroup(ValueId value, int id) const {
  const StorageId storage = graph_.values[value].storage;
  if (graph_.contents[storage] == value) return true;
  for (NodeId user : users_[value]) {
    if (user >= end_ || user < begin_ || group_of_[user] != id) return true;
  }
  return false;
}
}  // namespace lazuli::codegen
