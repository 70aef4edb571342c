// Operators that throw where the program asks for deterministic algorithms (torch.use_deterministic_algorithms) and they have none. Which
// do is known to their kernels alone, so each is run at once when it is called for the first time since, on a CPU and on a GPU; one that
// threw is run at once ever again.
#pragma once

#include "codegen/ir/op_info.h"

namespace lazuli::tracer {

// Whether `info` may throw for that if it is called now. Warnings come when a trace runs.
bool MayRefuse(const codegen::OpInfo& info, bool on_gpu);
// `info` ran, and did not.
void NoteAccepted(const codegen::OpInfo& info, bool on_gpu);

}  // namespace lazuli::tracer
