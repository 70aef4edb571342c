// A program in parts, each with CUDA graphs of its own: how steps that run ahead of their run (run_ahead.h) are launched in modes with
// graphs. A graph of the whole could only be launched once the trace is complete.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/executor.h"
#include "runtime/program_graphs.h"

namespace lazuli::runtime {

class ProgramParts {
 public:
  // Of a program of which the first `num_ahead` steps may run ahead: these in about ten parts, the others in one.
  ProgramParts(const ProgramSpec* spec, size_t num_ahead);

  // The part that begins with step `first`; null: none does.
  struct Part {
    size_t first = 0;
    size_t count = 0;
    std::unique_ptr<ProgramGraphs> graphs;
  };
  const Part* From(size_t first) const;

  // Whether a run is between the beginning of its first part and its end: parts read what others' graphs have made.
  void SetInUse(bool in_use) { in_use_.store(in_use, std::memory_order_release); }

 private:
  std::atomic<bool> in_use_{false};
  std::vector<Part> parts_;  // In order.
};

}  // namespace lazuli::runtime
