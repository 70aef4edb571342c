#include "tracer/loop_finder.h"

#include <algorithm>

namespace lazuli::tracer {
namespace {

constexpr size_t kMaxRemembered = 1 << 16;  // Operators; twice the longest round that is found.
constexpr size_t kEnough = 2048;            // Operators that repeat themselves: more than the layers of a model do.
constexpr size_t kMaxLoops = 4;             // A program has few that matter; the oldest is forgotten.
constexpr size_t kMinOps = 32;              // Of a trace: several rounds of a short loop are one.
constexpr size_t kMinEnd = 16;              // Operators that tell the end of a round from what other loops do.

}  // namespace

bool LoopFinder::AtEnd() {
  bool ends = false;
  for (Loop& loop : loops_) {
    if (ops_.back() != loop.end.front() || ops_.size() < loop.end.size() || !std::equal(loop.end.begin(), loop.end.end(), ops_.rbegin())) {
      continue;
    }
    ends |= ++loop.passed >= loop.rounds;
  }
  return ends;
}

void LoopFinder::OnCut() {
  for (Loop& loop : loops_) loop.passed = 0;
  // A program whose traces never get full needs no help.
  const size_t kept = !seen_full_trace_ ? 0 : ops_.size() > kMaxRemembered ? kMaxRemembered / 2 : ops_.size();
  const auto forgotten = static_cast<std::ptrdiff_t>(ops_.size() - kept);
  ops_.erase(ops_.begin(), ops_.begin() + forgotten);
  live_.erase(live_.begin(), live_.begin() + forgotten);
}

void LoopFinder::OnFullTrace() {
  seen_full_trace_ = true;
  const size_t period = Period();
  if (period == 0) return;
  Loop loop;
  loop.end = EndOfRound(period);
  loop.rounds = (kMinOps + period - 1) / period;
  if (loops_.size() == kMaxLoops) loops_.erase(loops_.begin());
  loops_.push_back(std::move(loop));
  ops_.clear();
  live_.clear();
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

std::vector<int32_t> LoopFinder::EndOfRound(size_t period) const {
  const auto last_round = live_.end() - static_cast<std::ptrdiff_t>(period);
  const auto start = static_cast<size_t>(std::min_element(last_round, live_.end()) - live_.begin());  // Of a round.
  std::vector<size_t> alike(period);  // Starts of rounds that `end` does not tell from this one.
  for (size_t i = 0; i < period; ++i) alike[i] = ops_.size() - period + i;
  std::vector<int32_t> end;
  while (end.size() < period && (end.size() < kMinEnd || alike.size() > 1)) {
    const auto before = [&](size_t i) { return ops_[i - 1 - end.size()]; };  // Two rounds are remembered at least.
    const int32_t op = before(start);
    alike.erase(std::remove_if(alike.begin(), alike.end(), [&](size_t i) { return before(i) != op; }), alike.end());
    end.push_back(op);
  }
  return end;
}

}  // namespace lazuli::tracer
