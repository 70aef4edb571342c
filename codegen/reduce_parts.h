// Reductions of a few elements each as pointwise operators over these: the sum of coordinates is one coordinate plus the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "codegen/ir/graph.h"

namespace lazuli::codegen {

struct SmallReduction {
  size_t dim = 0;  // Of argument 0.
  int64_t count = 0;
  const char* combine = "";       // What makes one of two.
  bool begins_with_zero = false;  // So that no sum is -0.
  bool of_squares = false;        // Whose root is the result.
};

// What `op` reduces, where it is one dimension of at most eight elements.
std::optional<SmallReduction> FindSmallReduction(const TraceOp& op, const runtime::SymbolTable& symbols);

// Appends to `ops` what makes the result of `op`, which is `reduction`, of `parts`: one tensor for each element, with size 1 along the
// dimension. `add` makes a tensor for what is between.
void AppendReduction(const TraceOp& op, const SmallReduction& reduction, std::vector<TensorRef> parts,
                     const std::function<TensorRef(const TensorRef& like)>& add, std::vector<TraceOp>* ops);

}  // namespace lazuli::codegen
