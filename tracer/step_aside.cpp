#include "tracer/step_aside.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/counters.h"
#include "runtime/history.h"
#include "runtime/log.h"
#include "runtime/options.h"
#include "runtime/thread_object.h"
#include "tracer/recorder.h"

namespace lazuli::tracer {

using guards::CachedTracePtr;
using guards::EagerTrial;
using runtime::LogCategory;

namespace internal {
__thread AsidePosition* aside __attribute__((tls_model("initial-exec"))) = nullptr;
}

namespace {

constexpr size_t kMaxPath = 8;
// In place of the cause of a cut.
constexpr std::string_view kAside = "step_aside";

void ReportSlower(const guards::CachedTrace& trace) {
  const EagerTrial& trial = trace.body->trial;
  runtime::Counters::Get().programs_stepped_aside.Add();
  runtime::History::Get().StepAside(trace.serial, static_cast<int64_t>(trace.log.ops.size()), trial.program_nanoseconds(),
                                    trial.eager_nanoseconds());
  if (!runtime::LogEnabled(LogCategory::kPerfHints)) return;
  const auto us = [](int64_t nanoseconds) { return absl::StrFormat("%.2f us", static_cast<double>(nanoseconds) / 1000); };
  runtime::Log(LogCategory::kPerfHints,
               absl::StrCat("trace #", trace.serial, " (", trace.log.ops.size(), " ops) takes ", us(trial.program_nanoseconds()),
                            " with its program and ", us(trial.eager_nanoseconds()), " eagerly: its operators run eagerly from here"));
}

// Times occurrences of traces in a trial.
class TrialTimer {
 public:
  // The first operator of a trace that is expected to be `trace`, or null, and runs in `way`.
  void OnTraceStart(const CachedTracePtr& trace, EagerTrial::Way way) {
    const bool timed = trace != nullptr && trace->body->trial.timing();
    if (!timed && trace_ == nullptr) return;
    const auto now = Clock::now();
    if (trace_ != nullptr) {
      sample_.until_next = Since(start_, now);
      if (trace_->body->trial.AddSample(way_, sample_)) ReportSlower(*trace_);
    }
    trace_ = timed ? trace : nullptr;
    way_ = way;
    start_ = now;
    sample_ = {};
  }

  // The trace's program has run, after a cut for `cause`.
  void OnRan(std::string_view cause) {
    if (trace_ == nullptr || way_ != EagerTrial::Way::kProgram) return;
    sample_.own = Since(start_, Clock::now());
    trace_->body->trial.NoteEnd(cause);
  }

  // All of the trace's operators have run eagerly, and `cause` came: an operator that is part of no trace, or a cut.
  void OnEnd(std::string_view cause) {
    if (trace_ == nullptr || way_ != EagerTrial::Way::kEager || sample_.own != EagerTrial::Sample::kUnknown) return;
    if (trace_->body->trial.EndsAt(cause)) sample_.own = Since(start_, Clock::now());
  }

  void Discard() { trace_ = nullptr; }

 private:
  using Clock = std::chrono::steady_clock;

  static int64_t Since(Clock::time_point start, Clock::time_point now) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now - start).count();
  }

  CachedTracePtr trace_;
  EagerTrial::Way way_ = EagerTrial::Way::kProgram;
  Clock::time_point start_;
  EagerTrial::Sample sample_;
};

void CountEagerOps(size_t num_ops) { runtime::Counters::Get().ops_stepped_aside.Add(static_cast<int64_t>(num_ops)); }

// The same, and `recorder`, this thread's own, hears of them.
void NoteEagerOps(Recorder* recorder, size_t num_ops) {
  if (num_ops == 0) return;
  CountEagerOps(num_ops);
  recorder->NoteEagerOps(num_ops);
}

// The traces that a thread follows: a path along their successors, which often closes to a loop.
class Cursor : public internal::AsidePosition {
 public:
  void Start(Recorder* recorder, const CachedTracePtr& trace) {
    recorder_ = recorder;
    path_.assign(1, trace);
    closed_ = false;
    Enter(0);
    internal::aside = this;
  }
  void End() {
    CountOps();
    Stop();
  }
  // The same where no recorder may be asked for: in a child, others' threads may hold its lock for good.
  void Stop() {
    internal::aside = nullptr;
    CountEagerOps(std::exchange(next, 0));
    recorder_ = nullptr;
    path_.clear();
  }

  Recorder* recorder() const { return recorder_; }
  bool at_start() const { return next == 0; }
  bool at_end() const { return next == count; }
  const CachedTracePtr& trace() const { return path_[at_]; }

  bool TakeIf(int32_t op_id) {
    if (ops[next].op_id != op_id) return false;
    ++next;
    return true;
  }

