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

// The first step is not to wait for as many operators as the others.
constexpr size_t kFirstPart = 4;

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
  if (predicted == nullptr || !predicted->body->ready() || !predicted->body->compiled) return kNever;
  const guards::HeadStartHistory& history = predicted->head_start;
  const bool wanted = history.interruptions.load(std::memory_order_relaxed) > 0 || runtime::Active().head_start == runtime::When::kAlways;
  if (!wanted || history.in_vain.load(std::memory_order_relaxed) >= kMostInVain) return kNever;
  return std::max(predicted->body->program->AheadAt(), Spacing(*predicted) / kFirstPart);
}

size_t HeadStart::Advance(const guards::CachedTracePtr& predicted, const runtime::RunArgs& args, size_t num_ops) {
  if (active() && !IsOf(predicted.get(), args.symbols)) {
    Undo();
    return kNever;
  }
  guards::CompiledProgram& body = *predicted->body;
  std::lock_guard<std::mutex> run_lock(body.run_mutex);
  if (!body.program->RunAhead(args, num_ops)) return kNever;
  if (!active()) {
    trace_ = predicted;
    symbols_.assign(args.symbols.begin(), args.symbols.end());
    runtime::Counters::Get().head_starts.Add();
  }
  return std::max(body.program->AheadAt(), num_ops + Spacing(*predicted));
}

void HeadStart::Settle(const guards::CachedTrace* entry, absl::Span<const int64_t> symbols) {
  if (!active()) return;
  if (!IsOf(entry, symbols)) {
    Undo();
    return;
  }
  std::atomic<int>& in_vain = trace_->head_start.in_vain;
  if (in_vain.load(std::memory_order_relaxed) > 0) in_vain.fetch_sub(1, std::memory_order_relaxed);
  trace_ = nullptr;
}

void HeadStart::OnCut(const guards::CachedTracePtr& entry, bool waits) {
  end_ = Clock::now();
  recording_ = end_ - begin_;
  const bool measures = waits && entry != nullptr && recording_ >= kLong && entry->head_start.interruptions.load() == 0;
  waited_for_ = measures ? entry : nullptr;
}

bool HeadStart::IsOf(const guards::CachedTrace* trace, absl::Span<const int64_t> symbols) const {
  return trace_.get() == trace && std::equal(symbols_.begin(), symbols_.end(), symbols.begin(), symbols.end());
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
  trace_ = nullptr;
}

}  // namespace lazuli::tracer
