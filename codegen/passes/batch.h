// Brings kernels that do not depend on each other together, so that threads are woken once for all of them, or a GPU once: the update of
// each parameter, the norm of each gradient.
#pragma once

#include "runtime/executor.h"

namespace lazuli::codegen {

// Reorders steps and sets StepSpec::batch; before memories are placed in the arena. A launch that can batch (KernelLaunch::run_batch) moves
// to the first batch that comes after all that it depends on. Other steps stay in order. What is alive at a time never takes more memory
// than before at its peak, and a launch that touches much memory, for its device, only joins its neighbours: others still need what is in
// the caches. Nor does it join a batch on a GPU where others would wait for operators that are recorded much later (recorded_apart.h).
// Sizes that hold symbols count as their first values.
void BatchKernels(runtime::ProgramSpec* spec);

}  // namespace lazuli::codegen
