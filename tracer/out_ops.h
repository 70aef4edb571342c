// Operators with an `out` argument: where the results already have their place, they are the functional operator and a copy, and are
// recorded as such.
#pragma once

#include <ATen/core/stack.h>

#include <functional>

#include "codegen/ir/op_info.h"

namespace lazuli::tracer {

// Runs the out= operator `info` on `stack` as its functional twin, found by schema, and a copy into each result; `call` runs an operator.
// Returns false, with the stack as it was, when that could differ from eager: no twin, gradients wanted, results of another size or
// dtype than their places (eager resizes, casts or throws), or places that share memory with an operand in another window.
bool RunAsFunctional(const codegen::OpInfo& info, torch::jit::Stack* stack,
                     const std::function<void(const codegen::OpInfo&, torch::jit::Stack*)>& call);

}  // namespace lazuli::tracer
