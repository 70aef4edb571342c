// Which ATen calls can write their results into given memory.
#pragma once

#include "codegen/ir/trace.h"

namespace lazuli::codegen {

// The out-variant of `op` with a CPU kernel of its own, found by rule: `X.out` or `X.<overload>_out`, with `op`'s arguments and then one
// tensor for each result. Null when there is none, when `op` writes its arguments, or when a result is undefined.
const OpInfo* FindOutVariant(const TraceOp& op);

}  // namespace lazuli::codegen
