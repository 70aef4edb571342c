#include "codegen/passes/recorded_apart.h"

#include <algorithm>
#include <limits>

#include "codegen/passes/value_uses.h"

namespace lazuli::codegen {
namespace {

using runtime::Holds;

constexpr int64_t kLargeBytes = int64_t{1} << 20;
// On a CPU, where operands that are kept alive cost memory alone.
constexpr int32_t kMostOpsApartOnCpu = 16;

int32_t LastOp(const Graph& graph, const std::vector<NodeId>& nodes) {
  int32_t last = 0;
  for (const NodeId n : nodes) last = std::max(last, graph.nodes[n].op.index);
  return last;
}

// Whether they read a value of which `is_one` says so.
template <class IsOne>
bool ReadOne(const Graph& graph, const std::vector<NodeId>& nodes, const IsOne& is_one) {
  bool reads = false;
  for (const NodeId n : nodes) {
    ForEachUse(graph.nodes[n], [&](const TensorRef& use) { reads = reads || is_one(use.storage); });
  }
  return reads;
}

}  // namespace

bool RecordedApart::PutsOff(const std::vector<NodeId>& nodes, const std::vector<NodeId>& joining) const {
  const bool on_cpu = IsOnCpu(nodes);
  if (LastOp(graph_, joining) - LastOp(graph_, nodes) <= (on_cpu ? kMostOpsApartOnCpu : kMostOpsApart)) return false;
  const bool updates = !on_cpu && ReadOne(graph_, joining, [this](ValueId value) {
    const TraceStorage& storage = graph_.storages[graph_.values[value].storage];
    return storage.is_input && storage.mutated;
  });
  for (const NodeId n : nodes) {
    int64_t made = 0;
    ForEachDef(graph_.nodes[n], [&](ValueId value) {
      if (graph_.values[value].has_layout()) made += StoredBytes(graph_, graph_.values[value].layout);
    });
    bool keeps = false;
    ForEachUse(graph_.nodes[n], [&](const TensorRef& use) {
      const ValueId memory = graph_.MemoryOf(use.storage);
      const NodeId maker = graph_.values[memory].producer;
      const bool is_large = made > 0 && StoredBytes(graph_, use) >= std::max(updates ? 0 : kLargeBytes, 16 * made);
      // Inputs are alive anyway, and what the step makes itself is not in memory.
      if (!is_large || maker == kNoNode || Holds(nodes, maker)) return;
      keeps = keeps || !ReadOne(graph_, joining, [&](ValueId value) { return graph_.MemoryOf(value) == memory; });
    });
    if (keeps) return true;
  }
  return false;
}

bool RecordedApart::HoldsUp(const std::vector<NodeId>& nodes, const std::vector<NodeId>& joining) const {
  const int32_t last = LastOp(graph_, joining);
  const auto is_earlier = [&](NodeId n) { return graph_.nodes[n].op.index < last - kMostOpsApart; };
  const auto waits = [&](NodeId user) { return is_earlier(user) && !Holds(nodes, user) && !Holds(joining, user); };
  bool holds_up = false;
  for (const NodeId n : nodes) {
    if (!is_earlier(n)) continue;
    ForEachDef(graph_.nodes[n],
               [&](ValueId value) { holds_up = holds_up || std::any_of(users_[value].begin(), users_[value].end(), waits); });
  }
  return holds_up;
}

int64_t RecordedApart::Overwrites(const Node& node) const {
  int64_t bytes = 0;
  ForEachOverwritten(graph_, node, [&](int64_t of_one) { bytes = std::max(bytes, of_one); });
  return bytes;
}

bool RecordedApart::IsSmallUpdate(NodeId n) const {
  const Node& node = graph_.nodes[n];
  if (node.kind != Node::Kind::kUpdate || node.op.index >= first_large_) return false;
  const int64_t bytes = Overwrites(node);
  return bytes > 0 && bytes <= runtime::kMostSavedBytes;
}

bool RecordedApart::UpdatesEarly(const std::vector<NodeId>& updates, const std::vector<NodeId>& makes) const {
  if (std::none_of(updates.begin(), updates.end(), [&](NodeId n) { return IsSmallUpdate(n); })) return false;
  const auto waits = [&](NodeId user) { return !Holds(updates, user) && !Holds(makes, user) && !IsSmallUpdate(user); };
  bool wait = false;
  for (const NodeId n : makes) {
    ForEachDef(graph_.nodes[n], [&](ValueId value) { wait = wait || std::any_of(users_[value].begin(), users_[value].end(), waits); });
  }
  return wait;
}

RecordedApart::RecordedApart(const Graph& graph, const std::vector<std::vector<NodeId>>& users)
    : graph_(graph), users_(users), first_large_(std::numeric_limits<int32_t>::max()) {
  for (const Node& node : graph.nodes) {
    if (Overwrites(node) > runtime::kMostSavedBytes) first_large_ = std::min(first_large_, node.op.index);
  }
}

bool RecordedApart::KeepsApart(const std::vector<NodeId>& nodes, const std::vector<NodeId>& joining) const {
  if (IsOnCpu(nodes)) return PutsOff(nodes, joining);
  return HoldsUp(nodes, joining) || PutsOff(nodes, joining) || UpdatesEarly(nodes, joining) || UpdatesEarly(joining, nodes);
}

runtime::KnownAt KnownAtOf(const Trace& trace) {
  runtime::KnownAt known_at;
  known_at.storages.resize(trace.storages.size());
  known_at.scalars.resize(static_cast<size_t>(trace.num_scalars));
  known_at.offsets.resize(static_cast<size_t>(trace.num_offsets));
  int32_t num_ops = 0;
  const auto mention = [&num_ops](std::vector<int32_t>* all, int32_t number) {
    if (number < 0) return;
    int32_t& at = (*all)[static_cast<size_t>(number)];
    if (at == 0) at = num_ops;
  };
  for (const TraceOp& op : trace.ops) {
    ++num_ops;
    for (const TraceArg& arg : op.args) {
      mention(&known_at.scalars, arg.slot);
      for (const TensorRef& ref : arg.tensors) {
        if (!ref.defined()) continue;
        if (trace.storages[static_cast<size_t>(ref.storage)].is_input) mention(&known_at.storages, ref.storage);
        mention(&known_at.offsets, ref.offset_slot);
      }
    }
  }
  return known_at;
}

}  // namespace lazuli::codegen
