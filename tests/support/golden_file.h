// Golden tests' files: a trace as text, headed by what to run it through and what to check of the outcome.
//
//   // RUN: fuse                  the stage whose text the CHECK lines are about: a name that LAZULI_DUMP takes
//   // CHECK...                   as llvm-lit's FileCheck has them, over that text
//   // SCALARS: 0.5 3             optional: values of the run-time scalars; 0.75, 1.75, ... otherwise
//   // OFFSETS: 5                 optional: values of the offset slots; 1, 2, ... otherwise
//   // TOLERANCE: 8               optional: machine epsilons of the largest result that the compiled program may be off; 0 otherwise
//   trace ...
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/ir/trace.h"

namespace lazuli::testing {

struct GoldenFile {
  std::string path;
  std::string text;  // All of it.
  std::string stage;
  std::vector<double> scalars;
  std::vector<int64_t> offsets;
  double tolerance = 0;
  codegen::Trace trace;
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
