// Runs the first steps of a trace's program while the rest of the trace is recorded, so that a GPU has work meanwhile.
//
// As long as a trace is as predicted, what its program computes from the operators that are there is what will be asked for. Should it turn
// out to be another one, what was computed is dropped and what was overwritten is restored (runtime/run_ahead.h), and nobody has seen it:
// all that was written is pending. That costs the GPU's time, so a trace that often turns out to be another one gets no head start any
// more.
//
// Going back and forth between recording and launching takes time, too. It is done for traces that took long to record, that ended because
// the program wanted a result, and for which the program then waited long, several times in a row as predicted: a step of training whose
// loss is looked at.
#pragma once

#include <c10/core/StorageImpl.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "guards/program_cache.h"
#include "runtime/program.h"

namespace lazuli::tracer {

// Of one recorder, whose lock guards it. While it is active, the program is this recorder's alone.
class HeadStart {
 public:
  static constexpr size_t kNever = runtime::Program::kNever;

  // A trace begins that is expected to be `predicted`, null for none. After how many operators to call Advance, if it may have a head
  // start.
  size_t OnBegin(const guards::CachedTrace* predicted);

  // The trace's first `num_ops` operators are as in `predicted`; `args` as for Program::RunAhead. After how many to call again.
  size_t Advance(const guards::CachedTracePtr& predicted, const runtime::RunArgs& args, size_t num_ops);

  // Before a run of `entry`, null for none, with these values of its symbols: takes back what it does not go on from.
  void Settle(const guards::CachedTrace* entry, absl::Span<const int64_t> symbols);

  // The current trace was cut and launched as `entry`, null for none; `waits`: as predicted, it has work for a GPU, and the program wants a
  // result of it now.
  void OnCut(const guards::CachedTracePtr& entry, bool waits);

  bool active() const { return trace_ != nullptr; }

 private:
  using Clock = std::chrono::steady_clock;
  // Whether `trace` with these values of its symbols is what runs ahead.
  bool IsOf(const guards::CachedTrace* trace, absl::Span<const int64_t> symbols) const;
  void Undo();

  guards::CachedTracePtr trace_;  // Whose program runs ahead; null: none.
  std::vector<int64_t> symbols_;
  Clock::time_point begin_, end_;
  Clock::duration recording_{};        // Of the trace before.
  guards::CachedTracePtr waited_for_;  // The trace before, if the program may have waited for it since.
};

}  // namespace lazuli::tracer
