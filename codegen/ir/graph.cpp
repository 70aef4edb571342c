#include "codegen/ir/graph.h"

#include <algorithm>
#include <numeric>

namespace lazuli::codegen {

std::vector<std::vector<NodeId>> Predecessors(const Graph& graph) {
  const NodeId count = static_cast<NodeId>(graph.nodes.size());
  std::vector<std::vector<NodeId>> readers(graph.values.size());
  for (NodeId n = 0; n < count; ++n) {
    ForEachUse(graph.nodes[n], [&](const TensorRef& use) { readers[use.storage].push_back(n); });
  }
  std::vector<std::vector<NodeId>> preds(count);
  for (NodeId n = 0; n < count; ++n) {
    auto& list = preds[n];
    ForEachUse(graph.nodes[n], [&](const TensorRef& use) {
      const NodeId producer = graph.values[use.storage].producer;
      if (producer != kNoNode) list.push_back(producer);
    });
    ForEachDef(graph.nodes[n], [&](ValueId value) {
      const ValueId previous = graph.values[value].previous;
      if (previous == kNoValue) return;
      if (graph.values[previous].producer != kNoNode) list.push_back(graph.values[previous].producer);
      for (NodeId reader : readers[previous]) {
        if (reader != n) list.push_back(reader);
      }
    });
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  return preds;
}

namespace {

// `renumbered`: by node, kNoNode for those that are gone.
void Renumber(const std::vector<NodeId>& renumbered, Group* group) {
  size_t kept = 0;
  for (size_t i = 0; i < group->nodes.size(); ++i) {
    const NodeId n = renumbered[group->nodes[i]];
    if (n == kNoNode) continue;
    if (group->is_kernel() && kept != i) group->placements[kept] = std::move(group->placements[i]);
    group->nodes[kept++] = n;
  }
  if (group->is_kernel()) group->placements.resize(kept);
  group->nodes.resize(kept);
}

}  // namespace

void EraseNodes(Graph* graph, const std::vector<bool>& keep) {
  std::vector<NodeId> renumbered(graph->nodes.size(), kNoNode);
  NodeId next = 0;
  for (size_t n = 0; n < graph->nodes.size(); ++n) {
    if (!keep[n]) continue;
    renumbered[n] = next;
    if (static_cast<size_t>(next) != n) graph->nodes[next] = std::move(graph->nodes[n]);
    ++next;
  }
  graph->nodes.resize(next);
  for (Value& value : graph->values) {
    if (value.producer != kNoNode) value.producer = renumbered[value.producer];
  }
  for (Group& group : graph->groups) Renumber(renumbered, &group);
  const auto is_empty = [](const Group& group) { return group.nodes.empty(); };
  graph->groups.erase(std::remove_if(graph->groups.begin(), graph->groups.end(), is_empty), graph->groups.end());
}

bool IsDense(const TensorRef& ref) {
  c10::SmallVector<int, 8> order;
  for (size_t d = 0; d < ref.sizes.size(); ++d) {
    if (ref.sizes[d] == 0) return true;
    if (ref.sizes[d] != 1) order.push_back(static_cast<int>(d));
  }
  std::sort(order.begin(), order.end(), [&](int a, int b) { return ref.strides[a] < ref.strides[b]; });
  int64_t expected = 1;
  for (int d : order) {
    if (ref.strides[d] != expected) return false;
    expected *= ref.sizes[d];
  }
  return true;
}

TensorRef AddTensor(Graph* graph, const TensorRef& like, const c10::DimVector& sizes, c10::Device device) {
  TensorRef ref = like;
  ref.storage = static_cast<StorageId>(graph->storages.size());
  ref.sizes = sizes;
  ref.SetOffset(-1);
  std::vector<size_t> order(ref.sizes.size());
  std::iota(order.rbegin(), order.rend(), 0);
  if (!like.is_contiguous()) {
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return like.strides[a] < like.strides[b]; });
  }
  int64_t stride = 1;
  for (const size_t d : order) {
    ref.strides[d] = stride;
    stride *= ref.sizes[d];
  }
  TraceStorage storage;
  storage.nbytes = stride * static_cast<int64_t>(c10::elementSize(ref.dtype));
  storage.device = device;
  graph->storages.push_back(storage);
  graph->contents.push_back(kNoValue);
  return ref;
}

TensorRef AddTensor(Graph* graph, const TensorRef& like, const c10::DimVector& sizes) {
  return AddTensor(graph, like, sizes, graph->storages[like.storage].device);
}

c10::DimVector DenseStrides(const TensorRef& ref) {
  if (IsDense(ref)) return ref.strides;
  c10::DimVector strides(ref.sizes.size());
  int64_t stride = 1;
  for (size_t d = ref.sizes.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(ref.sizes[d], 1);
  }
  return strides;
}

}  // namespace lazuli::codegen
