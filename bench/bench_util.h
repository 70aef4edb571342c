// What the benchmarks share: timing a region by hand, and counters of what Lazuli did meanwhile.
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <string>

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

// Reports the mean of `total_seconds` over iterations x `ops`, in ns, as the counter `name`.
inline void ReportNsPerOp(benchmark::State& state, const std::string& name, double total_seconds, int64_t ops) {
  state.counters[name] = 1e9 * total_seconds / (static_cast<double>(state.iterations()) * static_cast<double>(ops));
}

// Fails a benchmark that did not measure what it says: every trace must have come from the cache, and nothing have run eagerly.
inline void RequireOnlyHits(benchmark::State& state, const Stats& before) {
  const Stats after = stats();
  if (after.programs_compiled != before.programs_compiled) state.SkipWithError("compiled during the measurement");
  if (after.eager_replays != before.eager_replays) state.SkipWithError("ran eagerly during the measurement");
  if (after.cache_hits == before.cache_hits) state.SkipWithError("no cache hit during the measurement");
}

}  // namespace lazuli::bench
