#include "codegen/passes/reuse.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "codegen/lower.h"
#include "codegen/lower_group.h"
#include "codegen/passes/value_uses.h"

namespace lazuli::codegen {
namespace {

// Less is not worth it where a result leaves the trace.
constexpr int64_t kLargeBytes = int64_t{64} << 10;

class Reuser {
 public:
  Reuser(Graph* graph, bool cudagraphs)
      : graph_(*graph),
        cudagraphs_(cudagraphs),
        in_memory_(ValuesInMemory(*graph)),
        pinned_(PinnedValues(*graph)),
        overwritten_(OverwrittenValues(*graph)),
        uses_(CountUses(*graph)),
        leaves_(MemoriesThatLeave(*graph)) {
    group_of_.resize(graph->nodes.size());
    last_use_.resize(graph->values.size(), -1);
    for (int g = 0; g < static_cast<int>(graph->groups.size()); ++g) {
      for (const NodeId n : graph->groups[g].nodes) {
        group_of_[n] = g;
        ForEachUse(graph->nodes[n], [&](const TensorRef& use) { last_use_[use.storage] = g; });
      }
    }
  }

  void Run() {
    for (int g = 0; g < static_cast<int>(graph_.groups.size()); ++g) {
      const Group& group = graph_.groups[g];
      if (!group.is_kernel()) continue;
      const bool in_order = IsInOrder(group), on_gpu = graph_.nodes[group.nodes[0]].op.device.is_cuda();
      for (size_t i = 0; i < group.nodes.size(); ++i) {
        if (in_order) TakeMemory(g, i);
        if (on_gpu && IsFirstWindow(graph_.nodes[group.nodes[i]])) WriteOver(g, i);
      }
    }
  }

 private:
  // Whether points can be gone through in any order, each once what is read there is there: updates write other memories. (Where passes
  // over them follow each other, what overwrites an operand is stored in the last one: StagedKernel::store_pass.)
  bool IsInOrder(const Group& group) const {
    return std::all_of(group.nodes.begin(), group.nodes.end(), [&](NodeId n) {
      const Node& node = graph_.nodes[n];
      if (node.kind == Node::Kind::kUpdate) return !node.is_scatter();
      return node.kind == Node::Kind::kCompute && node.row->scans == ScanDirection::kNone;
    });
  }

  // Whether the node writes a window of a memory that has no content yet, and that stays in the trace.
  bool IsFirstWindow(const Node& node) const {
    if (node.kind != Node::Kind::kUpdate || node.is_scatter() || node.family == 0) return false;
    const ValueId empty = node.Target().storage;
    const NodeId producer = graph_.values[empty].producer;
    if (producer == kNoNode || uses_[empty] != 1 || leaves_.contains(empty)) return false;
    const Node& maker = graph_.nodes[producer];
    return maker.kind == Node::Kind::kCompute && maker.part == maker.row->empty_part;
  }

  // Finds a memory with content for node `i` of group `g`, which writes a first window.
  void WriteOver(int g, size_t i) {
    const Group& group = graph_.groups[g];
    Node& node = graph_.nodes[group.nodes[i]];
    const ValueId empty = node.Target().storage;
    const ValueId old = FindOld(g, group.nodes[i], empty, node.Target().offset_slot, group.placements[i].results[0]);
    if (old == kNoValue) return;
    node.op.args[static_cast<size_t>(node.target_arg())].tensors[0].storage = old;
    SetPrevious(node.results[0], old);
    graph_.nodes[graph_.values[empty].producer].results[0] = kNoValue;
  }

