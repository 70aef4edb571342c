// Results that are put together from windows (cat, stack) and only read by a copy into another order of dimensions have that order from
// the start: the gradients of a query, a key and a value that one product made, say.
#pragma once

#include <optional>

#include "codegen/ir/trace.h"

namespace lazuli::codegen {

// `trace` with such copies taken out: their operands have their layout, and their storage. None when there are none.
std::optional<Trace> Relayout(const Trace& trace);

}  // namespace lazuli::codegen
