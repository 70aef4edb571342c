// Trace -> Program: the passes in order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/ir/graph.h"
#include "codegen/ir/trace.h"
#include "codegen/kernel_compiler.h"
#include "runtime/program.h"

namespace lazuli::codegen {

struct PipelineOptions {
  std::string backend = "llvm";  // "llvm", or "aten": every op as recorded, the oracle.
  KernelTarget target;
  bool pack_weights = false;  // PlanOptions::pack_weights.
  bool cudagraphs = false;    // Programs will run as CUDA graphs, which keep memory that steps allocate.
  bool epilogues = true;      // passes/epilogue.h, where there are kernels for a GPU and cuBLASLt, and precision is not strict.
  int64_t serial = 0;         // Of the trace: names its dumps (runtime/dump.h; the stages are the passes' names).
  // By op of the trace: false leaves it to ATen, as "aten" leaves all. Empty: all are compiled. For finding out which one is wrong.
  std::vector<bool> compiled_ops;
};

struct CompileReport {
  int kernels_compiled = 0;
  int kernel_cache_hits = 0;
  int num_nodes = 0;  // Of the graph that was planned.
  int num_groups = 0;
  int64_t arena_bytes = 0;                               // Of the program's buffers.
  std::vector<std::pair<std::string, int64_t>> pass_ns;  // Of each pass and "plan", in order: nanoseconds.
};

// The passes before planning, in order: "graph", "fold", ...
std::vector<std::string> PassNames();

// The graph as the pass `stop_after` leaves it. Fails on an unknown pass.
absl::StatusOr<Graph> RunPasses(const Trace& trace, const PipelineOptions& options, std::string_view stop_after);

// The program that does what `trace` does. `report` may be null. Thread-safe.
absl::StatusOr<std::unique_ptr<runtime::Program>> Compile(const Trace& trace, const PipelineOptions& options, CompileReport* report);

}  // namespace lazuli::codegen
