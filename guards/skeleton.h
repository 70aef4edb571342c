// What is known of all traces with one code: the numbers they came with, and the programs with symbols that serve them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "codegen/ir/trace_log.h"
#include "guards/shape_policy.h"
#include "runtime/program.h"

namespace lazuli::guards {

// A program and what it was compiled for. Shared by all traces that it serves.
struct CompiledProgram {
  std::unique_ptr<runtime::Program> program;
  bool compiled = false;  // False: `program` replays the trace, because compiling it failed.
  int64_t serial = 0;     // Of the trace that it was compiled for.
  std::mutex run_mutex;   // Programs keep buffers, so one run at a time.
};

struct Site;

struct Skeleton {
  struct DynamicProgram {
    DynamicShapes shapes;
    std::shared_ptr<CompiledProgram> program;
    Site* site = nullptr;  // Where it was compiled.
  };

  std::vector<codegen::Word> code;
  // The numbers of traces that had programs compiled, the latest last; bounded.
  std::vector<std::vector<int64_t>> examples;
  std::vector<DynamicProgram> dynamic;  // The latest last.
  int64_t traces = 0;                   // Cached ones with this code.

  // What `program` was compiled for; null when it has no symbols.
  const DynamicShapes* ShapesOf(const CompiledProgram* program) const {
    for (const DynamicProgram& entry : dynamic) {
      if (entry.program.get() == program) return &entry.shapes;
    }
    return nullptr;
  }

  static constexpr size_t kMaxExamples = 6;
  void AddExample(std::vector<int64_t> numbers) {
    if (examples.size() == kMaxExamples) examples.erase(examples.begin());
    examples.push_back(std::move(numbers));
  }
};

}  // namespace lazuli::guards
