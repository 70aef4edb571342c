// What the benchmarks share: timing a region by hand, and counters of what Lazuli did meanwhile.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "lazuli/lazuli.h"

namespace lazuli::bench {

// Seconds since it was made.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

// Keeps the seconds of each iteration, and tells their median, which a busy machine disturbs less than the mean.
class Samples {
 public:
  void Add(double seconds) { seconds_.push_back(seconds); }
  double median() const { return quantile(0.5); }
  double min() const { return quantile(0); }
  double quantile(double q) const {
    if (seconds_.empty()) return 0;
    std::vector<double> sorted = seconds_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1))];
  }

 private:
  std::vector<double> seconds_;
};

// Fails a benchmark that did not measure what it says: every trace must have come from the cache, and nothing have run eagerly.
inline void RequireOnlyHits(benchmark::State& state, const Stats& before) {
  const Stats after = stats();
  if (after.programs_compiled != before.programs_compiled) state.SkipWithError("compiled during the measurement");
  if (after.eager_replays != before.eager_replays) state.SkipWithError("ran eagerly during the measurement");
  if (after.cache_hits == before.cache_hits) state.SkipWithError("no cache hit during the measurement");
}

}  // namespace lazuli::bench
