// Gives every value that has to exist in memory its place, and turns a grouped graph into the steps of a program.
#pragma once

#include "absl/status/statusor.h"
#include "codegen/ir/graph.h"
#include "codegen/kernel_compiler.h"
#include "runtime/executor.h"

namespace lazuli::codegen {

struct PlanReport {
  int kernels_compiled = 0;
  int kernel_cache_hits = 0;
};

// `graph` has groups. Compiles the kernels of groups of compute nodes for `target`. Dumps them under `serial` when
// the stage "kernel" or "llvm" is asked for.
absl::StatusOr<runtime::ProgramSpec> PlanProgram(const Graph& graph, const KernelTarget& target, int64_t serial, PlanReport* report);

}  // namespace lazuli::codegen
