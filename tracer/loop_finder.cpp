#include "tracer/loop_finder.h"

#include <algorithm>

namespace lazuli::tracer {
namespace {

constexpr size_t kMaxRemembered = 1 << 16;  // Operators; twice the longest round that is found.
constexpr size_t kEnough = 2048;            // Operators that repeat themselves: more than the layers of a model do.
constexpr size_t kMaxLoops = 32;            // A program has few that matter.
constexpr size_t kMinOps = 32;              // Of a piece: several rounds of a short loop are one.
constexpr size_t kMinEnd = 16;              // Operators that tell the end of a round from what other loops do.
constexpr size_t kStart = 8;                // Operators that tell where a trace starts.
constexpr size_t kMaxNew = 4;               // Traces that are compared with the next.
constexpr size_t kMinEnding = 32;           // Operators at the ends of traces that are worth a piece of their own.
constexpr int64_t kManyNew = 16;            // Traces that were new, one after the other.

struct Rounds {
  size_t end;  // Of the last one.
  size_t period;
};

// How many operators `a` from `i` and `b` from `j` have in common.
size_t CommonFrom(const std::vector<int32_t>& a, size_t i, const std::vector<int32_t>& b, size_t j) {
  const size_t most = std::min(a.size() - i, b.size() - j);
  const auto from = a.begin() + static_cast<std::ptrdiff_t>(i);
  return static_cast<size_t>(
      std::mismatch(from, from + static_cast<std::ptrdiff_t>(most), b.begin() + static_cast<std::ptrdiff_t>(j)).first - from);
}

// The loop that `more` goes round once more, at least, before operator `at`, than another trace does, which has operator `i` of `less`
// there. A period of 0: there is none.
Rounds MoreRounds(const std::vector<int32_t>& more, size_t at, const std::vector<int32_t>& less, size_t i) {
  for (size_t period = 1; period <= std::min(at, more.size() - at); ++period) {
    // What comes is what came a period before.
    const size_t again = CommonFrom(more, at - period, more, at);
    if (again < period) continue;
    const size_t end = at + again / period * period;
    const size_t rest = std::max(more.size() - end, less.size() - i);
    if (CommonFrom(more, end, less, i) >= std::min(rest, kMinEnd)) return {end, period};
  }
  return {0, 0};
}

// The loops of `trace` that `other` goes round more or less often, if the two are the same but for that: those of two rounds or more.
std::vector<Rounds> LoopsThatDiffer(const std::vector<int32_t>& trace, const std::vector<int32_t>& other) {
  std::vector<Rounds> loops;
  for (size_t at = 0, i = 0;;) {
    const size_t same = CommonFrom(trace, at, other, i);
    at += same;
    i += same;
    if (at == trace.size() && i == other.size()) return loops;
    if (const Rounds more = MoreRounds(trace, at, other, i); more.period != 0) {
      loops.push_back(more);
      at = more.end;
    } else if (const Rounds less = MoreRounds(other, i, trace, at); less.period != 0) {
      const size_t period = less.period;
      if (at >= 2 * period && CommonFrom(trace, at - 2 * period, trace, at - period) >= period) loops.push_back({at, period});
      i = less.end;
    } else {
      return {};
    }
  }
}

// How many operators `a` and `b` have in common at their ends.
size_t CommonEnding(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return static_cast<size_t>(
      std::mismatch(a.rbegin(), a.rbegin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.rbegin()).first - a.rbegin());
}

bool Has(const std::vector<int32_t>& ops, int32_t op) { return std::find(ops.begin(), ops.end(), op) != ops.end(); }

// How often `part` occurs in `ops`.
size_t Occurrences(const std::vector<int32_t>& part, const std::vector<int32_t>& ops) {
  size_t count = 0;
  for (auto at = ops.begin(); (at = std::search(at, ops.end(), part.begin(), part.end())) != ops.end(); ++at) ++count;
  return count;
}

}  // namespace

bool LoopFinder::AtEnd(bool in_blocks) const {
  if (ops_.size() - begin_ < kMinOps && !in_blocks) return false;
  return std::any_of(loops_.begin(), loops_.end(), [&](const Loop& loop) { return EndsAt(loop, ops_.size()) && IsOf(loop); });
}

bool LoopFinder::BeginsEnding(int32_t op_id) const {
  if (in_ending_ || ops_.size() == begin_) return false;
  return std::any_of(endings_.begin(), endings_.end(), [&](const Ending& ending) {
    const Ops& begin = ending.begin;
    return begin.front() == op_id && ops_.size() >= begin.size() - 1 && std::equal(begin.begin() + 1, begin.end(), ops_.rbegin()) &&
           (goes_on_ || Has(ending.starts, ops_[begin_]));
  });
}

bool LoopFinder::EndsAt(const Loop& loop, size_t position) const {
  if (position < loop.end.size() || ops_[position - 1] != loop.end.front()) return false;
  return std::equal(loop.end.begin(), loop.end.end(), ops_.rbegin() + static_cast<std::ptrdiff_t>(ops_.size() - position));
}

void LoopFinder::OnCut(Cut cut, size_t max_ops) {
  NoteStop(cut, max_ops);
  size_t longest = 0;
  for (const Loop& loop : loops_) longest = std::max(longest, loop.end.size());
  for (const Ending& ending : endings_) longest = std::max(longest, ending.begin.size());
  // A program whose traces never get full needs no help, but where a round may end that began before.
  const size_t most = !seen_full_trace_ ? longest : ops_.size() > kMaxRemembered ? kMaxRemembered / 2 : ops_.size();
  const size_t kept = std::min(most, ops_.size());
  const auto forgotten = static_cast<std::ptrdiff_t>(ops_.size() - kept);
  ops_.erase(ops_.begin(), ops_.begin() + forgotten);
  live_.erase(live_.begin(), live_.begin() + forgotten);
  begin_ = ops_.size();
  goes_on_ = cut == Cut::kPiece || cut == Cut::kBeforeEnding;
  in_ending_ = cut == Cut::kBeforeEnding || (cut == Cut::kPiece && in_ending_);
}

void LoopFinder::NoteStop(Cut cut, size_t max_ops) {
  since_stop_ += ops_.size() - begin_;
  full_since_stop_ |= cut == Cut::kFull;
  pieces_since_stop_ += cut == Cut::kPiece ? 1 : 0;
  if (cut != Cut::kStop) return;
  const bool soon = since_stop_ < max_ops && !full_since_stop_;
  if (pieces_since_stop_ >= kSeveral) soon_stops_ = soon ? soon_stops_ + 1 : 0;
  since_stop_ = 0;
  pieces_since_stop_ = 0;
  full_since_stop_ = false;
  if (!seen_full_trace_ || soon_stops_ < patience_) return;
  loops_.erase(std::remove_if(loops_.begin(), loops_.end(), [](const Loop& loop) { return loop.start.empty(); }), loops_.end());
  seen_full_trace_ = false;
  soon_stops_ = 0;
  patience_ *= 2;
}

bool LoopFinder::IsOf(const Loop& loop) const {
  const size_t size = loop.start.size();
  return goes_on_ || (ops_.size() - begin_ >= size && std::equal(loop.start.begin(), loop.start.end(), TraceBegin()));
}

void LoopFinder::OnFullTrace(size_t max_ops) {
  if (since_stop_ + (ops_.size() - begin_) < max_ops) return;
  seen_full_trace_ = true;
  soon_stops_ = 0;
  const size_t period = Period();
  if (period == 0) return;
  if (loops_.size() >= kMaxLoops) loops_.erase(loops_.begin());
  AddLoop(ops_.size(), period, {});
  ops_.clear();
  live_.clear();
  begin_ = 0;
}

LoopFinder::Found LoopFinder::OnNewTrace(size_t size, bool is_one_of_many, int64_t new_in_a_row) {
  // It was full, and its operators are forgotten.
  if (ops_.size() - begin_ != size || loops_.size() >= kMaxLoops) return Found::kNothing;
  const Ops trace(TraceBegin(), ops_.cend());
  LearnStart(trace);
  const Ops start(trace.begin(), trace.begin() + static_cast<std::ptrdiff_t>(std::min(trace.size(), kStart)));
  for (size_t i = 0; is_one_of_many && i < new_.size(); ++i) {
    const size_t known = loops_.size();
    for (const auto& [end, period] : LoopsThatDiffer(trace, new_[i])) {
      if (!Knows(begin_ + end, period)) AddLoop(begin_ + end, period, start);
    }
    if (loops_.size() == known) continue;
    new_.clear();
    return Found::kRounds;
  }
  if ((is_one_of_many || new_in_a_row >= kManyNew) && new_.size() == kMaxNew && AddEnding(trace)) {
    new_.clear();
    return Found::kEnding;
  }
  if (new_.size() == kMaxNew) new_.erase(new_.begin());
  new_.push_back(trace);
  return Found::kNothing;
}

bool LoopFinder::AddEnding(const Ops& trace) {
  size_t alike = trace.size();
  for (const Ops& other : new_) alike = std::min(alike, CommonEnding(trace, other));
  if (alike < kMinEnding || alike == trace.size() || endings_.size() >= kMaxLoops) return false;
  const auto begin = trace.end() - static_cast<std::ptrdiff_t>(alike);
  const auto is_one = [&](const Ops& part) {
    return Occurrences(part, trace) == 1 &&
           std::all_of(new_.begin(), new_.end(), [&](const Ops& other) { return Occurrences(part, other) == 1; });
  };
  // The first operator that is alike and, with those before it perhaps, tells where it is.
  for (size_t i = 0; i < kMinEnd; ++i) {
    const auto end = begin + static_cast<std::ptrdiff_t>(i) + 1;
    for (size_t size = 1; size <= i + 1; ++size) {
      const Ops part(end - static_cast<std::ptrdiff_t>(size), end);
      if (!is_one(part)) continue;
      Ending ending;
      ending.begin.assign(part.rbegin(), part.rend());
      if (std::any_of(endings_.begin(), endings_.end(), [&](const Ending& known) { return known.begin == ending.begin; })) return false;
      ending.ops.assign(end - 1, trace.end());
      endings_.push_back(std::move(ending));
      LearnStart(trace);
      for (const Ops& other : new_) LearnStart(other);
      return true;
    }
  }
  return false;
}

void LoopFinder::LearnStart(const Ops& trace) {
  for (Ending& ending : endings_) {
    const bool ends_so = trace.size() > ending.ops.size() && CommonEnding(trace, ending.ops) == ending.ops.size();
    if (ends_so && !Has(ending.starts, trace.front())) ending.starts.push_back(trace.front());
  }
}

bool LoopFinder::Knows(size_t end, size_t period) const {
  return std::any_of(loops_.begin(), loops_.end(), [&](const Loop& loop) {
    for (size_t position = end - period + 1; position <= end; ++position) {
      if (EndsAt(loop, position) && IsOf(loop)) return true;
    }
    return false;
  });
}

void LoopFinder::AddLoop(size_t end, size_t period, Ops start) {
  Loop loop;
  loop.start = std::move(start);
  loop.end = EndOfRound(end, period);
  loops_.push_back(std::move(loop));
}

// Borders of the reversed sequence, by Knuth, Morris and Pratt's failure function: a prefix of length n whose longest border is b has the
// period n - b.
size_t LoopFinder::Period() const {
  const size_t n = ops_.size();
  const auto at = [&](size_t i) { return ops_[n - 1 - i]; };
  const size_t enough = std::min(n / 2, kEnough);
  std::vector<size_t> border(n, 0);
  for (size_t i = 1, b = 0; i < n; ++i) {
    while (b > 0 && at(i) != at(b)) b = border[b - 1];
    if (at(i) == at(b)) ++b;
    border[i] = b;
    const size_t length = i + 1, period = length - b;
    if (length >= enough && 2 * period <= length) return period;
  }
  return 0;
}

LoopFinder::Ops LoopFinder::EndOfRound(size_t end, size_t period) const {
  const auto after = live_.begin() + static_cast<std::ptrdiff_t>(end);
  const auto least = std::min_element(after - static_cast<std::ptrdiff_t>(period), after);
  const auto start = static_cast<size_t>(least - live_.begin());  // Of a round.
  std::vector<size_t> alike(period);                              // Starts of rounds that `found` does not tell from this one.
  for (size_t i = 0; i < period; ++i) alike[i] = end - period + i;
  Ops found;
  while (found.size() < period && (found.size() < kMinEnd || alike.size() > 1)) {
    const auto before = [&](size_t i) { return ops_[i - 1 - found.size()]; };  // Two rounds are remembered at least.
    const int32_t op = before(start);
    alike.erase(std::remove_if(alike.begin(), alike.end(), [&](size_t i) { return before(i) != op; }), alike.end());
    found.push_back(op);
  }
  return found;
}

}  // namespace lazuli::tracer
