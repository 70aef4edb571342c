#include "codegen/passes/early_end.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace lazuli::codegen {
namespace {

constexpr int32_t kFewestOps = 16;  // Of each part.
constexpr int kMostSplit = 1;       // Kernels.

}  // namespace

int32_t EarlyEnd(const Graph& graph) {
  int32_t num_ops = 0;
  for (const Node& node : graph.nodes) num_ops = std::max(num_ops, node.op.index + 1);
  // By number of operators in the first part: how many kernels begin, less those that end, there.
  std::vector<int> change(static_cast<size_t>(num_ops) + 1, 0);
  for (const Group& group : graph.groups) {
    int32_t first = num_ops, last = -1;
    for (const NodeId n : group.nodes) {
      if (graph.nodes[n].op.index < 0) continue;
      first = std::min(first, graph.nodes[n].op.index);
      last = std::max(last, graph.nodes[n].op.index);
    }
    if (last < 0) continue;
    ++change[static_cast<size_t>(first) + 1];
    --change[static_cast<size_t>(last) + 1];
  }
  const int32_t wanted = num_ops / 4;
  int32_t best = 0;
  int split = 0;
  for (int32_t size = 0; size <= num_ops / 2; ++size) {
    split += change[static_cast<size_t>(size)];
    if (size < std::max(kFewestOps, num_ops / 16) || num_ops - size < kFewestOps || split > kMostSplit) continue;
    if (best == 0 || std::abs(size - wanted) < std::abs(best - wanted)) best = size;
  }
  return best;
}

}  // namespace lazuli::codegen