  // Finds a place for the result of node `i` of group `g`, if it has just one that is stored.
  void TakeMemory(int g, size_t i) {
    const Group& group = graph_.groups[g];
    const Node& node = graph_.nodes[group.nodes[i]];
    ValueId stored = kNoValue;
    size_t at = 0;
    for (size_t r = 0; r < node.results.size(); ++r) {
      if (node.results[r] == kNoValue || !in_memory_[node.results[r]]) continue;
      if (stored != kNoValue) return;
      stored = node.results[r];
      at = r;
    }
    if (stored == kNoValue || graph_.values[stored].previous != kNoValue || !MayMove(node, stored)) return;
    const ValueId old = FindOld(g, group.nodes[i], stored, -1, group.placements[i].results[at]);
    if (old != kNoValue) SetPrevious(stored, old);
  }

  // Whether `stored`, which `node` makes, may have memory that was another value's.
  bool MayMove(const Node& node, ValueId stored) const {
    if (!pinned_[stored]) return node.op.device.is_cuda();
    const Value& value = graph_.values[stored];
    return !cudagraphs_ && value.has_layout() && StoredBytes(graph_, value.layout) >= kLargeBytes;
  }

  void SetPrevious(ValueId value, ValueId old) {
    graph_.values[value].previous = old;
    overwritten_[old] = true;
  }

  // The first value that group `g` uses whose memory may be taken for `stored`, which node `maker` of the group writes at the given places.
  ValueId FindOld(int g, NodeId maker, ValueId stored, int32_t offset_slot, const c10::DimVector& strides) const {
    ValueId old = kNoValue;
    for (const NodeId n : graph_.groups[g].nodes) {
      ForEachUse(graph_.nodes[n], [&](const TensorRef& use) {
        if (old == kNoValue && MayTake(g, maker, stored, offset_slot, strides, use.storage)) old = use.storage;
      });
    }
    return old;
  }

  bool MayTake(int g, NodeId maker, ValueId stored, int32_t offset_slot, const c10::DimVector& strides, ValueId old) const {
    const Value& result = graph_.values[stored];
    const Value& value = graph_.values[old];
    if (last_use_[old] != g || !in_memory_[old] || pinned_[old] || overwritten_[old]) return false;
    if (graph_.nodes[maker].op.device.is_cpu() && uses_[old] < 2) return false;
    const NodeId producer = graph_.values[graph_.MemoryOf(old)].producer;
    if (producer == kNoNode || group_of_[value.producer] == g || !value.has_layout()) return false;
    const bool same_bytes = value.layout.dtype == result.layout.dtype && value.layout.numel() == result.layout.numel() &&
                            DeviceOf(graph_, old) == DeviceOf(graph_, stored);
    return same_bytes && IsReadInPlace(g, maker, result.layout.dtype, offset_slot, strides, old);
  }

  // Whether the group reads all of `old` where node `maker` stores, and nothing of it later.
  bool IsReadInPlace(int g, NodeId maker, c10::ScalarType dtype, int32_t offset_slot, const c10::DimVector& strides, ValueId old) const {
    const Group& group = graph_.groups[g];
    bool in_place = true;
    for (size_t i = 0; i < group.nodes.size(); ++i) {
      size_t ordinal = 0;
      const Node& node = graph_.nodes[group.nodes[i]];
      ForEachArgUse(node, [&](size_t arg, const TensorRef& use) {
        const c10::DimVector& read = group.placements[i].uses[ordinal++];
        if (use.storage != old) return;
        in_place = in_place && group.nodes[i] <= maker && use.dtype == dtype && use.offset_slot == offset_slot && read == strides &&
                   !ReadsElsewhere(node, arg);
      });
    }
    return in_place;
  }

  Graph& graph_;
  const bool cudagraphs_;
  const std::vector<bool> in_memory_, pinned_;
  std::vector<bool> overwritten_;
  const std::vector<int> uses_;
  std::vector<int> group_of_;  // By node.
  std::vector<int> last_use_;  // By value: the last group that reads it.
  const absl::flat_hash_set<ValueId> leaves_;
};

}  // namespace

absl::StatusOr<Graph> ReuseMemory(Graph graph, bool cudagraphs) {
  Reuser(&graph, cudagraphs).Run();
  return graph;
}

}  // namespace lazuli::codegen
