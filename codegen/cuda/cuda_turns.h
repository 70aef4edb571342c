// Kernels that reduce nothing and read more numbers of columns than of points (a batch norm's mean, deviation, weight and bias): threads
// keep a column's numbers and take turns at rows.
#pragma once

#include "codegen/kernel_ir.h"

namespace lazuli::codegen {

// Whether that pays: rows are many, not short, and begin where vectors do. `kernel`: canonical.
bool RowsTakeTurns(const KernelIR& kernel);
// Such a kernel with its outer loops behind the last one, as reduced ones.
KernelIR WithRowsAsTurns(KernelIR kernel);

}  // namespace lazuli::codegen
