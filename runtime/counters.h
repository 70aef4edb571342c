// Process-wide counters: what lazuli::stats() reports.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "lazuli/stats.h"

namespace lazuli::runtime {

// The integer members of lazuli::Stats, in its order.
#define LAZULI_COUNTERS(X)  \
  X(ops_recorded)           \
  X(views_recorded)         \
  X(traces)                 \
  X(predicted_hits)         \
  X(cache_hits)             \
  X(cache_misses)           \
  X(programs_compiled)      \
  X(dynamic_programs)       \
  X(specialized_programs)   \
  X(recompiles)             \
  X(recompile_limit_hits)   \
  X(compile_failures)       \
  X(eager_replays)          \
  X(background_replays)     \
  X(stance_replays)         \
  X(compile_waits)          \
  X(kernels_compiled)       \
  X(kernel_cache_hits)      \
  X(kernels_replanned)      \
  X(disk_cache_hits)        \
  X(disk_cache_misses)      \
  X(disk_cache_writes)      \
  X(disk_cache_errors)      \
  X(kernels_tuned)          \
  X(schedules_timed)        \
  X(cublaslt_products)      \
  X(products_tuned)         \
  X(algorithms_timed)       \
  X(fused_attentions)       \
  X(unfused_attentions)     \
  X(flash_attentions)       \
  X(kernel_launches)        \
  X(aten_calls)             \
  X(cudagraph_captures)     \
  X(cudagraph_launches)     \
  X(cudagraph_failures)     \
  X(cudagraphs_dropped)     \
  X(head_starts)            \
  X(head_starts_in_vain)    \
  X(weights_packed)         \
  X(packed_weight_calls)    \
  X(observations)           \
  X(programs_stepped_aside) \
  X(ops_stepped_aside)      \
  X(cpu_scalar_ops)         \
  X(verify_runs)            \
  X(verify_mismatches)

// A number that any thread may add to; relaxed, so it orders nothing else.
class Counter {
 public:
  void Add(int64_t amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }
  void Reset() { value_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

// Thread-safe. Adding to a number never blocks; counting by name takes a lock.
class Counters {
 public:
  // Usable at any time, static initialisation and exit included.
  static Counters& Get();

#define LAZULI_DECLARE_COUNTER(name) Counter name;
  LAZULI_COUNTERS(LAZULI_DECLARE_COUNTER)
#undef LAZULI_DECLARE_COUNTER
  Counter packed_weight_bytes;  // What there is now: never reset.
  Counter compile_nanoseconds;
  Counter compile_wait_nanoseconds;

  // `op` was cut and run eagerly ("aten::nonzero"), for a reason that belongs to it.
  void CountEagerFallback(std::string_view op, int64_t amount = 1, std::string_view why = "cannot be recorded");
  // The number of runs of `op` at once, since it touched nothing that was pending. Valid for good.
  Counter& EagerUncut(std::string_view op);
  // A trace was cut for `cause` ("sync").
  void CountCut(std::string_view cause, int64_t amount = 1);

  // Each number is read on its own: under concurrent work the members may be a moment apart.
  Stats Snapshot() const;
  void Reset();

 private:
  using NameCounts = std::map<std::string, Counter, std::less<>>;
  Counter& ByName(NameCounts* counts, std::string_view name);
  static void CopyNames(const NameCounts& counts, std::map<std::string, int64_t>* values);
  static void ResetNames(NameCounts* counts);

  mutable std::mutex mutex_;
  NameCounts eager_fallbacks_;
  NameCounts eager_uncut_;
  NameCounts cuts_;
};

// Adds the time from here to the end of the scope to compile_seconds.
class CompileTimer {
 public:
  CompileTimer() : start_(std::chrono::steady_clock::now()) {}
  ~CompileTimer() {
    Counters::Get().compile_nanoseconds.Add(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start_).count());
  }
  CompileTimer(const CompileTimer&) = delete;
  CompileTimer& operator=(const CompileTimer&) = delete;

 private:
  std::chrono::steady_clock::time_point start_;
};

}  // namespace lazuli::runtime
