// Running sums from the end: what programs, and gradients of running sums, write as flip, cumsum, flip.
#pragma once

#include <optional>

#include "codegen/ir/trace.h"

namespace lazuli::codegen {

// `trace` with each such three operators, of which nobody sees what is between, as one lazuli::_reverse_cumsum; none where it has none.
std::optional<Trace> JoinReverseScans(const Trace& trace);

}  // namespace lazuli::codegen
