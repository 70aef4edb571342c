// Where a window lies in a tensor, dimension by dimension, so that the same part of another tensor can be found.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "codegen/ir/graph.h"

namespace lazuli::codegen {

class WindowMap {
 public:
  // Of `window`, whose first element is `begin` elements after that of `whole`, in a tensor whose dimensions lie one inside the other.
  // Nothing where it is no box of it, in steps: where it goes along diagonals, repeats elements, or leaves the tensor; or where that
  // depends on symbols.
  static std::optional<WindowMap> Of(const TensorRef& window, const TensorRef& whole, int64_t begin, const runtime::SymbolTable& symbols);

  // The part of `operand`, which is broadcast to the whole, that is beside the window; nothing where it is no window. Its offset is that
  // of `operand` and the sum of `terms`; its rank that of the window, where both are at least 1, with size 1 along what is broadcast.
  std::optional<TensorRef> PartOf(const TensorRef& operand, std::vector<int64_t>* terms) const;

 private:
  // One dimension of the window goes `step` elements at a time along some of the whole's, the inner one first.
  struct Axis {
    int64_t size = 1;
    int64_t step = 1;
    std::vector<size_t> dims;
  };

  bool Begin(int64_t begin, const runtime::SymbolTable& symbols);
  bool AddAxis(int64_t size, int64_t stride, const runtime::SymbolTable& symbols);
  bool Covers(size_t at, const Axis& axis, const runtime::SymbolTable& symbols);

  TensorRef whole_;
  std::vector<size_t> order_;   // Of its dimensions longer than 1: the outer ones first.
  std::vector<int64_t> start_;  // By dimension of the whole.
  std::vector<bool> taken_;     // Likewise: some dimension of the window goes along it.
  std::vector<bool> full_;      // Likewise: from end to end.
  std::vector<Axis> axes_;      // By dimension of the window.
};

}  // namespace lazuli::codegen
