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

void Successors::AppendTo(std::vector<CachedTracePtr>* traces) const {
  for (const auto& known : traces_) {
    if (CachedTracePtr trace = known.lock()) traces->push_back(std::move(trace));
  }
}

std::vector<CachedTracePtr> ProgramCache::AllSuccessors(const CachedTracePtr& previous, std::string_view cause) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<CachedTracePtr> all;
  if (previous != nullptr) {
    previous->successors.AppendTo(&all);
    previous->body->successors.AppendTo(&all);
  } else if (const auto it = after_cause_.find(cause); it != after_cause_.end()) {
    it->second.AppendTo(&all);
  }
  return all;
}

void ProgramCache::NoteSuccessor(const CachedTracePtr& previous, std::string_view cause, const CachedTracePtr& next) {
  constexpr size_t kMostCauses = 1 << 10;
  std::lock_guard<std::mutex> lock(mutex_);
  if (previous != nullptr) {
    previous->successors.Note(next);
    previous->body->successors.Note(next);
    return;
  }
  if (after_cause_.size() >= kMostCauses) after_cause_.clear();
  after_cause_[std::string(cause)].Note(next);
}

CachedTracePtr ProgramCache::FindSuccessor(const CachedTracePtr& previous, std::string_view cause,
                                           absl::FunctionRef<CachedTracePtr(const Successors&)> choose) {
  std::lock_guard<std::mutex> lock(mutex_);
  CachedTracePtr next;
  if (previous != nullptr) {
    next = choose(previous->successors);
    if (next == nullptr) next = choose(previous->body->successors);
  } else if (const auto it = after_cause_.find(cause); it != after_cause_.end()) {
    next = choose(it->second);
  }
  if (next != nullptr) next->last_use = ++clock_;
  return next;
}

CachedTracePtr ProgramCache::Successor(const CachedTracePtr& previous, std::string_view cause) {
  return FindSuccessor(previous, cause, [](const Successors& successors) { return successors.Likeliest(); });
}

CachedTracePtr ProgramCache::SuccessorStartingWith(const CachedTracePtr& previous, std::string_view cause, int32_t op_id) {
  return FindSuccessor(previous, cause, [op_id](const Successors& successors) { return successors.StartingWith(op_id); });
}

}  // namespace lazuli::guards
