#include "tracer/overlap_cutter.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

namespace lazuli::tracer {
namespace {

// After which twelfths of its work a trace is cut, the most parts first.
const std::vector<std::vector<size_t>>& Cuts() {
  static const auto& cuts = *new std::vector<std::vector<size_t>>{{1, 3, 5, 7, 9, 11}, {2, 5, 9}, {3, 8}, {5}};
  return cuts;
}

// The numbers of operators of `entry`'s first parts, all but the last, the first of them at the end. A place that is not good is left out.
std::vector<size_t> FirstParts(const guards::CachedTrace& entry, int parts) {
  const auto cuts = std::find_if(Cuts().begin(), Cuts().end(), [&](const auto& c) { return c.size() + 1 == static_cast<size_t>(parts); });
  const runtime::EarlyEnds ends = entry.body->program->early_ends();
  std::vector<size_t> sizes;
  size_t last = 0;
  for (const size_t twelfth : *cuts) {
    const auto end = static_cast<size_t>(ends[twelfth - 1]);
    if (end > last) sizes.push_back(end - std::exchange(last, end));
  }
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

// The same for what is predicted, be it whole or the first part. Empty: it ends anywhere.
std::vector<size_t> FirstPartsOf(const guards::CachedTrace& predicted) {
  if (const auto parts = std::atomic_load(&predicted.parts)) return *parts;
  const int parts = predicted.overlap_parts.load(std::memory_order_relaxed);
  return parts == 1 ? std::vector<size_t>() : FirstParts(predicted, parts);
}

}  // namespace

int OverlapCutter::PartsOf(const guards::CachedTrace& entry, Clock::duration recording, Clock::duration waiting) {
  const auto most =
      std::min<int64_t>(std::min(recording, waiting) / kShortestPart, static_cast<int64_t>(entry.log.ops.size()) / kFewestOps);
  for (const std::vector<size_t>& cuts : Cuts()) {
    if (static_cast<int64_t>(cuts.size()) + 1 <= most) return static_cast<int>(cuts.size()) + 1;
  }
  return 1;
}

size_t OverlapCutter::OnBegin(const guards::CachedTrace* predicted) {
  begin_ = Clock::now();
  if (const guards::CachedTracePtr entry = std::exchange(waited_for_, nullptr); entry != nullptr) {
    if (begin_ - end_ < kLong) {
      entry->slow_rounds.store(0, std::memory_order_relaxed);
    } else if (entry->slow_rounds.fetch_add(1, std::memory_order_relaxed) + 1 == kSlowRounds) {
      entry->overlap_parts.store(PartsOf(*entry, recording_, begin_ - end_), std::memory_order_relaxed);
    }
  }
  if (!after_early_end_) {
    parts_.clear();
    if (predicted != nullptr) parts_ = FirstPartsOf(*predicted);
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
