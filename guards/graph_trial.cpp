#include "guards/graph_trial.h"

#include <algorithm>

#include "runtime/median.h"

namespace lazuli::guards {

GraphTrial::Choice GraphTrial::OnBegin(int64_t now, Way likelier) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (decided_) return {chosen_};
  const int place = occurrences_++ - kWarmUp;
  if (place < 0) return {likelier};
  if (place > 0 && (place - 1) % kBlock >= kSkipped) {
    samples_[static_cast<int>(WayOf(place - 1))].push_back(now - last_begin_);
  }
  last_begin_ = now;
  const bool both_had_turns = place > 0 && place % (2 * kBlock) == 0;
  if (place < 2 * kTurns * kBlock && !(both_had_turns && IsClear())) return {WayOf(place)};
  decided_ = true;
  for (int way = 0; way < 2; ++way) medians_[way] = runtime::Median(samples_[way]);
  if (static_cast<double>(medians_[0]) > kMargin * static_cast<double>(medians_[1])) chosen_ = Way::kAhead;
  return {chosen_, /*decided_now=*/true};
}

bool GraphTrial::IsClear() const {
  const auto graph = std::minmax_element(samples_[0].begin(), samples_[0].end());
  const auto ahead = std::minmax_element(samples_[1].begin(), samples_[1].end());
  const auto is_above = [](int64_t a, int64_t b) { return static_cast<double>(a) > kClear * static_cast<double>(b); };
  return is_above(*graph.first, *ahead.second) || is_above(*ahead.first, *graph.second);
}

}  // namespace lazuli::guards
