// Calls of one operator that differ only in sizes.
#pragma once

#include <vector>

#include "tests/support/schema_case.h"

namespace lazuli::testing {

// The call of `plan` with one of its sizes grown step by step, wherever that size is.
using SizeSeries = std::vector<CallPlan>;

// For each plain case of `op`, and the first and the last size of its first tensor, where eager execution lets one change it: one series of
// `steps` calls. None for an operator that writes `out=`, names dimensions or computes another one's gradient.
std::vector<SizeSeries> PlanSizes(const c10::OperatorHandle& op, int steps);

}  // namespace lazuli::testing
