#include "tracer/overlap_cutter.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

namespace lazuli::tracer {
namespace {

// After which 24ths of its work a trace is cut, the most parts first; the last is what is not cut.
const std::vector<std::vector<size_t>>& Schedules() {
  static const auto& schedules = *new std::vector<std::vector<size_t>>{
      {1, 2, 3, 5, 7, 9, 12, 16, 20, 22, 23}, {1, 3, 6, 11, 16, 20, 23}, {2, 6, 10, 14, 18, 22}, {4, 10, 18}, {6, 16}, {10}, {}};
  return schedules;
}

// The numbers of operators of `entry`'s first parts, all but the last, the first of them at the end. A place that is not good is left out.
std::vector<size_t> FirstParts(const guards::CachedTrace& entry, size_t parts) {
  const auto schedule = std::find_if(Schedules().begin(), Schedules().end(), [&](const auto& cuts) { return cuts.size() + 1 <= parts; });
  const runtime::EarlyEnds ends = entry.body->program->early_ends();
  std::vector<size_t> sizes;
  size_t last = 0;
  for (const size_t cut : *schedule) {
    const auto end = static_cast<size_t>(ends[cut - 1]);
    if (end > last) sizes.push_back(end - std::exchange(last, end));
  }
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

// The same for what is predicted, be it whole or the first part. Empty: it ends anywhere.
std::vector<size_t> PartsOf(const guards::CachedTrace& predicted) {
  if (const auto parts = std::atomic_load(&predicted.parts)) return *parts;
  const int most = predicted.most_parts.load(std::memory_order_relaxed);
  return most == 1 ? std::vector<size_t>() : FirstParts(predicted, static_cast<size_t>(most));
}

}  // namespace

int OverlapCutter::MostParts(const guards::CachedTrace& entry, Clock::duration recording, Clock::duration waiting) {
  const auto by_time = static_cast<int64_t>(std::min(recording, waiting) / kShortestPart);
  return static_cast<int>(std::clamp<int64_t>(static_cast<int64_t>(entry.log.ops.size()) / kFewestOps, 1, std::max<int64_t>(by_time, 1)));
}

size_t OverlapCutter::OnBegin(const guards::CachedTrace* predicted) {
  begin_ = Clock::now();
  if (const guards::CachedTracePtr entry = std::exchange(waited_for_, nullptr); entry != nullptr) {
    if (begin_ - end_ < kLong) {
      entry->slow_rounds.store(0, std::memory_order_relaxed);
    } else if (entry->slow_rounds.fetch_add(1, std::memory_order_relaxed) + 1 == kSlowRounds) {
      entry->most_parts.store(MostParts(*entry, recording_, begin_ - end_), std::memory_order_relaxed);
    }
  }
  if (!after_early_end_) {
    parts_.clear();
    if (predicted != nullptr) parts_ = PartsOf(*predicted);
  }
  return parts_.empty() ? 0 : parts_.back();
}

void OverlapCutter::OnCut(const guards::CachedTracePtr& entry, bool early, bool waits, bool on_gpu) {
  end_ = Clock::now();
  waited_for_ = nullptr;
  const bool is_part = std::exchange(after_early_end_, early);
  if (early) {
    // Which is predicted the next time. It alone tells the others: where a model's layers are alike, so are parts.
    if (!is_part && entry != nullptr) std::atomic_store(&entry->parts, std::make_shared<const std::vector<size_t>>(parts_));
    if (!parts_.empty()) parts_.pop_back();
    return;
  }
  recording_ = end_ - begin_;
  const bool may_end_early = waits && on_gpu && !is_part && entry != nullptr && entry->body->ready() && entry->body->compiled;
  if (may_end_early && recording_ >= kLong) waited_for_ = entry;
}

}  // namespace lazuli::tracer
