// Where to end a trace early, so that a GPU works on its first parts while the rest is recorded.
//
// A program that looks at a result of each step waits for the GPU there, and in the next step the GPU waits until all of it is recorded.
// So a trace that took long to record, that ended because the program wanted a result, and for which the program then waited long, several
// times in a row as predicted, is cut from then on into parts, where its program can be (codegen/passes/early_end.h). What the first part
// takes to record the GPU waits for, and what the last takes to run the program waits for: these two are small, the others of about the
// same size.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "guards/program_cache.h"

namespace lazuli::tracer {

class OverlapCutter {
 public:
  // A trace begins. The number of operators after which it should end; 0: anywhere.
  size_t OnBegin(const guards::CachedTrace* predicted);

  // Whether the current trace, now as long as OnBegin said, ends here: it is as predicted, or one of the parts, not seen yet, of one that
  // was.
  bool EndsHere(bool as_predicted) const { return as_predicted || (after_early_end_ && !parts_.empty()); }

  // The current trace was cut and launched as `entry`, null for none: where this cutter said, or, when `waits`, as predicted and because
  // the program wants a result of it now. `on_gpu`: it has work for one.
  void OnCut(const guards::CachedTracePtr& entry, bool early, bool waits, bool on_gpu);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kLong{400};
  // Of each part: that recording it takes, that the GPU takes for it.
  static constexpr std::chrono::microseconds kShortestPart{200};
  static constexpr int kSlowRounds = 3, kFewestOps = 16;
  // How many parts to cut `entry` into when recording it takes `recording`, and then its program `waiting`.
  static int PartsOf(const guards::CachedTrace& entry, Clock::duration recording, Clock::duration waiting);

  Clock::time_point begin_, end_;
  Clock::duration recording_{};        // Of the trace before.
  guards::CachedTracePtr waited_for_;  // The trace before, if it took long to record, and the program may have waited for it since.
  bool after_early_end_ = false;       // Whether the trace before was cut early.
  std::vector<size_t> parts_;          // Numbers of operators of the parts that are still to come, but the last.
};

}  // namespace lazuli::tracer
