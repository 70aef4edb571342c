// What this CPU can do, as far as code generation cares.
#pragma once

#include "runtime/options.h"

namespace lazuli::runtime {

// The widest instruction set that both the CPU and the operating system support. Isa::kSse4 is the least: the x86-64 baseline.
Isa WidestIsa();

}  // namespace lazuli::runtime
