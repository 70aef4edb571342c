// Replaces copies by what they copy.
#pragma once

#include "absl/status/statusor.h"
#include "codegen/ir/graph.h"

namespace lazuli::codegen {

// A copy in the layout and dtype of its source, or the second of two casts there and back through a wider dtype, is its source: nodes that
// read it read the source instead. A copy that has to have memory of its own (a visible storage's content, or one that is overwritten
// in place later) stays, as does one whose source is overwritten. Arithmetic on constants needs no folding: numbers are run-time values.
absl::StatusOr<Graph> FoldCopies(Graph graph);

}  // namespace lazuli::codegen
