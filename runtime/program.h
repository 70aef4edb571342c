// A program: what one trace runs as, whatever made it (fused kernels, node by node, or replay of the trace itself).
#pragma once

#include <c10/core/StorageImpl.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace lazuli::runtime {

// Everything a run needs that is not part of the trace's skeleton.
struct RunArgs {
  // Indexed by the trace's storage number. Inputs: memory, never null; the program writes mutated inputs in place. Created: null.
  absl::Span<c10::StorageImpl* const> storages;
  // 64-bit slots: bits of a double for Double scalars, an int64_t for Long and Bool ones.
  absl::Span<const uint64_t> scalars;
  // In elements of the window's dtype.
  absl::Span<const int64_t> offsets;
  // Indexed by storage number; the program fills in memory for every created storage that is live_out, and leaves others null.
  absl::Span<at::DataPtr> outputs;
  // Indexed by storage number; not 0 for inputs that only the caller holds, whose memory the program may free after its last use. Empty:
  // there are none.
  absl::Span<const uint8_t> unshared = {};
  // A value for each symbol of the program (runtime/symbols.h); none for a program without.
  absl::Span<const int64_t> symbols = {};
};

// What is known of a run while its trace is still recorded.
struct PartialArgs {
  // All symbols, no outputs; of storages, null for those that are not known.
  RunArgs run;
  // By slot: 0 for numbers and offsets that are not known.
  absl::Span<const uint8_t> known_scalars, known_offsets;
  size_t num_ops = 0;  // So many operators are recorded.
  // Whether CUDA graphs may be captured: none while another thread draws random numbers, which a capture keeps from it.
  bool may_capture = false;
  // Whether steps may run in parts that are graphs, where the mode wants graphs.
  bool in_parts = false;
};

// What happened. A failing op does not stop the ones that do not depend on it: they run, and `error` is the first exception.
struct RunResult {
  std::exception_ptr error;   // Null on success.
  std::string failed_op;      // "aten::index_select" of the first failing op.
  int32_t failed_index = -1;  // Its place in the trace; -1 when it has none of its own.
  bool not_started = false;   // Memory for the run could not be allocated: as if nothing had run.
};

class Program {
 public:
  virtual ~Program() = default;
  // Runs once. Thread-safe only if the implementation says so; the recorder holds its lock during runs.
  virtual RunResult Run(const RunArgs& args) = 0;
  // Number of fused kernels launched and of library calls made by one run.
  virtual int num_kernels() const = 0;
  virtual int num_aten_calls() const = 0;
  // Whether it calls operators for which LibTorch makes something that takes long and is the thread's own (plans of cuDNN's attention): it
  // had better always run on the same thread.
  virtual bool keeps_plans_by_thread() const { return false; }
  // Whether every result has the very bits that eager execution gives.
  virtual bool bit_exact() const = 0;

  // The first steps of the next run may run ahead of it, while its trace is still recorded. The rest is done by Run(), or UndoAhead() takes
  // back what was done. Nothing else may be asked of the program in between.

  static constexpr size_t kNever = std::numeric_limits<size_t>::max();
  // With so many of the trace's operators recorded all steps that may run ahead can; 0: there are none.
  virtual size_t LastAheadAt() const { return 0; }
  struct Ahead {
    bool ran = false;            // Some steps did, this time.
    size_t next_at = kNever;     // So many operators must be recorded for more to run.
    bool would_capture = false;  // A CUDA graph, had it been allowed to.
  };
  // Runs the next steps for which what is known of the run suffices.
  virtual Ahead RunAhead(const PartialArgs& /*args*/) { return {}; }
  // Gives up the memory of its CUDA graphs, if it has some: of those of the whole, or of those of its parts, that steps run ahead as.
  enum class Graphs : uint8_t { kOfWhole, kOfParts };
  virtual void ReleaseGraphs(Graphs /*which*/) {}
  // No step has run ahead any more: inputs are what they were.
  virtual void UndoAhead() {}
};

}  // namespace lazuli::runtime
