// Operators with an `out` argument: where the results already have their place, a pointwise or reducing one is its functional operator and
// a copy, and is recorded as such.
#pragma once

#include <ATen/core/stack.h>

#include "codegen/ir/op_info.h"
#include "codegen/ir/trace_log.h"

namespace lazuli::tracer {

// The functional operator of the out= operator `info`, found by schema; null when there is none, or when it does something else.
const codegen::OpInfo* FindTwin(const codegen::OpInfo& info);

// Whether `places`, the results of an out= operator with twin `twin`, can be written by a copy after `args` were read: plain memory, no
// gradients wanted, no operand in the same memory but through the very window, and no two places in the same.
bool AreApart(const codegen::OpInfo& twin, c10::ArrayRef<c10::IValue> args, c10::ArrayRef<c10::IValue> places);

// Whether results with `metas` are what `places` are: eager would not resize, cast or lay out anything, nor compute in another order.
bool Fit(const codegen::OutputMetas& metas, c10::ArrayRef<c10::IValue> places);

}  // namespace lazuli::tracer
