#include "codegen/passes/window_map.h"

#include <algorithm>

namespace lazuli::codegen {

std::optional<WindowMap> WindowMap::Of(const TensorRef& window, const TensorRef& whole, int64_t begin,
                                       const runtime::SymbolTable& symbols) {
  WindowMap map;
  map.whole_ = whole;
  map.start_.assign(whole.sizes.size(), 0);
  map.taken_.assign(whole.sizes.size(), false);
  map.full_.assign(whole.sizes.size(), false);
  for (size_t d = 0; d < whole.sizes.size(); ++d) {
    if (whole.sizes[d] != 1) map.order_.push_back(d);
  }
  std::stable_sort(map.order_.begin(), map.order_.end(), [&](size_t a, size_t b) { return whole.strides[a] > whole.strides[b]; });
  for (size_t i = 0; i + 1 < map.order_.size(); ++i) {
    const int64_t outer = whole.strides[map.order_[i]];
    const int64_t inner = whole.strides[map.order_[i + 1]] * whole.sizes[map.order_[i + 1]];
    if (outer != inner && (outer < inner || symbols.IsSymbolic(outer) || symbols.IsSymbolic(inner))) return std::nullopt;
  }
  if (!map.order_.empty() && whole.strides[map.order_.back()] <= 0) return std::nullopt;
  if (!map.Begin(begin, symbols)) return std::nullopt;
  for (size_t d = 0; d < window.sizes.size(); ++d) {
    if (!map.AddAxis(window.sizes[d], window.strides[d], symbols)) return std::nullopt;
  }
  // Where a stride is a symbol, what is left of the beginning lies further in if there is no room for it along this dimension.
  for (const size_t d : map.order_) {
    if (symbols.IsSymbolic(whole.strides[d]) && begin != 0 && map.start_[d] == 0 && !map.full_[d]) return std::nullopt;
  }
  return map;
}

bool WindowMap::Begin(int64_t begin, const runtime::SymbolTable& symbols) {
  if (begin < 0) return false;
  const bool symbolic = symbols.IsSymbolic(begin);  // Not what is left of it: that may pass for a symbol.
  for (const size_t d : order_) {
    const int64_t stride = whole_.strides[d];
    if (symbols.IsSymbolic(stride) || symbolic) {
      if (begin % stride != 0 || symbols.IsSymbolic(begin / stride)) continue;
    }
    start_[d] = begin / stride;
    begin -= start_[d] * stride;
    if (start_[d] != 0 && (symbols.IsSymbolic(start_[d]) || symbols.IsSymbolic(whole_.sizes[d]) || start_[d] >= whole_.sizes[d]))
      return false;
  }
  return begin == 0;
}

bool WindowMap::AddAxis(int64_t size, int64_t stride, const runtime::SymbolTable& symbols) {
  Axis axis;
  axis.size = size;
  if (size == 1) return axes_.push_back(axis), true;
  for (size_t at = 0; at < order_.size(); ++at) {
    const size_t d = order_[at];
    const int64_t step = stride / whole_.strides[d];
    if (stride <= 0 || stride % whole_.strides[d] != 0 || symbols.IsSymbolic(step) || taken_[d]) continue;
    axis.step = step;
    if (!Covers(at, axis, symbols)) continue;
    // Longer than this dimension: goes on along those around it.
    for (int64_t rest = size;;) {
      const size_t dim = order_[at];
      taken_[dim] = true;
      full_[dim] = start_[dim] == 0 && step == 1 && rest % whole_.sizes[dim] == 0;
      axis.dims.push_back(dim);
      if (!full_[dim] || rest == whole_.sizes[dim]) break;
      rest /= whole_.sizes[dim];
      --at;
    }
    return axes_.push_back(std::move(axis)), true;
  }
  return false;
}

// Whether the window can go along dimension order_[at], and those around it where that is not long enough.
bool WindowMap::Covers(size_t at, const Axis& axis, const runtime::SymbolTable& symbols) {
  int64_t rest = axis.size;
  for (;;) {
    const size_t d = order_[at];
    const int64_t size = whole_.sizes[d];
    if (taken_[d]) return false;
    if (start_[d] == 0 && axis.step == 1 && rest == size) return true;
    if (!symbols.IsSymbolic(rest) && !symbols.IsSymbolic(size) && start_[d] + (rest - 1) * axis.step < size) return true;
    if (start_[d] != 0 || axis.step != 1 || rest % size != 0 || at == 0) return false;
    if (whole_.strides[order_[at - 1]] != whole_.strides[d] * size) return false;
    rest /= size;
    --at;
  }
}

std::optional<TensorRef> WindowMap::PartOf(const TensorRef& operand, std::vector<int64_t>* terms) const {
  const size_t missing = whole_.sizes.size() - operand.sizes.size();
  const auto stride_of = [&](size_t d) {
    return d < missing || operand.sizes[d - missing] != whole_.sizes[d] || whole_.sizes[d] == 1 ? 0 : operand.strides[d - missing];
  };
  TensorRef part = operand;
  if (operand.sizes.empty()) return part;  // A number for all of it, which stays one.
  part.sizes.clear();
  part.strides.clear();
  for (const Axis& axis : axes_) {
    const int64_t stride = axis.dims.empty() ? 0 : stride_of(axis.dims[0]);
    for (size_t i = 0; i + 1 < axis.dims.size(); ++i) {
      if (stride_of(axis.dims[i + 1]) != stride_of(axis.dims[i]) * whole_.sizes[axis.dims[i]]) return std::nullopt;
    }
    part.sizes.push_back(stride == 0 ? 1 : axis.size);
    part.strides.push_back(stride == 0 ? 1 : stride * axis.step);
  }
  if (part.sizes.empty()) {
    part.sizes.push_back(1);
    part.strides.push_back(1);
  }
  for (size_t d = 0; d < start_.size(); ++d) {
    if (start_[d] != 0 && stride_of(d) != 0) terms->push_back(start_[d] * stride_of(d));
  }
  return part;
}

}  // namespace lazuli::codegen
