// What a kernel that reduces over anything but the innermost dimension may store.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "codegen/ir/graph.h"
#include "codegen/passes/space.h"

namespace lazuli::codegen {

// Whether a group of `nodes`, placed in `space`, reduces over the innermost dimension of something that it reads, or stores no value of a
// whole column's points (`leaves`: those that others read). On a CPU columns are no good order to store such values in, but for scans,
// which have them anyway. A GPU's threads store rows of wide columns as well as they load them, so there a value that does not wait for a
// reduction may be stored on the way.
bool ColumnsFit(const Graph& graph, const std::vector<Placement>& placements, const std::vector<NodeId>& nodes, const Space& space,
                absl::FunctionRef<bool(ValueId)> leaves);

}  // namespace lazuli::codegen
