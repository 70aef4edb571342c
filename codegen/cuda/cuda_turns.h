// Kernels that reduce nothing: their loops before they are planned. Those that read more numbers of columns than of points (a batch norm's
// mean, deviation, weight and bias) have threads that keep a column's numbers and take turns at rows.
#pragma once

#include "codegen/kernel_ir.h"

namespace lazuli::codegen {

// What does not reduce has only kept points, unless it stores once for many of them.
KernelIR WithoutNeedlessReduction(const KernelIR& kernel);
// Whether turns pay: rows are many, not short, and begin where vectors do. `kernel`: canonical.
bool RowsTakeTurns(const KernelIR& kernel);
// Such a kernel with its outer loops behind the last one, as reduced ones.
KernelIR WithRowsAsTurns(KernelIR kernel);

}  // namespace lazuli::codegen
