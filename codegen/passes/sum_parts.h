// Sums of columns of what `cat` or `stack` puts together: the gradient of a bias when a query's, a key's and a value's are one product.
#pragma once

#include <optional>

#include "codegen/ir/trace.h"

namespace lazuli::codegen {

// `trace` with each such sum, along dimensions of which every part has all, as the sums of the parts, put together; none where it has none.
// For GPUs, whose kernels can add a part up when they read or make it; all that was put together would be read once more.
std::optional<Trace> SumInParts(const Trace& trace);

}  // namespace lazuli::codegen
