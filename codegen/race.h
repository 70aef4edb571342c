// Which of two ways to do the same is the faster, measured.
#pragma once

#include <functional>

namespace lazuli::codegen {

struct RaceResult {
  double ours = 0, theirs = 0;  // Seconds, medians.
  bool faster = false;          // Whether ours is clearly the faster: by several per cent, and nearly every time.
};

constexpr int kMinTurns = 9;

// Runs both by turns, at least kMinTurns times each and then while `has_time` says so; each returns the seconds that it took.
RaceResult Race(const std::function<double()>& ours, const std::function<double()>& theirs, const std::function<bool()>& has_time);

}  // namespace lazuli::codegen
