#include "tracer/head_start.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/counters.h"
#include "runtime/log.h"
#include "runtime/options.h"

namespace lazuli::tracer {
namespace {

// Recording, and waiting for the program, that makes a head start worth the while when it comes so many times in a row.
constexpr std::chrono::microseconds kLong{200};
constexpr int kLongRounds = 3;
// What it takes to stop recording, launch and go on, beside the launches themselves.
constexpr std::chrono::microseconds kInterruption{10};
constexpr double kMostInterruptions = 32;
// One in vain weighs as much as so many that were not; with three more of the former than that, a trace gets no more.
constexpr int kInVain = 8, kMostInVain = 3 * kInVain;

// So many interruptions leave the GPU idle for as short as they take: r / n for the first of n in a recording of r, and n times the other.
int InterruptionsFor(std::chrono::nanoseconds recording) {
  const double shortest = static_cast<double>(std::chrono::nanoseconds(kInterruption).count());
  return static_cast<int>(std::min(kMostInterruptions, std::ceil(std::sqrt(static_cast<double>(recording.count()) / shortest))));
}

// Operators between two interruptions, which are all before the last step that may run ahead: an optimizer's many operators come later.
size_t Spacing(const guards::CachedTrace& trace) {
  constexpr int kByDefault = 32;  // Where the options want it.
  const int interruptions = trace.head_start.interruptions.load(std::memory_order_relaxed);
  return std::max<size_t>(1, trace.body->program->LastAheadAt() / static_cast<size_t>(interruptions == 0 ? kByDefault : interruptions));
}

}  // namespace

std::atomic<int> HeadStart::counting{0};

size_t HeadStart::OnBegin(const guards::CachedTrace* predicted) {
  begin_ = Clock::now();
  if (const guards::CachedTracePtr entry = std::exchange(waited_for_, nullptr); entry != nullptr) {
    guards::HeadStartHistory& history = entry->head_start;
    if (begin_ - end_ < kLong) {
      history.long_rounds.store(0, std::memory_order_relaxed);
    } else if (history.long_rounds.fetch_add(1, std::memory_order_relaxed) + 1 == kLongRounds) {
      history.interruptions.store(InterruptionsFor(recording_), std::memory_order_relaxed);
    }
  }
  if (predicted == nullptr || !predicted->body->ready() || !predicted->body->compiled || !IsWanted(*predicted)) return kNever;
  if (predicted->head_start.in_vain.load(std::memory_order_relaxed) >= kMostInVain) return kNever;
  return predicted->body->program->LastAheadAt() == 0 ? kNever : 1;
}

size_t HeadStart::Advance(const guards::CachedTracePtr& predicted, const RecordedArgs& recorded) {
  if (active() && !IsOf(predicted.get(), recorded)) {
    Undo();
    return kNever;
  }
  guards::CompiledProgram& body = *predicted->body;
  std::lock_guard<std::mutex> run_lock(body.run_mutex);
  if (!active()) foretold_.Foretell(predicted->head_start.steady, recorded, predicted->log.num_storages, predicted->log.scalars.size());
  const runtime::Program::Ahead ahead = body.program->RunAhead(foretold_.With(recorded));
  if (ahead.ran && !active()) {
    trace_ = predicted;
    symbols_.assign(recorded.symbols.begin(), recorded.symbols.end());
    counting.fetch_add(1, std::memory_order_relaxed);
    runtime::Counters::Get().head_starts.Add();
  }
  if (!active()) foretold_.Clear(&garbage_);
  return ahead.ran ? std::max(ahead.next_at, recorded.num_ops + Spacing(*predicted)) : ahead.next_at;
}

void HeadStart::Settle(const guards::CachedTrace* entry, const RecordedArgs& recorded) {
  if (!active()) return;
  if (!IsOf(entry, recorded)) {
    Undo();
    return;
  }
  std::atomic<int>& in_vain = trace_->head_start.in_vain;
  if (in_vain.load(std::memory_order_relaxed) > 0) in_vain.fetch_sub(1, std::memory_order_relaxed);
  End();
}

void HeadStart::OnCut(const guards::CachedTracePtr& entry, bool waits, const RecordedArgs& recorded) {
  end_ = Clock::now();
  recording_ = end_ - begin_;
  const bool measures = waits && entry != nullptr && recording_ >= kLong && entry->head_start.interruptions.load() == 0;
  waited_for_ = measures ? entry : nullptr;
  if (entry == nullptr || !IsWanted(*entry)) return;
  std::lock_guard<std::mutex> run_lock(entry->body->run_mutex);
  entry->head_start.steady.Note(recorded.storages, recorded.scalars, recorded.offsets);
}

bool HeadStart::IsWanted(const guards::CachedTrace& trace) {
  return trace.head_start.interruptions.load(std::memory_order_relaxed) > 0 || runtime::Active().head_start == runtime::When::kAlways;
}

bool HeadStart::CountsOn(const c10::StorageImpl* storage) {
  if (!active() || !foretold_.Has(storage)) return false;
  std::lock_guard<std::mutex> run_lock(trace_->body->run_mutex);
  trace_->head_start.steady.Distrust(storage);
  return true;
}

bool HeadStart::IsOf(const guards::CachedTrace* trace, const RecordedArgs& recorded) const {
  return trace_.get() == trace && std::equal(symbols_.begin(), symbols_.end(), recorded.symbols.begin(), recorded.symbols.end()) &&
         foretold_.Agrees(recorded);
}

void HeadStart::Undo() {
  runtime::Counters::Get().head_starts_in_vain.Add();
  const int in_vain = trace_->head_start.in_vain.fetch_add(kInVain, std::memory_order_relaxed) + kInVain;
  if (in_vain >= kMostInVain && runtime::LogEnabled(runtime::LogCategory::kPerfHints)) {
    runtime::Log(runtime::LogCategory::kPerfHints,
                 absl::StrCat("trace #", trace_->serial, " often turns out to be another one: its program",
                              " starts when it is complete from here on"));
  }
  {
    std::lock_guard<std::mutex> run_lock(trace_->body->run_mutex);
    trace_->body->program->UndoAhead();
  }
  End();
}

void HeadStart::End() {
  trace_ = nullptr;
  foretold_.Clear(&garbage_);
  counting.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace lazuli::tracer
