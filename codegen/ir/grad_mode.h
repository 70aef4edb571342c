// Operators that look at the grad mode.
#pragma once

#include "codegen/ir/op_info.h"

namespace lazuli::codegen {

// Whether the operator computes something else with grad mode on than without, as traces run.
bool ReadsGradMode(const OpInfo& info);

}  // namespace lazuli::codegen
