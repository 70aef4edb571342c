// Gives the memories of a program that nobody sees places in its arenas.
#pragma once

#include "runtime/executor.h"

namespace lazuli::codegen {

// First fit over the steps during which each memory is in use; largest first. The steps of a batch are one. When steps are in their final
// order and batches; says which step is the last to need an input, too.
void PlaceInArena(runtime::ProgramSpec* spec);

}  // namespace lazuli::codegen
