// In which order a GPU's steps run, so that those that run ahead of their trace's end (runtime::Program::RunAhead) wait for little of it.
#pragma once

#include "runtime/executor.h"

namespace lazuli::codegen {

// Small updates of inputs that nothing reads any more (batch norm's running statistics) come last: then others need not wait until they are
// recorded, and nothing has to be saved for them. Moves each such step behind the first one that overwrites more than can be saved
// (runtime::kMostSavedBytes), or to the end. Before kernels are batched and memories are placed.
void SinkUpdates(runtime::ProgramSpec* spec);

// What takes nothing but inputs that the program itself overwrites later (a model's weights, which are cast once a step) comes before what
// takes others (a batch): such inputs are the same run after run, so that it can run when the trace has just begun. Moves such steps, and
// whole batches, past a few others, so that their results do not live for much longer. Before memories are placed.
void LiftPreparations(runtime::ProgramSpec* spec);

}  // namespace lazuli::codegen
