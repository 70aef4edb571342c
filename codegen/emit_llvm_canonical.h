// The canonical domain of a kernel: the fewest loops, in the order that memory likes best.
#pragma once

#include "codegen/kernel_ir.h"

namespace lazuli::codegen {

// An equal kernel without size-1 dimensions, whose kept dimensions and whose reduced dimensions are each sorted by the strides of the
// stores, then of the loads, outermost first, and merged where every buffer allows it. Keeps at least one dimension, and at least one
// reduced dimension if there was any. Sorting reduced dimensions changes the order in which reductions add.
KernelIR CanonicalizeDomain(const KernelIR& kernel);

// Cuts a dimension in two, for a canonical kernel without reduced dimensions that loads some buffer across its last dimension v while
// another dimension t is that buffer's contiguous one: the loops become (..., t / tile, v, t % tile), so that a cache line that vectors
// along v touch is used up before it is evicted. Returns the size of t, of which the last tile may be shorter than the others, or 0 where
// it did not; the vectorised dimension v is then the last but one.
int64_t TileTransposedLoads(KernelIR* kernel, int lanes);

// Makes of the last kept dimension the last reduced one. Only scatters may be evaluated at every point, whose order within other kept
// dimensions does not change.
void MoveColumnsInside(KernelIR* kernel);

}  // namespace lazuli::codegen
