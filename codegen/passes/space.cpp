#include "codegen/passes/space.h"

#include <algorithm>

namespace lazuli::codegen {
namespace {

struct Refinement {
  c10::DimVector sizes;
  std::vector<DimMap::Source> a, b;
};

// Splits two lists of sizes with the same product into the coarsest list that refines both.
std::optional<Refinement> Refine(const c10::DimVector& a, const c10::DimVector& b) {
  Refinement out;
  int i = static_cast<int>(a.size()) - 1, j = static_cast<int>(b.size()) - 1;
  int64_t left_a = i >= 0 ? a[i] : 1, left_b = j >= 0 ? b[j] : 1;
  int64_t step_a = 1, step_b = 1;
  while (i >= 0 && j >= 0) {
    const int64_t piece = std::min(left_a, left_b);
    if (left_a % piece != 0 || left_b % piece != 0) return std::nullopt;
    out.sizes.push_back(piece);
    out.a.push_back({i, step_a});
    out.b.push_back({j, step_b});
    left_a /= piece;
    left_b /= piece;
    step_a *= piece;
    step_b *= piece;
    if (left_a == 1) {
      --i;
      left_a = i >= 0 ? a[i] : 1;
      step_a = 1;
    }
    if (left_b == 1) {
      --j;
      left_b = j >= 0 ? b[j] : 1;
      step_b = 1;
    }
  }
  if (i >= 0 || j >= 0) return std::nullopt;
  std::reverse(out.sizes.begin(), out.sizes.end());
  std::reverse(out.a.begin(), out.a.end());
  std::reverse(out.b.begin(), out.b.end());
  return out;
}

std::optional<JoinedSpace> JoinEqual(const Space& a, const Space& b) {
  auto refined = Refine(a.sizes, b.sizes);
  if (!refined) return std::nullopt;
  JoinedSpace joined;
  joined.space.sizes = refined->sizes;
  const bool both = a.reduces && b.reduces;
  joined.space.reduces = a.reduces || b.reduces;
  for (size_t d = 0; d < refined->sizes.size(); ++d) {
    const bool in_a = a.reduced[refined->a[d].dim], in_b = b.reduced[refined->b[d].dim];
    if (both && in_a != in_b) return std::nullopt;
    joined.space.reduced.push_back(in_a || in_b);
  }
  joined.a.from = std::move(refined->a);
  joined.b.from = std::move(refined->b);
  return joined;
}

// `rows` has the shape that `full` has left after its reductions.
std::optional<JoinedSpace> JoinRows(const Space& full, const Space& rows) {
  c10::DimVector kept;
  std::vector<int> kept_dims;
  for (size_t d = 0; d < full.sizes.size(); ++d) {
    if (full.reduced[d]) continue;
    kept.push_back(full.sizes[d]);
    kept_dims.push_back(static_cast<int>(d));
  }
  auto refined = Refine(kept, rows.sizes);
  if (!refined) return std::nullopt;
  JoinedSpace joined;
  joined.space.reduces = true;
  size_t next = 0;
  for (int d = 0; d < static_cast<int>(full.sizes.size()); ++d) {
    if (full.reduced[d]) {
      joined.space.sizes.push_back(full.sizes[d]);
      joined.space.reduced.push_back(true);
      joined.a.from.push_back({d, 1});
      joined.b.from.push_back({-1, 1});
      continue;
    }
    for (; next < refined->a.size() && kept_dims[refined->a[next].dim] == d; ++next) {
      joined.space.sizes.push_back(refined->sizes[next]);
      joined.space.reduced.push_back(false);
      joined.a.from.push_back({d, refined->a[next].step});
      joined.b.from.push_back(refined->b[next]);
    }
  }
  return joined;
}

// The dimensions of a space by strides, the largest first, which `order` tells; none where one of the strides is not positive.
std::optional<Space> Sorted(const Space& space, const c10::DimVector& strides, std::vector<int>* order) {
  for (size_t d = 0; d < strides.size(); ++d) {
    if (strides[d] <= 0) return std::nullopt;
    order->push_back(static_cast<int>(d));
  }
  std::stable_sort(order->begin(), order->end(), [&](int x, int y) { return strides[x] > strides[y]; });
  Space sorted;
  sorted.reduces = space.reduces;
  for (const int d : *order) {
    sorted.sizes.push_back(space.sizes[d]);
    sorted.reduced.push_back(space.reduced[d]);
  }
  return sorted;
}

}  // namespace

int64_t Space::numel() const {
  int64_t product = 1;
  for (int64_t size : sizes) product *= size;
  return product;
}

c10::DimVector DimMap::Apply(const c10::DimVector& strides) const {
  c10::DimVector out;
  for (const Source& source : from) out.push_back(source.dim < 0 ? 0 : strides[source.dim] * source.step);
  return out;
}

bool DimMap::IsIdentity() const {
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d].dim != static_cast<int>(d) || from[d].step != 1) return false;
  }
  return true;
}

