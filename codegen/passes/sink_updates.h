// On a GPU, small updates of inputs that nothing reads any more (batch norm's running statistics) come last: steps that run ahead of their
// trace's end need not wait until they are recorded, and nothing has to be saved for them.
#pragma once

#include "runtime/executor.h"

namespace lazuli::codegen {

// Moves each such step behind the first one that overwrites more than can be saved (runtime::kMostSavedBytes), or to the end. Before
// kernels are batched and memories are placed.
void SinkUpdates(runtime::ProgramSpec* spec);

}  // namespace lazuli::codegen
