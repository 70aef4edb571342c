// Which ATen calls can write their results into given memory.
#pragma once

#include "codegen/ir/trace.h"

namespace lazuli::codegen {

// The out-variant of `op` with a CPU kernel of its own, found by rule: `X.out` or `X.<overload>_out`, with `op`'s arguments and then one
// tensor for each result. Null when there is none, when `op` writes its arguments, or when a result is undefined.
const OpInfo* FindOutVariant(const TraceOp& op);

// Whether `out` takes `functional`'s arguments and then one tensor for each of its results.
bool IsOutVariantOf(const c10::FunctionSchema& out, const c10::FunctionSchema& functional);

// Out-variants that do more than fill their output: losses that reduce resize it to compute every element in it first, others add to what
// is there or read it (batch norm of operands with gaps).
bool NeedsMoreThanMemory(const c10::FunctionSchema& schema);

}  // namespace lazuli::codegen