std::optional<JoinedSpace> JoinSpaces(const Space& a, const Space& b) {
  const int64_t numel_a = a.numel(), numel_b = b.numel();
  if (numel_a == numel_b) return JoinEqual(a, b);
  if (numel_a > numel_b && a.reduces && !b.reduces) return JoinRows(a, b);
  if (numel_b > numel_a && b.reduces && !a.reduces) {
    auto joined = JoinRows(b, a);
    if (joined) std::swap(joined->a, joined->b);
    return joined;
  }
  return std::nullopt;
}

std::optional<JoinedSpace> JoinSpacesAlong(const Space& a, const c10::DimVector& in_a, const Space& b, const c10::DimVector& in_b) {
  if (a.numel() != b.numel()) return std::nullopt;
  std::vector<int> order_a, order_b;
  const std::optional<Space> sorted_a = Sorted(a, in_a, &order_a), sorted_b = Sorted(b, in_b, &order_b);
  if (!sorted_a.has_value() || !sorted_b.has_value()) return std::nullopt;
  std::optional<JoinedSpace> joined = JoinEqual(*sorted_a, *sorted_b);
  if (!joined.has_value()) return std::nullopt;
  for (DimMap::Source& source : joined->a.from) source.dim = order_a[source.dim];
  for (DimMap::Source& source : joined->b.from) source.dim = order_b[source.dim];
  return joined;
}

std::optional<JoinedSpace> JoinBroadcast(const Space& small, const c10::DimVector& in_small, const Space& large,
                                         const c10::DimVector& in_large) {
  Space moved;  // The dimensions of `large` that the value moves in, `dims`.
  c10::DimVector strides;
  std::vector<int> dims, order_small, order_moved;
  for (size_t d = 0; d < large.sizes.size(); ++d) {
    if (in_large[d] == 0) continue;
    dims.push_back(static_cast<int>(d));
    strides.push_back(in_large[d]);
    moved.sizes.push_back(large.sizes[d]);
    moved.reduced.push_back(large.reduced[d]);
  }
  if (dims.size() == large.sizes.size()) return std::nullopt;
  const std::optional<Space> sorted_small = Sorted(small, in_small, &order_small), sorted_moved = Sorted(moved, strides, &order_moved);
  if (!sorted_small.has_value() || !sorted_moved.has_value()) return std::nullopt;
  const std::optional<Refinement> refined = Refine(sorted_small->sizes, sorted_moved->sizes);
  if (!refined.has_value()) return std::nullopt;
  JoinedSpace joined;
  joined.space.reduces = large.reduces;
  const auto add = [&](int64_t size, DimMap::Source in_a, DimMap::Source in_b) {
    joined.space.sizes.push_back(size);
    joined.space.reduced.push_back(large.reduced[in_b.dim]);
    joined.a.from.push_back(in_a);
    joined.b.from.push_back(in_b);
  };
  for (int d = 0; d < static_cast<int>(large.sizes.size()); ++d) {
    if (in_large[d] == 0) add(large.sizes[d], {-1, 1}, {d, 1});
    for (size_t i = 0; i < refined->sizes.size(); ++i) {
      if (dims[order_moved[refined->b[i].dim]] != d) continue;
      add(refined->sizes[i], {order_small[refined->a[i].dim], refined->a[i].step}, {d, refined->b[i].step});
    }
  }
  return joined;
}

void MapPlacement(const DimMap& map, const Node& node, Placement* placement) {
  if (map.IsIdentity()) return;
  for (c10::DimVector& strides : placement->uses) strides = map.Apply(strides);
  for (c10::DimVector& strides : placement->coordinates) strides = map.Apply(strides);
  for (size_t i = 0; i < placement->results.size(); ++i) {
    if (node.results[i] != kNoValue) placement->results[i] = map.Apply(placement->results[i]);
  }
}

Space SqueezeSpace(const c10::DimVector& sizes, const std::vector<bool>& reduced, bool reduces, Placement* placement) {
  Space space;
  space.reduces = reduces;
  const auto squeeze = [&](c10::DimVector& strides) {
    c10::DimVector out;
    for (size_t d = 0; d < strides.size(); ++d) {
      if (sizes[d] != 1) out.push_back(strides[d]);
    }
    strides = std::move(out);
  };
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    space.sizes.push_back(sizes[d]);
    space.reduced.push_back(reduced[d]);
  }
  for (c10::DimVector& strides : placement->uses) squeeze(strides);
  for (c10::DimVector& strides : placement->coordinates) squeeze(strides);
  for (c10::DimVector& strides : placement->results) {
    if (!strides.empty()) squeeze(strides);
  }
  return space;
}

}  // namespace lazuli::codegen
