// Trace -> Program: the passes in order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "codegen/ir/trace.h"
#include "codegen/kernel_compiler.h"
#include "runtime/program.h"

namespace lazuli::codegen {

struct PipelineOptions {
  std::string backend = "llvm";  // "llvm", or "aten": every op as recorded, the oracle.
  KernelTarget target;
  int64_t serial = 0;  // Of the trace: names its dumps (runtime/dump.h; the stages are the passes' names).
};

struct CompileReport {
  int kernels_compiled = 0;
  int kernel_cache_hits = 0;
  int num_nodes = 0;  // Of the graph that was planned.
  int num_groups = 0;
};

// The program that does what `trace` does. `report` may be null. Thread-safe. Fails on traces with storages off the CPU.
absl::StatusOr<std::unique_ptr<runtime::Program>> Compile(const Trace& trace, const PipelineOptions& options, CompileReport* report);

}  // namespace lazuli::codegen
