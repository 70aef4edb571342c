// Which values may not be replaced by equal ones.
#pragma once

#include <vector>

#include "codegen/ir/graph.h"

namespace lazuli::codegen {

// By value: it is a visible storage's content after the trace, so it has to have memory of its own.
inline std::vector<bool> PinnedValues(const Graph& graph) {
  std::vector<bool> pinned(graph.values.size(), false);
  for (const ValueId content : graph.contents) {
    if (content != kNoValue) pinned[content] = true;
  }
  return pinned;
}

// By value: a node writes part of its memory later.
inline std::vector<bool> OverwrittenValues(const Graph& graph) {
  std::vector<bool> overwritten(graph.values.size(), false);
  for (const Value& value : graph.values) {
    if (value.previous != kNoValue) overwritten[value.previous] = true;
  }
  return overwritten;
}

}  // namespace lazuli::codegen
