// Gives the memories of a program that nobody sees places in its arenas.
#pragma once

#include "runtime/executor.h"

namespace lazuli::codegen {

// First fit over the steps during which each memory is in use; largest first. The steps of a batch are one. When steps are in their final
// order and batches; says which step is the last to need an input, too.
//
// An arena, and results that leave, are there for the whole run, but for large results on a CPU, which the step that first writes them
// allocates: inputs that nobody else holds are freed after their last use, and may be as large. On a GPU, where the arena is large while
// such results and those of ATen's calls are small, and small while they are large, so that the program would hold more than it ever needs
// at a time, `own_memory` lets large memories be allocated by their first step and freed after their last one, and results by the step that
// first writes them.
void PlaceInArena(runtime::ProgramSpec* spec, bool own_memory);

}  // namespace lazuli::codegen
