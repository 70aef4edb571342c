#include "tracer/overlap_cutter.h"

#include <utility>

namespace lazuli::tracer {

size_t OverlapCutter::OnBegin(const guards::CachedTrace* predicted) {
  begin_ = Clock::now();
  if (const guards::CachedTracePtr entry = std::exchange(waited_for_, nullptr); entry != nullptr) {
    if (begin_ - end_ < kLong) {
      entry->slow_rounds.store(0, std::memory_order_relaxed);
    } else if (entry->slow_rounds.fetch_add(1, std::memory_order_relaxed) + 1 == kSlowRounds) {
      entry->ends_after.store(static_cast<size_t>(entry->body->program->early_end()), std::memory_order_relaxed);
    }
  }
  return predicted == nullptr ? 0 : predicted->ends_after.load(std::memory_order_relaxed);
}

void OverlapCutter::OnCut(const guards::CachedTracePtr& entry, bool early, bool waits, bool on_gpu) {
  end_ = Clock::now();
  waited_for_ = nullptr;
  if (early) {
    ++depth_;
    if (entry != nullptr) entry->ends_after.store(entry->log.ops.size(), std::memory_order_relaxed);
    return;
  }
  const bool may_end_early = waits && on_gpu && depth_ < kDepth && entry != nullptr && entry->body->ready() && entry->body->compiled;
  depth_ = 0;
  if (may_end_early && end_ - begin_ >= kLong) waited_for_ = entry;
}

}  // namespace lazuli::tracer
