// The canonical domain of a kernel: the fewest loops, in the order that memory likes best.
#pragma once

#include "codegen/kernel_ir.h"

namespace lazuli::codegen {

// An equal kernel without size-1 dimensions, whose kept dimensions and whose reduced dimensions are each sorted by the strides of the
// stores, then of the loads, outermost first, and merged where every buffer allows it. Keeps at least one dimension, and at least one
// reduced dimension if there was any. Sorting reduced dimensions changes the order in which reductions add.
KernelIR CanonicalizeDomain(const KernelIR& kernel);

}  // namespace lazuli::codegen
