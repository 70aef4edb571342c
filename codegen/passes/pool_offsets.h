// The places of maxima that a pool's gradient needs, on a GPU: in a window they are bytes, in the image numbers of 64 bits.
#pragma once

#include <optional>

#include "codegen/ir/trace.h"

namespace lazuli::codegen {

// `trace` with each max_pool2d_with_indices on a GPU whose indices nobody but its own gradients reads as one that says where in its window
// a maximum is (lazuli::_max_pool2d_with_offsets); none where it has none, or kernels do not compute both.
std::optional<Trace> UsePoolOffsets(const Trace& trace);

}  // namespace lazuli::codegen
