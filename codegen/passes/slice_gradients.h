// The gradient of a tensor of which a program reads one slice after another (each step of a sequence, say): a sum of gradients that are
// zero but for their slice.
#pragma once

#include <optional>

#include "codegen/ir/trace.h"

namespace lazuli::codegen {

// Where a slice lies: from `begin` to before `end` along dimension `dim`.
struct SlicePlace {
  int64_t dim = 0, begin = 0, end = 0;
};

// The place of the slice, or of the one row, that `op` of `trace` is the gradient of, which is zero elsewhere. None where it is no such
// gradient, is empty, goes in steps, or depends on symbols.
std::optional<SlicePlace> PlaceOfSlice(const Trace& trace, const TraceOp& op);

// `trace` with each such sum, of slices along one dimension that do not meet and that nobody else looks at, as the slices put together,
// zeros between them; none where it has none. Each element still has a zero added, so that -0 becomes 0 as in the sum.
std::optional<Trace> JoinSliceGradients(const Trace& trace);

}  // namespace lazuli::codegen
