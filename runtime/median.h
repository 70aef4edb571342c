// The middle of some measurements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lazuli::runtime {

// The upper one of the two in the middle when `values`, at least one, are even in number.
template <class T>
T Median(std::vector<T> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace lazuli::runtime
