// Moves what a kernel computes for a later one only into that one.
#pragma once

#include "codegen/passes/work_groups.h"

namespace lazuli::codegen {

// A node joins the first kernel that reads what it reads, as its group does. Where nothing but one later kernel needs what some of the
// nodes of a group make, and that kernel moves fewer bytes computing it of their operands than reading it, they belong there: the gradient
// of a sum is a number, and all that follows from it reads what the forward pass does. Kernels that become neighbours this way are merged
// where they can be.
void MoveToReaders(WorkGroups* groups);

}  // namespace lazuli::codegen
