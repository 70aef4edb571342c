// Operands that are conjugate or negative only by a bit, which no trace knows.
#pragma once

#include <ATen/core/stack.h>

#include "codegen/ir/op_info.h"

namespace lazuli::tracer {

// Puts recorded copies of what they stand for in the place of the operands on `stack` that the operator only reads. False: it has none.
bool ResolveSigns(const codegen::OpInfo& info, torch::jit::Stack* stack);

}  // namespace lazuli::tracer
