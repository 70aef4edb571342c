#include "tracer/head_start.h"

#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/blas_workspace.h"
#include "runtime/counters.h"
#include "runtime/cuda_driver.h"
#include "runtime/log.h"
#include "runtime/options.h"

namespace lazuli::tracer {
namespace {

// Recording, and launching and waiting for the program, that make a head start worth the while when they come so many times in a row.
constexpr std::chrono::microseconds kLong{200};
constexpr int kLongRounds = 2;
// What it takes to stop recording, say what is known and go on.
constexpr std::chrono::microseconds kInterruption{10};
// What a host takes for one step.
constexpr std::chrono::microseconds kLaunch{6};
constexpr double kMostInterruptions = 32;
// Times as long as recording that launching may take to go on beside it.
constexpr int kMostLaunching = 8;
// One in vain weighs as much as so many that were not; with three more of the former than that, a trace gets no more.
constexpr int kInVain = 8, kMostInVain = 3 * kInVain;

// So many interruptions leave the GPU idle for as short as they take: r / n for the first of n in a recording of r, and n times the other.
int InterruptionsFor(std::chrono::nanoseconds recording) {
  const double shortest = static_cast<double>(std::chrono::nanoseconds(kInterruption).count());
  return static_cast<int>(std::min(kMostInterruptions, std::ceil(std::sqrt(static_cast<double>(recording.count()) / shortest))));
}

// Operators to the next interruption after `num_ops`. All are before the last step that may run ahead: an optimizer's many operators come
// later. The first ones are close together, while the GPU has little to do yet.
size_t Spacing(const guards::CachedTrace& trace, size_t num_ops) {
  constexpr int kByDefault = 32;  // Where the options want it.
  const int interruptions = trace.body->head_start.interruptions.load(std::memory_order_relaxed);
  const size_t even = trace.body->program->LastAheadAt() / static_cast<size_t>(interruptions == 0 ? kByDefault : interruptions);
  return std::max<size_t>(1, std::min(even, num_ops));
}

// Starts `job` with `stream`, none for no GPU, as its thread's current one.
void StartOnStream(runtime::LaunchJob* job, std::optional<c10::Stream> stream, std::function<void()> work) {
  if (!stream.has_value()) {
    job->Start(std::move(work));
    return;
  }
  job->Start([stream = *stream, work = std::move(work)] {
    // Libraries expect that a thread that calls them has a context. An error is the next call's, too.
    thread_local const int error = runtime::SetCurrentContext(stream.device_index());
    (void)error;
    const runtime::AnyCaptures any;  // Of other threads, which this one's work has nothing to do with.
    const c10::StreamGuard guard(stream);
    work();
  });
}

// A thread that has launched steps of a program gives up what it has for cuBLAS: the other one needs its own now.
void FreeWorkspace(std::optional<c10::Stream> stream) {
  if (stream.has_value()) runtime::FreeBlasWorkspace(*stream, runtime::Unless::kNever);
}

bool IsOnThread(const guards::CachedTrace& trace) {
  const runtime::When wanted = runtime::LaunchJob::IsWise() ? runtime::Active().launch_thread : runtime::When::kNever;
  return wanted == runtime::When::kAlways ||
         (wanted == runtime::When::kAuto && trace.body->head_start.host_bound.load(std::memory_order_relaxed));
}

}  // namespace

std::atomic<int> HeadStart::counting{0};

HeadStart::~HeadStart() {
  try {
    job_.Wait();
  } catch (...) {  // Of a trace that will never run.
  }
}

size_t HeadStart::OnBegin(const guards::CachedTrace* predicted) {
  begin_ = Clock::now();
  if (const guards::CachedTracePtr entry = std::exchange(waited_for_, nullptr); entry != nullptr) {
    NoteRound(entry->body.get(), launched_ - end_, begin_ - launched_);
  }
  if (predicted == nullptr || !IsPossible(*predicted)) return kNever;
  if (IsOnThread(*predicted)) runtime::LaunchJob::Announce();
  return 1;
}

bool HeadStart::IsPossible(const guards::CachedTrace& trace) {
  if (!trace.body->ready() || !trace.body->compiled || !IsWanted(trace)) return false;
  if (trace.body->head_start.in_vain.load(std::memory_order_relaxed) >= kMostInVain) return false;
  return trace.body->program->LastAheadAt() != 0;
}

size_t HeadStart::Later(const guards::CachedTrace& predicted, size_t num_ops) const {
  return num_ops + (has_run_ ? Spacing(predicted, num_ops) : 1);
}

size_t HeadStart::Advance(const guards::CachedTracePtr& predicted, const RecordedArgs& recorded, std::optional<c10::Stream> stream) {
  const size_t later = Later(*predicted, recorded.num_ops);
  Finish();
  if (active() && !IsOf(predicted.get(), recorded)) {
    Undo();
    return kNever;
  }
  if (!active()) {
    Begin(predicted, recorded);
  } else if (ahead_.next_at > recorded.num_ops) {
    return ahead_.next_at;
  }
  runtime::PartialArgs args = foretold_.With(recorded);
  args.may_capture = may_capture_;
  args.in_parts = !predicted->body->head_start.gpu_bound.load(std::memory_order_relaxed);
  args.run.symbols = symbols_;
  const bool on_thread = IsOnThread(*predicted) && !may_capture_;
  const auto launch = [this, args, stream, on_thread] {
    guards::CompiledProgram& body = *trace_->body;
    std::lock_guard<std::mutex> run_lock(body.run_mutex);
    ahead_ = body.program->RunAhead(args);
    if (on_thread) FreeWorkspace(stream);
  };
  if (on_thread) {
    StartOnStream(&job_, stream, launch);
    return later;
  }
  job_.RunHere(launch);
  Finish();
  return std::max(ahead_.next_at, Later(*predicted, recorded.num_ops));
}

void HeadStart::OnThreadOf(const guards::CachedTrace& trace, std::optional<c10::Stream> stream, const std::function<void()>& run) {
  const bool takes_turns = IsPossible(trace) && IsOnThread(trace);
  if (trace.body->program->keeps_plans_by_thread() && takes_turns) {
    runtime::LaunchJob job;
    StartOnStream(&job, stream, [&] {
      run();
      FreeWorkspace(stream);
    });
    job.Wait();
  } else {
    run();
  }
  if (takes_turns) FreeWorkspace(stream);
}

void HeadStart::Begin(const guards::CachedTracePtr& predicted, const RecordedArgs& recorded) {
  trace_ = predicted;
  may_capture_ = predicted->body->head_start.would_capture.exchange(false, std::memory_order_relaxed);
  symbols_.assign(recorded.symbols.begin(), recorded.symbols.end());
  counting.fetch_add(1, std::memory_order_relaxed);
  std::lock_guard<std::mutex> run_lock(predicted->body->run_mutex);
  foretold_.Foretell(predicted->body->head_start.steady, recorded, predicted->log.num_storages, predicted->log.scalars.size());
}

void HeadStart::Finish() {
  try {
    job_.Wait();
  } catch (...) {
    TakeBack();
    throw;
  }
  if (std::exchange(ahead_.would_capture, false)) trace_->body->head_start.would_capture.store(true, std::memory_order_relaxed);
  if (!std::exchange(ahead_.ran, false) || std::exchange(has_run_, true)) return;
  runtime::Counters::Get().head_starts.Add();
}

void HeadStart::Settle(const guards::CachedTrace* entry, const RecordedArgs& recorded) {
  if (!active()) return;
  Finish();
  if (!IsOf(entry, recorded)) {
    Undo();
    return;
  }
  std::atomic<int>& in_vain = trace_->body->head_start.in_vain;
  if (has_run_ && in_vain.load(std::memory_order_relaxed) > 0) in_vain.fetch_sub(1, std::memory_order_relaxed);
  End();
}

void HeadStart::OnCut(const guards::CachedTracePtr& entry, bool may_gain, bool waits, const std::optional<RecordedArgs>& learnt) {
  waited_for_ = nullptr;
  if (entry == nullptr) return;
  recording_ = end_ - begin_;
  if (may_gain && recording_ >= kLong && entry->body->head_start.interruptions.load(std::memory_order_relaxed) == 0) {
    launched_ = Clock::now();
    if (waits) {
      waited_for_ = entry;
    } else {
      NoteRound(entry->body.get(), launched_ - end_, {});
    }
  }
  if (!learnt.has_value()) return;
  std::lock_guard<std::mutex> run_lock(entry->body->run_mutex);
  entry->body->head_start.steady.Note(learnt->storages, learnt->scalars, learnt->offsets);
}

void HeadStart::NoteRound(guards::CompiledProgram* body, Clock::duration launching, Clock::duration waiting) {
  guards::HeadStartHistory* const history = &body->head_start;
  if (launching + waiting < kLong) {
    history->long_rounds.store(0, std::memory_order_relaxed);
  } else if (history->long_rounds.fetch_add(1, std::memory_order_relaxed) + 1 == kLongRounds) {
    // A GPU that is waited for takes about as long as launching and waiting for it did. These were measured once, and recording may take
    // twice as long in another spell, while a thread more costs little where the GPU is the limit, but more than it hides where little is
    // recorded of what takes long to launch (a decomposition of a matrix is hundreds of launches).
    const bool overlaps = kMostLaunching * recording_ >= launching;
    history->host_bound.store(overlaps && std::max<Clock::duration>(launching, 2 * recording_) >= waiting, std::memory_order_relaxed);
    // What took longer to launch was captured as a graph.
    const Clock::duration step_by_step = (body->program->num_kernels() + body->program->num_aten_calls()) * kLaunch;
    const Clock::duration on_gpu = std::min(launching, step_by_step) + waiting;
    history->hides_much.store(2 * on_gpu >= recording_, std::memory_order_relaxed);
    history->gpu_bound.store(on_gpu >= recording_ + step_by_step, std::memory_order_relaxed);
    history->interruptions.store(InterruptionsFor(recording_), std::memory_order_relaxed);
  }
}

bool HeadStart::Learns(const guards::CachedTrace& trace) const {
  if (IsWanted(trace)) return true;
  // So that nothing has to be learnt any more when it is.
  return end_ - begin_ >= kLong && trace.body->ready() && trace.body->compiled && runtime::Active().head_start == runtime::When::kAuto &&
         trace.body->program->LastAheadAt() != 0;
}

bool HeadStart::IsWanted(const guards::CachedTrace& trace) {
  return trace.body->head_start.interruptions.load(std::memory_order_relaxed) > 0 || runtime::Active().head_start == runtime::When::kAlways;
}

bool HeadStart::CountsOn(const c10::StorageImpl* storage) {
  if (!active() || !foretold_.Has(storage)) return false;
  std::lock_guard<std::mutex> run_lock(trace_->body->run_mutex);
  trace_->body->head_start.steady.Distrust(storage);
  return true;
}

bool HeadStart::IsOf(const guards::CachedTrace* trace, const RecordedArgs& recorded) const {
  return trace_.get() == trace && std::equal(symbols_.begin(), symbols_.end(), recorded.symbols.begin(), recorded.symbols.end()) &&
         foretold_.Agrees(recorded);
}

void HeadStart::Undo() {
  if (has_run_) {
    runtime::Counters::Get().head_starts_in_vain.Add();
    const int in_vain = trace_->body->head_start.in_vain.fetch_add(kInVain, std::memory_order_relaxed) + kInVain;
    if (in_vain >= kMostInVain && runtime::LogEnabled(runtime::LogCategory::kPerfHints)) {
      runtime::Log(runtime::LogCategory::kPerfHints,
                   absl::StrCat("trace #", trace_->serial, " often turns out to be another one: its program",
                                " starts when it is complete from here on"));
    }
  }
  TakeBack();
}

void HeadStart::TakeBack() {
  {
    std::lock_guard<std::mutex> run_lock(trace_->body->run_mutex);
    trace_->body->program->UndoAhead();
  }
  End();
}

void HeadStart::End() {
  trace_ = nullptr;
  ahead_ = {};
  has_run_ = false;
  foretold_.Clear(&garbage_);
  counting.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace lazuli::tracer
