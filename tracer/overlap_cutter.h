// Where to end a trace early, so that a GPU works on its first part while the rest is recorded.
//
// A program that looks at a result of each step waits for the GPU there, and in the next step the GPU waits until all of it is recorded.
// So a trace that took long to record, that ended because the program wanted a result, and for which the program then waited long, several
// times in a row as predicted, ends early from then on, where its program can be cut in two (codegen/passes/early_end.h). What is left is a
// trace of its own, to which the same applies.
#pragma once

#include <chrono>
#include <cstddef>

#include "guards/program_cache.h"

namespace lazuli::tracer {

class OverlapCutter {
 public:
  // A trace begins. The number of operators after which it should end; 0: anywhere.
  size_t OnBegin(const guards::CachedTrace* predicted);

  // The current trace was cut and launched as `entry`, null for none: where this cutter said, or, when `waits`, as predicted and because
  // the program wants a result of it now. `on_gpu`: it has work for one.
  void OnCut(const guards::CachedTracePtr& entry, bool early, bool waits, bool on_gpu);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kLong{400};
  static constexpr int kSlowRounds = 3, kDepth = 3;

  Clock::time_point begin_, end_;
  guards::CachedTracePtr waited_for_;  // The trace before, if it took long to record, and the program may have waited for it since.
  int depth_ = 0;                      // So many early ends came right before the current trace.
};

}  // namespace lazuli::tracer