  // Goes on with the trace after this one, which begins with operator `op_id`. False when it runs its program, or nobody knows it.
  bool Advance(int32_t op_id) {
    size_t to = at_ + 1;
    if (to == path_.size() && closed_) to = 0;
    if (to == path_.size() || path_[to]->log.ops.front().op_id != op_id) {
      CachedTracePtr successor = guards::ProgramCache::Get().SuccessorStartingWith(trace(), kAside, op_id);
      if (successor == nullptr) return false;
      to = Append(std::move(successor));
    }
    if (path_[to]->body->trial.Choose() != EagerTrial::Way::kEager) return false;
    trace()->body->trial.NoteMatch();
    CountOps();
    Enter(to);
    return true;
  }

 private:
  // Puts `successor` behind the trace that ended, in place of what came there before. Where it is.
  size_t Append(CachedTracePtr successor) {
    path_.resize(at_ + 1);
    closed_ = successor == path_[0];
    if (closed_) return 0;
    if (path_.size() == kMaxPath) {
      path_.erase(path_.begin(), path_.end() - 1);
      at_ = 0;
    }
    path_.push_back(std::move(successor));
    return path_.size() - 1;
  }
  void Enter(size_t at) {
    at_ = at;
    next = 0;
    ops = path_[at]->log.ops.data();
    count = path_[at]->log.ops.size();
  }
  void CountOps() { NoteEagerOps(recorder_, std::exchange(next, 0)); }

  Recorder* recorder_ = nullptr;
  std::vector<CachedTracePtr> path_;
  bool closed_ = false;  // The last trace leads to the first.
  size_t at_ = 0;
};

// The rest of one trace, whatever it is, or trace after trace.
class Rest : public internal::AsidePosition {
 public:
  void Start(Recorder* recorder, bool in_blocks, size_t max_ops) {
    recorder_ = recorder;
    in_blocks_ = in_blocks;
    begun_ = ended_ = across_cuts_ = false;
    taken_ = 0;
    most_ = max_ops;
    internal::aside = this;
  }
  void StartAcrossCuts(Recorder* recorder) {
    Start(recorder, /*in_blocks=*/false, kMostWithoutCut);
    across_cuts_ = true;
  }
  void Stop() {
    if (recorder_ == nullptr) return;
    internal::aside = nullptr;
    CountEagerOps(std::exchange(taken_, 0));
    recorder_ = nullptr;
  }
  // Records again, after a cut for `cause`.
  void End(std::string_view cause) {
    Recorder* const recorder = recorder_;
    CountTaken();
    Stop();
    recorder->ResumeAfter(nullptr, cause);
  }

  Recorder* recorder() const { return recorder_; }
  bool begun() const { return begun_; }

  // Whether what comes after the cut that would be here runs eagerly, too.
  bool GoesOnAfterCut() {
    CountTaken();
    return across_cuts_ && !recorder_->LooksAtNextTrace();
  }

  // Whether operator `info` is part of it. Ends where it is not. One on numbers would not be recorded, either.
  bool Take(const codegen::OpInfo& info, bool on_numbers) {
    if (!begun_) {
      begun_ = true;
      // Where an operator that was about to be recorded caused the cut before this, it was recorded, too.
      if (!recorder_->IsEmpty()) recorder_->Flush(across_cuts_ ? kAside : in_blocks_ ? guards::kBlock : "recompile_limit", Cut::kTransient);
      if (recorder_ == nullptr) return false;  // Another thread has cut the trace meanwhile.
      begun_ = true;
    } else if (IsOver()) {
      End(in_blocks_ ? guards::kBlock : kAside);
      return false;
    }
    if (!info.recordable && ReadsTensors(info) && !GoesOnAfterCut()) {
      End(info.name);
      return false;
    }
    if (!on_numbers) ++taken_;
    ended_ = in_blocks_ && recorder_->EndsBlockAfter(info.id, guards::kSiteOps + taken_);
    return true;
  }

  // What is not recorded and reads tensors would have cut the trace.
  static bool ReadsTensors(const codegen::OpInfo& info) { return (info.tensor_args & ~info.mutated_args) != 0; }

 private:
  // Nobody sees reads of memory of which nothing is pending: after so many operators there may have been one.
  static constexpr size_t kMostWithoutCut = 256;

  bool IsOver() {
    if (ended_ || !recorder_->IsEmpty() || (across_cuts_ && !recorder_->MayStepAsideAcrossCuts())) return true;
    return taken_ == most_ && !GoesOnAfterCut();
  }

  void CountTaken() { NoteEagerOps(recorder_, std::exchange(taken_, 0)); }

  Recorder* recorder_ = nullptr;
  bool in_blocks_ = false;
  bool begun_ = false;  // What was recorded of the trace has run.
  bool ended_ = false;
  bool across_cuts_ = false;
  size_t taken_ = 0, most_ = 0;
};

