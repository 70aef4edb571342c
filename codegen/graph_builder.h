// Trace -> Graph: walks the trace in program order, keeping each storage's current content.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "codegen/ir/graph.h"

namespace lazuli::codegen {

struct BuildOptions {
  // Ops that have a row in op.def become compute nodes, and in-place ones lose their mutation. Off: every op stays as recorded.
  bool use_rows = true;
  // By op of the trace: false does to one op what use_rows does to all. Empty: all true.
  std::vector<bool> rows_of_ops;
  // By op of the trace: true for those of which OpRow::place makes the pieces. Empty: none.
  std::vector<bool> placed_ops;
  bool gpu_kernels = false;  // Rows serve ops on a GPU, too.
};

absl::StatusOr<Graph> BuildGraph(const Trace& trace, const BuildOptions& options);

}  // namespace lazuli::codegen
