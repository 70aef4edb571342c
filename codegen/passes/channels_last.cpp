#include "codegen/passes/channels_last.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "codegen/lower.h"

namespace lazuli::codegen {
namespace {

// How far a window goes along one of a tensor's dimensions: in steps of so many elements.
struct Walk {
  int64_t step = 1, size = 1;
};

// The window in the other order.
struct Window {
  c10::DimVector strides;
  std::vector<bool> parts;  // By dimension of the tensor: not all of it is in the window.
};

// How many elements of a dimension the walks go through one after another, each once. None where they do not.
std::optional<int64_t> Walked(const Graph& graph, std::vector<Walk> walks) {
  std::sort(walks.begin(), walks.end(),
            [&](const Walk& a, const Walk& b) { return graph.symbols.Hint(a.step) < graph.symbols.Hint(b.step); });
  int64_t walked = 1;
  for (const Walk& walk : walks) {
    if (walk.step != walked) return std::nullopt;
    walked *= walk.size;
  }
  return walked;
}

// `use`, a window of `layout` in all dimensions of which it has as many as that.
std::optional<Window> AlongDimensions(const Graph& graph, const TensorRef& use, const TensorRef& layout, const c10::DimVector& after) {
  if (use.sizes.size() != layout.sizes.size()) return std::nullopt;
  Window window{after, std::vector<bool>(layout.sizes.size(), false)};
  for (size_t d = 0; d < use.sizes.size(); ++d) {
    window.parts[d] = use.sizes[d] != layout.sizes[d];
    const bool within = !window.parts[d] || graph.symbols.Hint(use.sizes[d]) < graph.symbols.Hint(layout.sizes[d]);
    if (!within || use.strides[d] != layout.strides[d]) return std::nullopt;
  }
  return std::count(window.parts.begin(), window.parts.end(), true) <= 1 ? std::optional(window) : std::nullopt;
}

// A window that has several dimensions of `layout` as one, or one as several.
std::optional<Window> AcrossDimensions(const Graph& graph, const TensorRef& use, const TensorRef& layout, const c10::DimVector& after) {
  const auto hint = [&](int64_t number) { return graph.symbols.Hint(number); };
  const c10::DimVector &sizes = layout.sizes, &before = layout.strides;
  Window window{use.strides, std::vector<bool>(sizes.size(), false)};
  std::vector<std::vector<Walk>> walks(sizes.size());
  for (size_t d = 0; d < use.sizes.size(); ++d) {
    const int64_t stride = use.strides[d];
    if (use.sizes[d] == 1 || stride == 0) continue;
    // The outermost dimension of which it is a number of steps.
    size_t i = 0;
    while (i < before.size() && (sizes[i] == 1 || hint(stride) < hint(before[i]))) ++i;
    if (i == before.size() || stride % before[i] != 0) return std::nullopt;
    const int64_t step = stride / before[i];
    window.strides[d] = step * after[i];
    if (step != 1 || hint(use.sizes[d]) <= hint(sizes[i])) {
      walks[i].push_back({step, use.sizes[d]});
      continue;
    }
    int64_t size = sizes[i];
    walks[i].push_back({1, sizes[i]});
    for (size_t k = i; size != use.sizes[d]; --k) {
      if (k == 0 || after[k - 1] != after[k] * sizes[k]) return std::nullopt;
      walks[k - 1].push_back({1, sizes[k - 1]});
      size *= sizes[k - 1];
    }
  }
  for (size_t i = 0; i < walks.size(); ++i) {
    const std::optional<int64_t> walked = Walked(graph, walks[i]);
    if (!walked.has_value()) return std::nullopt;
    window.parts[i] = *walked != sizes[i];
    // Whether a part ends within the dimension is known of numbers only.
    const bool known = !graph.symbols.IsSymbolic(*walked) && !graph.symbols.IsSymbolic(sizes[i]);
    if (window.parts[i] && *walked != 1 && !(known && *walked < sizes[i])) return std::nullopt;
  }
  return window;
}

// What is known to add up to the offset of `use`.
std::optional<std::vector<int64_t>> OffsetOf(const Graph& graph, const TensorRef& use) {
  if (use.offset != 0) return std::vector<int64_t>{use.offset};
  if (use.offset_slot < graph.num_offsets) return std::nullopt;
  const runtime::OffsetSum& sum = graph.offset_sums[static_cast<size_t>(use.offset_slot - graph.num_offsets)];
  return sum.slot == -1 ? std::optional(sum.terms) : std::nullopt;
}

// The window, and what its offset adds up to where it has one.
std::optional<std::pair<Window, std::vector<int64_t>>> Move(const Graph& graph, const TensorRef& use, const TensorRef& layout) {
  const c10::DimVector after = ChannelsLast(layout.sizes);
  if (use.dtype != layout.dtype) return std::nullopt;
  std::optional<Window> window = AlongDimensions(graph, use, layout, after);
  if (!window.has_value()) window = AcrossDimensions(graph, use, layout, after);
  std::vector<int64_t> terms;
  if (!window.has_value()) return std::nullopt;
  if (use.offset_slot == -1) return std::pair(*std::move(window), terms);
  const auto part = std::find(window->parts.begin(), window->parts.end(), true) - window->parts.begin();
  const std::optional<std::vector<int64_t>> offset = OffsetOf(graph, use);
  if (std::count(window->parts.begin(), window->parts.end(), true) != 1 || !offset.has_value()) return std::nullopt;
  for (const int64_t term : *offset) {
    if (term % layout.strides[part] != 0) return std::nullopt;
    terms.push_back(term / layout.strides[part] * after[part]);
  }
  return std::pair(*std::move(window), std::move(terms));
}

}  // namespace

bool FollowsToChannelsLast(const Graph& graph, const TensorRef& use, const TensorRef& layout) {
  return Move(graph, use, layout).has_value();
}

TensorRef InChannelsLast(Graph* graph, const TensorRef& use, const TensorRef& layout) {
  auto [window, terms] = *Move(*graph, use, layout);
  TensorRef moved = use;
  moved.strides = std::move(window.strides);
  if (use.offset_slot != -1) moved.SetOffset(AddOffset(graph, -1, terms));
  return moved;
}

}  // namespace lazuli::codegen
