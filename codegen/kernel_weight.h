// How much there is to compute in a kernel's instructions, roughly.
#pragma once

#include "codegen/kernel_ir.h"

namespace lazuli::codegen {

// Whether `op` is a function rather than a few machine instructions.
bool IsTranscendental(KOp op);

// Vector operations that the instruction takes, about.
double Weight(const KInst& inst);

}  // namespace lazuli::codegen
