// Which values may not be replaced by equal ones, how often they are used, and how large they are.
#pragma once

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "codegen/ir/graph.h"

namespace lazuli::codegen {

// The tensor that `node` copies as CopiedBy(TraceOp) says, where the copy is a value of the graph.
inline const TensorRef* CopiedBy(const Node& node) {
  return node.kind == Node::Kind::kCompute && node.results.size() == 1 && node.results[0] != kNoValue ? CopiedBy(node.op) : nullptr;
}

// By value: it is a visible storage's content after the trace, so it has to have memory of its own.
inline std::vector<bool> PinnedValues(const Graph& graph) {
  std::vector<bool> pinned(graph.values.size(), false);
  for (const ValueId content : graph.contents) {
    if (content != kNoValue) pinned[content] = true;
  }
  return pinned;
}

// Memories that outlive the trace, by their first value.
inline absl::flat_hash_set<ValueId> MemoriesThatLeave(const Graph& graph) {
  absl::flat_hash_set<ValueId> leave;
  for (const ValueId content : graph.contents) {
    if (content != kNoValue) leave.insert(graph.MemoryOf(content));
  }
  return leave;
}

// By value: a node writes part of its memory later.
inline std::vector<bool> OverwrittenValues(const Graph& graph) {
  std::vector<bool> overwritten(graph.values.size(), false);
  for (const Value& value : graph.values) {
    if (value.previous != kNoValue) overwritten[value.previous] = true;
  }
  return overwritten;
}

// By value: how many uses it has.
inline std::vector<int> CountUses(const Graph& graph) {
  std::vector<int> uses(graph.values.size(), 0);
  for (const Node& node : graph.nodes) {
    ForEachUse(node, [&](const TensorRef& use) { ++uses[use.storage]; });
  }
  return uses;
}

// Elements that `ref` has in memory, however often they are used. Symbols count as a value that they had.
inline int64_t StoredElements(const Graph& graph, const TensorRef& ref) {
  int64_t product = 1;
  for (size_t d = 0; d < ref.sizes.size(); ++d) product *= ref.strides[d] == 0 ? 1 : ref.sizes[d];
  return graph.symbols.Hint(product);
}

inline int64_t StoredBytes(const Graph& graph, const TensorRef& ref) {
  return StoredElements(graph, ref) * static_cast<int64_t>(c10::elementSize(ref.dtype));
}

// Calls `visit` for each of the trace's inputs that `node` writes, with how many of its bytes at most.
template <class Visit>
void ForEachOverwritten(const Graph& graph, const Node& node, const Visit& visit) {
  ForEachDef(node, [&](ValueId value) {
    const ValueId memory = graph.MemoryOf(value);
    if (graph.values[memory].producer != kNoNode) return;
    int64_t bytes = 0;
    ForEachUse(node, [&](const TensorRef& use) {
      if (graph.MemoryOf(use.storage) == memory) bytes = std::max(bytes, StoredBytes(graph, use));
    });
    visit(bytes);
  });
}

}  // namespace lazuli::codegen
