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

struct PlanOptions {
  KernelTarget target;
  int64_t serial = 0;         // The trace's, in dumps of the stages "kernel" and "llvm".
  bool direct_calls = false;  // Compute operators by code of our own where that is faster; sums may then come in another order.
  bool pack_weights = false;  // With direct_calls: keep weights in the library's own order where they do not change.
  bool own_memory = true;     // Memory of a GPU may be allocated by the step that first needs it: see PlaceInArena.
  runtime::KnownAt known_at;  // The trace's.
};

// `graph` has groups. Compiles the kernels of groups of compute nodes for the target.
absl::StatusOr<runtime::ProgramSpec> PlanProgram(const Graph& graph, const PlanOptions& options, PlanReport* report);

}  // namespace lazuli::codegen
