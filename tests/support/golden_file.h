// Golden tests' files: a trace as text, headed by what to run it through and what to check of the outcome.
//
//   // RUN: fuse                  the stage whose text the CHECK lines are about: a name that LAZULI_DUMP takes
//   // CHECK...                   as llvm-lit's FileCheck has them, over that text
//   // SCALARS, OFFSETS           as tools/trace_case.h has them
//   // TOLERANCE: 8               optional: machine epsilons of the largest result that the compiled program may be off; 0 otherwise
//   trace ...
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/trace_case.h"

namespace lazuli::testing {

struct GoldenFile {
  std::string path;
  std::string text;  // All of it.
  std::string stage;
  double tolerance = 0;
  tools::TraceCase test;
};

absl::StatusOr<GoldenFile> ReadGolden(const std::string& path);

// The paths of all golden files under `root`, sorted.
std::vector<std::string> FindGoldens(const std::string& root);

// Compiles the trace for "llvm" and returns the text of the stage `stage`, as LAZULI_DUMP writes it.
absl::StatusOr<std::string> DumpStage(const GoldenFile& golden, const std::string& stage);

// Runs the trace op by op, and compiled by both backends, on the same random inputs. "" when every visible storage is left the same:
// bit for bit on "aten", within the file's tolerance on "llvm".
std::string CompareRuns(const GoldenFile& golden);

}  // namespace lazuli::testing
