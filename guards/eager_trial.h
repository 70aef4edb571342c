// Whether a program is worth running: times a hot one of small operators against its operators run eagerly, once, and remembers which was
// faster.
//
// Where programs wait for their compiles (LAZULI_ASYNC=0), only for those whose results are bit-equal to eager's: what is computed never
// depends on a clock then. Compiled in the background, it does anyway.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace lazuli::guards {

// Of one program, whatever the sizes of the traces that it serves. Thread-safe.
class EagerTrial {
 public:
  enum class Way : uint8_t { kProgram, kEager };

  // Longer traces always run their programs: running one eagerly a few times may take long.
  static constexpr size_t kMaxOps = 1 << 13;
  // So do those that take longer than this for each operator: their time is not that of calls.
  static constexpr int64_t kMaxNanosecondsPerOp = 20'000;
  // Occurrences before the trial starts; how many in a row run the same way in it; how many of each way count.
  static constexpr int kWarmUp = 256;
  static constexpr int kBlock = 8;
  static constexpr int kSamples = 21;
  // The first few of each way will do where the program takes no more than this share of eager's time.
  static constexpr double kClearly = 0.75;

  // Before the first use, with the number of the trace's operators. A trace that is not eligible always runs its program.
  void SetEligible(size_t num_ops) {
    num_ops_.store(static_cast<int64_t>(num_ops), std::memory_order_relaxed);
    state_.store(State::kWarm, std::memory_order_relaxed);
  }

  // How the trace runs this time it occurs. Call once per occurrence.
  Way Choose();

  // Whether eager won.
  bool runs_eagerly() const { return state_.load(std::memory_order_relaxed) == State::kEager; }

  // Whether this occurrence is to be timed.
  bool timing() const { return state_.load(std::memory_order_relaxed) == State::kTiming; }

  // What an occurrence took, in nanoseconds.
  struct Sample {
    static constexpr int64_t kUnknown = -1;
    // From its first operator to its end, when its work was done: where it was cut or, run eagerly, would have been.
    int64_t own = kUnknown;
    // From its first operator to the next trace's, with whatever runs between them.
    int64_t until_next = 0;
  };
  // An occurrence ran in `way`. True when this ended the trial in favour of eager. What is known of all occurrences is compared.
  bool AddSample(Way way, const Sample& sample);

  // What ends occurrences: the cause of the last one's cut.
  void NoteEnd(std::string_view cause);
  bool EndsAt(std::string_view cause);

  // Something else came than the trace that ran eagerly. After a few times of that in not many, its program runs for good.
  void NoteMismatch();
  // It ran eagerly to its end.
  void NoteMatch() {
    if (mismatches_.load(std::memory_order_relaxed) > 0) mismatches_.fetch_sub(1, std::memory_order_relaxed);
  }

  // Medians of the finished trial.
  int64_t program_nanoseconds() const { return program_ns_; }
  int64_t eager_nanoseconds() const { return eager_ns_; }

 private:
  enum class State : uint8_t { kProgram, kWarm, kTiming, kEager };

  std::atomic<State> state_{State::kProgram};
  std::atomic<int> occurrences_{0};
  std::atomic<int> mismatches_{0};  // Each weighs as much as kMismatch matches.
  std::atomic<int64_t> num_ops_{0};
  std::mutex mutex_;  // Of what follows.
  Way last_way_ = Way::kProgram;
  std::string end_;
  std::vector<Sample> samples_[2];  // By way.
  int64_t program_ns_ = 0, eager_ns_ = 0;
};

}  // namespace lazuli::guards