struct ThreadState {
  ~ThreadState() {
    cursor.Stop();
    rest.Stop();
  }
  Cursor cursor;
  Rest rest;
  TrialTimer timer;
};

ThreadState& State() { return runtime::ThreadObject<ThreadState>(); }

// The program does something else than what follows in the trace that was stepped aside for. `cause`: of the cut here.
void LeaveInTheMiddle(ThreadState* state, std::string_view cause) {
  Recorder* const recorder = state->cursor.recorder();
  state->cursor.trace()->body->trial.NoteMismatch();
  state->cursor.End();
  state->timer.Discard();
  recorder->ResumeAfter(nullptr, cause);
}

// Another trace begins than the one that was expected to run eagerly. Whether that runs eagerly, too.
bool TakeOther(ThreadState* state, int32_t op_id) {
  Recorder* const recorder = state->cursor.recorder();
  state->cursor.End();
  const CachedTracePtr other = recorder->ExpectedWith(op_id);
  if (other == nullptr || other->body->trial.Choose() != EagerTrial::Way::kEager) return false;
  state->cursor.Start(recorder, other);
  return state->cursor.TakeIf(op_id);
}

}  // namespace

bool internal::EnterAside(const codegen::OpInfo& info, bool on_numbers) {
  ThreadState& state = State();
  if (state.rest.recorder() != nullptr) return state.rest.Take(info, on_numbers);
  Cursor& cursor = state.cursor;
  if (cursor.at_end()) state.timer.OnEnd(info.name);
  if (cursor.at_end() && !cursor.Advance(info.id)) {
    if (on_numbers) return true;
    const CachedTracePtr finished = cursor.trace();
    Recorder* const recorder = cursor.recorder();
    cursor.End();
    recorder->ResumeAfter(finished, kAside);
    return false;
  }
  const bool first = cursor.at_start();
  if (!cursor.TakeIf(info.id)) {
    if (on_numbers) return true;
    if (!first) {
      LeaveInTheMiddle(&state, kAside);
      return false;
    }
    if (!TakeOther(&state, info.id)) return false;
  }
  if (first) state.timer.OnTraceStart(cursor.trace(), EagerTrial::Way::kEager);
  return true;
}

void ExpectTrace(Recorder* recorder, const CachedTracePtr& trace) {
  if (trace->body->trial.Choose() == EagerTrial::Way::kEager) State().cursor.Start(recorder, trace);
}

void NotePredictionLeft() { State().timer.Discard(); }

void NoteRecordedTrace(const CachedTracePtr& prediction) { State().timer.OnTraceStart(prediction, EagerTrial::Way::kProgram); }

void NoteTraceRan(std::string_view cause) { State().timer.OnRan(cause); }

bool StepsAsideAcrossCut(Recorder* recorder, std::string_view cause) {
  if (internal::aside == nullptr) return false;
  Rest& rest = State().rest;
  if (rest.recorder() == recorder) {
    if (rest.GoesOnAfterCut()) return true;
    rest.Stop();
    return false;
  }
  Cursor& cursor = State().cursor;
  if (cursor.recorder() != recorder) return false;
  if (cursor.at_end()) {
    State().timer.OnEnd(cause);
  } else if (!cursor.at_start()) {
    LeaveInTheMiddle(&State(), cause);
  }
  return true;
}

void internal::EndAsideAt(const codegen::OpInfo& info) {
  ThreadState& state = State();
  if (state.cursor.recorder() != nullptr && state.cursor.at_end()) state.timer.OnEnd(info.name);
  Rest& rest = state.rest;
  if (rest.recorder() != nullptr && rest.begun() && Rest::ReadsTensors(info) && !rest.GoesOnAfterCut()) rest.End(info.name);
}

void StepAsideUntilCut(Recorder* recorder, bool in_blocks, size_t max_ops) {
  State().timer.Discard();
  State().rest.Start(recorder, in_blocks, max_ops);
}

void StepAsideAcrossCuts(Recorder* recorder) {
  State().timer.Discard();
  State().rest.StartAcrossCuts(recorder);
}

void CancelStepAsideUntilCut(const Recorder* recorder) {
  if (internal::aside == nullptr) return;
  Rest& rest = State().rest;
  if (rest.recorder() == recorder && !rest.begun()) rest.Stop();
}

void StopSteppingAside() {
  State().cursor.Stop();
  State().rest.Stop();
  State().timer.Discard();
}

void RecordFromHere() {
  if (internal::aside == nullptr) return;
  Recorder* const followed = State().cursor.recorder();
  Recorder* const recorder = followed != nullptr ? followed : State().rest.recorder();
  StopSteppingAside();
  recorder->ResumeAfter(nullptr, kAside);
}

}  // namespace lazuli::tracer
