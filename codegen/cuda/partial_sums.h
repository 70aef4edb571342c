// Sums of columns (the gradients of biases and of norms' weights) by the kernel that goes through the rows that are summed.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/lower_group.h"

namespace lazuli::codegen {

// `rows` is a kernel for a GPU that reduces rows of an innermost dimension; `columns`, which runs next, sums over the rows' dimensions.
// Where that fits, what `columns` does at points becomes part of `rows`, which leaves partial sums, and `columns` only puts these together.
// Their bytes are added to `partial_sums`: LoweredGroup::Buffer::partial_sums counts in it. False: nothing has changed.
bool JoinColumnSums(LoweredGroup* rows, LoweredGroup* columns, std::vector<int64_t>* partial_sums);

// `sums`, which runs right after `others`, puts partial sums together as that does: one kernel for both, in `others`, if that fits. `sums`
// is nothing then.
bool JoinCombining(LoweredGroup* others, LoweredGroup* sums);

}  // namespace lazuli::codegen
