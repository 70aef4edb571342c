// Whether a program is worth running: times a hot, short one against its operators run eagerly, once, and remembers which was faster.
//
// Only for programs whose results are bit-equal to eager's, so that what a program computes never depends on a clock.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace lazuli::guards {

// Of one cached trace. Thread-safe.
class EagerTrial {
 public:
  enum class Way : uint8_t { kProgram, kEager };

  // Traces of more operators than this always win by recording alone.
  static constexpr size_t kMaxOps = 16;
  // Occurrences before the trial starts; how many in a row run the same way in it; how many of each way count.
  static constexpr int kWarmUp = 256;
  static constexpr int kBlock = 8;
  static constexpr int kSamples = 21;

  // Before the first use. A trace that is not eligible always runs its program.
  void SetEligible() { state_.store(State::kWarm, std::memory_order_relaxed); }

  // How the trace runs this time it occurs. Call once per occurrence.
  Way Choose();

  // Whether this occurrence is to be timed.
  bool timing() const { return state_.load(std::memory_order_relaxed) == State::kTiming; }

  // An occurrence that ran in `way` took `nanoseconds`. True when this ended the trial in favour of eager.
  bool AddSample(Way way, int64_t nanoseconds);

  // Something else came than the trace that ran eagerly. After a few times of that, its program runs for good.
  void NoteMismatch();

  // Medians of the finished trial.
  int64_t program_nanoseconds() const { return program_ns_; }
  int64_t eager_nanoseconds() const { return eager_ns_; }

 private:
  enum class State : uint8_t { kProgram, kWarm, kTiming, kEager };

  std::atomic<State> state_{State::kProgram};
  std::atomic<int> occurrences_{0};
  std::atomic<int> mismatches_{0};
  std::mutex mutex_;  // Of what follows.
  Way last_way_ = Way::kProgram;
  std::vector<int64_t> samples_[2];  // By way.
  int64_t program_ns_ = 0, eager_ns_ = 0;
};

}  // namespace lazuli::guards
