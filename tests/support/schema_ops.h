// The operators of the dispatcher that plain CPU tensors can meet, and how each is called.
#pragma once

#include <string>
#include <vector>

#include "tests/support/schema_case.h"

namespace lazuli::testing {

// A way to call an operator: texts of some of its arguments, by name, separated by spaces. Arguments that no overload has are ignored.
// `ops` are names without "aten::", of one overload or of all, separated by spaces; a name stands for its in-place form as well.
// Whether `reason`, one of ReasonUntested, says that no strided CPU tensor gets to the operator's kernel.
bool IsOutOfReach(const std::string& reason);

struct SchemaRow {
  const char* ops;
  const char* args;
};
using SchemaRows = std::vector<SchemaRow>;

const SchemaRows& PointwiseRows();
const SchemaRows& ShapeRows();
const SchemaRows& IndexRows();
const SchemaRows& LinalgRows();
const SchemaRows& NnRows();
const SchemaRows& PoolRows();
const SchemaRows& LossRows();
const SchemaRows& SequenceRows();
const SchemaRows& FactoryRows();

// Operators that are not called here, as parts of names, and why. "=" before a name: all of it.
struct UntestedRow {
  const char* part;
  const char* reason;
};
const std::vector<UntestedRow>& UntestedRows();

// Empty, or why the operator is not called.
std::string ReasonUntested(const c10::OperatorHandle& op);

// All overloads of namespace aten with a kernel for dense CPU tensors, by name. Those of which `filter` is no part are left out.
std::vector<c10::OperatorHandle> CpuOperators(const std::string& filter);

// The rows of `op`; none for an operator whose arguments follow from types and names.
std::vector<std::string> RowsOf(const c10::OperatorHandle& op);

// The calls of `op` that are compared. `seed` rotates the sample of dtypes, shapes and layouts.
std::vector<CallPlan> PlanCalls(const c10::OperatorHandle& op, uint64_t seed);

}  // namespace lazuli::testing
