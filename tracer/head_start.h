// Runs the first steps of a trace's program while the rest of the trace is recorded, so that a GPU has work meanwhile.
//
// As long as a trace is as predicted, what its program computes is what will be asked for. A step needs to know no more of the trace than
// its inputs, numbers and offsets: those that are recorded, and those that have long been the same in this trace (guards/steady_args.h), of
// inputs parameters and what the trace itself writes. So most of a training step can start when its batch is there. Should the trace turn
// out to be another one, or an argument another, what was computed is dropped and what was overwritten is restored (runtime/run_ahead.h),
// and nobody has seen it: all that was written is pending. So it is when somebody else is about to use memory that a step counted on. That
// costs the GPU's time: a trace that is often taken back gets no head start any more.
//
// Steps are launched when something more of the trace is known, from time to time; where that takes long, by a thread of their own
// (runtime/launch_thread.h). It is done for traces that took long to record and, twice in a row, long to launch, or whose results the
// program then waited for: a step of training whose loss is looked at. What stays the same in them is learnt from their first run on, so
// that head starts begin with the fourth or fifth of a loop's steps.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/core/Stream.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "guards/program_cache.h"
#include "runtime/launch_thread.h"
#include "runtime/program.h"
#include "tracer/foretold_args.h"

namespace lazuli::tracer {

// Of one recorder, whose lock guards it. While it is active, the program is this recorder's alone.
class HeadStart {
 public:
  ~HeadStart();

  static constexpr size_t kNever = runtime::Program::kNever;

  // A trace begins that is expected to be `predicted`, null for none. After how many operators to call Advance, if it may have a head
  // start.
  size_t OnBegin(const guards::CachedTrace* predicted);

  // The trace so far is as in `predicted`; `stream` is that of its GPU, if it has work for one. After how many operators to call again.
  // Waits for what is being launched.
  size_t Advance(const guards::CachedTracePtr& predicted, const RecordedArgs& recorded, std::optional<c10::Stream> stream);

  // Whether steps are being launched, by the other thread.
  bool launching() const { return !job_.done(); }
  // After how many operators to call Advance again where there is nothing to say now.
  size_t Later(const guards::CachedTrace& predicted, size_t num_ops) const;

  // The current trace is complete, and about to be launched.
  void OnRecorded() { end_ = Clock::now(); }

  // Before a run of `entry`, null for none, with these arguments: takes back what it does not go on from.
  void Settle(const guards::CachedTrace* entry, const RecordedArgs& recorded);

  // The current trace was launched as `entry`, null for none. `may_gain`: by its program, which was there, and it has work for a GPU;
  // `waits`: the program wants a result of it now. `learnt`: what is recorded of it, where `Learns`; storages are those that may be
  // foretold, null for others.
  void OnCut(const guards::CachedTracePtr& entry, bool may_gain, bool waits, const std::optional<RecordedArgs>& learnt);
  // Whether the trace may have a head start.
  static bool IsPossible(const guards::CachedTrace& trace);
  // Whether OnCut is to learn from the current trace, which is `trace`: it gets head starts, or may get some.
  bool Learns(const guards::CachedTrace& trace) const;

  // Calls `run`, which runs the program of `trace`, one that may run ahead, on `stream`, none for no GPU: on the other thread if its steps
  // are launched there and it had better stay there, here otherwise. (As with steps that run ahead, its operators must not touch what is
  // pending.)
  static void OnThreadOf(const guards::CachedTrace& trace, std::optional<c10::Stream> stream, const std::function<void()>& run);

  // Steps run ahead, or may: what they count on is foretold.
  bool active() const { return trace_ != nullptr; }
  // Whether steps counted on `storage` that is not recorded yet. From here on they will not any more.
  bool CountsOn(const c10::StorageImpl* storage);
  // Storages that were kept alive; to be let go of after the recorder's lock.
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> TakeGarbage() { return std::exchange(garbage_, {}); }

  // Whether any recorder's steps count on something.
  static bool AnyActive() { return counting.load(std::memory_order_relaxed) > 0; }

 private:
  using Clock = std::chrono::steady_clock;
  // Whether the trace gets head starts.
  static bool IsWanted(const guards::CachedTrace& trace);
  void Begin(const guards::CachedTracePtr& predicted, const RecordedArgs& recorded);
  // Returns when no step is being launched. Throws what that threw.
  void Finish();
  // Whether what runs ahead is `trace`, as far as `recorded` says.
  bool IsOf(const guards::CachedTrace* trace, const RecordedArgs& recorded) const;
  // What has run was in vain; nothing is being launched.
  void Undo();
  void TakeBack();
  // Nothing runs ahead any more.
  void End();
  // A trace of this program took so long after its recording.
  void NoteRound(guards::CompiledProgram* body, Clock::duration launching, Clock::duration waiting);

  static std::atomic<int> counting;  // Recorders of which steps run ahead.

  guards::CachedTracePtr trace_;  // Whose program runs ahead; null: none.
  std::vector<int64_t> symbols_;
  ForetoldArgs foretold_;
  runtime::LaunchJob job_;  // Steps that are being launched; until it is done, what they take stays as it is, and this is its:
  runtime::Program::Ahead ahead_;
  bool has_run_ = false;      // Some steps have.
  bool may_capture_ = false;  // They run on this thread, which draws no random numbers meanwhile.
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> garbage_;
  Clock::time_point begin_, end_, launched_;  // The recording of the trace, and then its launch.
  Clock::duration recording_{};               // Of the trace before.
  guards::CachedTracePtr waited_for_;         // The trace before, if the program may have waited for it since.
};

}  // namespace lazuli::tracer
