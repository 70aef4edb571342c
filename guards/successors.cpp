#include "guards/successors.h"

#include <algorithm>

#include "guards/program_cache.h"

namespace lazuli::guards {

void Successors::Note(const CachedTracePtr& next) {
  const auto known = std::find_if(traces_.begin(), traces_.end(), [&](const auto& trace) { return trace.lock() == next; });
  const auto place = known != traces_.end() ? known : std::prev(traces_.end());
  *place = next;
  std::rotate(traces_.begin(), place, std::next(place));
}

template <class Fits>
CachedTracePtr Successors::Choose(const Fits& fits) const {
  CachedTracePtr last;
  for (const auto& known : traces_) {
    CachedTracePtr trace = known.lock();
    if (trace == nullptr || !fits(*trace)) continue;
    if (trace->body->trial.runs_eagerly()) return trace;
    if (last == nullptr) last = std::move(trace);
  }
  return last;
}

CachedTracePtr Successors::Likeliest() const {
  return Choose([](const CachedTrace&) { return true; });
}

CachedTracePtr Successors::StartingWith(int32_t op_id) const {
  return Choose([op_id](const CachedTrace& trace) { return trace.log.ops.front().op_id == op_id; });
}

}  // namespace lazuli::guards
