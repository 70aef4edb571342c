#include "tracer/overlap_cutter.h"

namespace lazuli::tracer {

size_t OverlapCutter::OnBegin(const guards::CachedTrace* predicted) {
  begin_ = std::chrono::steady_clock::now();
  return predicted == nullptr ? 0 : predicted->ends_after.load(std::memory_order_relaxed);
}

void OverlapCutter::OnCut(guards::CachedTrace* entry, bool early, bool waits, bool on_gpu) {
  if (early) {
    ++depth_;
    if (entry != nullptr) entry->ends_after.store(entry->log.ops.size(), std::memory_order_relaxed);
    return;
  }
  const bool may_be_early = waits && on_gpu && depth_ < kDepth && entry != nullptr && entry->body->ready() && entry->body->compiled;
  depth_ = 0;
  if (!may_be_early) return;
  if (std::chrono::steady_clock::now() - begin_ < kLong) {
    entry->slow_recordings.store(0, std::memory_order_relaxed);
  } else if (entry->slow_recordings.fetch_add(1, std::memory_order_relaxed) + 1 == kSlowRuns) {
    entry->ends_after.store(static_cast<size_t>(entry->body->program->early_end()), std::memory_order_relaxed);
  }
}

}  // namespace lazuli::tracer
