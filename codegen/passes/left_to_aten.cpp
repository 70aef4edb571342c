#include "codegen/passes/left_to_aten.h"

#include <algorithm>

#include "codegen/lower.h"
#include "codegen/lower_group.h"
#include "codegen/lower_rows.h"

namespace lazuli::codegen {
namespace {

constexpr int64_t kLeastRun = 32;  // Elements that lie together.
constexpr int64_t kLongScan = 32768;
constexpr int64_t kCachedBytes = 32 << 20;  // Of a GPU's memory.

bool IsCopy(const Node& node) { return node.kind == Node::Kind::kCompute && CopiedBy(node.op) != nullptr; }

// A copy that transposes: ATen's goes tile by tile.
bool IsLoneTranspose(const Node& node, const Placement& placement, const Space& space) {
  if (space.sizes.size() < 2 || !IsCopy(node)) return false;
  const auto& strides = placement.uses[0];
  if (std::any_of(strides.begin(), strides.end(), [](int64_t stride) { return stride < 0; })) return false;  // No tensor of ATen's.
  for (size_t d = 0; d < space.sizes.size(); ++d) {
    if (placement.results[0][d] == 1) return strides[d] > 1;
  }
  return false;
}

// A place of a maximum that is not found in short rows: a kernel takes two passes, or much work in one, and ATen's waits for memory only.
bool IsLoneLargePlace(const Graph& graph, const Node& node) {
  const TensorRef& self = node.op.args[0].tensors[0];
  if (!node.row->finds_places || graph.symbols.HasSymbol(self.sizes)) return false;
  return self.numel() * static_cast<int64_t>(c10::elementSize(self.dtype)) > kCachedBytes && !ReducesShortRows(node.op, *node.row);
}

}  // namespace

bool IsOneLongScan(const Graph& graph, const Node& node) {
  if (!node.op.device.is_cuda() || ScanOf(node) == ScanDirection::kNone) return false;
  const auto& sizes = node.op.results[0].sizes;
  const auto hint = [&](int64_t size) { return graph.symbols.Hint(size); };
  return std::count_if(sizes.begin(), sizes.end(), [&](int64_t size) { return hint(size) != 1; }) == 1 &&
         std::any_of(sizes.begin(), sizes.end(), [&](int64_t size) { return hint(size) >= kLongScan; });
}

bool LacksChannelsLast(const Node& node) {
  if (node.row == nullptr || !node.row->only_channels_last || !node.op.device.is_cpu()) return false;
  const TensorRef& result = node.op.results[0];
  return result.strides[1] != 1 || result.sizes[1] == 1;
}

bool IsMadeAsNeeded(const Graph& graph, const Node& node) {
  const TensorRef& use = node.op.args[node.row->made_arg].tensors[0];
  const NodeId producer = graph.values[use.storage].producer;
  if (producer == kNoNode || graph.nodes[producer].op.info == nullptr) return false;
  const Node& maker = graph.nodes[producer];
  for (size_t i = 0; i < maker.results.size(); ++i) {
    const TensorRef& made = maker.op.results[i];
    if (maker.results[i] != use.storage) continue;
    return use.offset_slot == -1 && use.sizes == made.sizes && use.strides == made.strides && node.row->made_by(node.op, maker.op);
  }
  return false;
}

bool IsBetterLeftToAten(const Graph& graph, const Node& node, const Placement& placement, const Space& space) {
  if (node.row == nullptr) return false;
  if (!node.op.device.is_cpu()) return IsLoneLargePlace(graph, node);
  return IsLoneTranspose(node, placement, space) || (node.row->only_fused && node.op.results[0].strides.back() == 1);
}

bool ScattersRows(const Node& node, const Placement& placement, const Space& space) {
  if (node.row == nullptr || !node.op.device.is_cuda() || !IsCopy(node) || placement.uses[0] == placement.results[0]) return false;
  int64_t run = 1;
  for (bool longer = true; longer;) {
    longer = false;
    for (size_t d = 0; d < space.sizes.size() && !longer; ++d) {
      longer = space.reduced[d] && placement.uses[0][d] == run;
      if (longer) run *= space.sizes[d];
    }
  }
  return run < kLeastRun;
}

}  // namespace lazuli::codegen
