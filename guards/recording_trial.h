// Whether recording is worth it where many traces get no program, since they are ever new or too many, or only in small pieces (sequences
// packed by their lengths, trees, random graphs): times stretches of the program with and without recording, by turns, and keeps to what
// was faster for a while.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace lazuli::guards {

// Of the traces of one recorder. Not thread-safe.
class RecordingTrial {
 public:
  using Clock = std::chrono::steady_clock;

  // A trial starts when in so many windows of so many operators in a row recording at least one operator in so many was of doubtful use.
  static constexpr size_t kWindow = 4096, kShare = 8;
  static constexpr int kWindows = 3;
  // Operators of one sample, and of those before it, in which the program gets used to the other way; samples of each way.
  static constexpr size_t kStretch = 4096, kSettles = 1024;
  static constexpr int kSamples = 5;
  // How long a verdict counts at first, and at most: each one that is like the last counts twice as long.
  static constexpr Clock::duration kShortest = std::chrono::seconds(1), kLongest = std::chrono::seconds(16);

  // So many operators came, of which `doubtful` were recorded although they have no program, nor is one being compiled, or in pieces of
  // what no program fits. `now` says the time, if that matters. True when this ended a trial.
  template <class Now>
  bool Note(size_t num_ops, size_t doubtful, const Now& now) {
    ops_ += num_ops;
    doubtful_ += doubtful;
    switch (state_) {
      case State::kWatches:
        Watch();
        return false;
      case State::kTries:
        if (!settled_ && ops_ >= kSettles) BeginSample(now());
        return settled_ && ops_ >= kStretch && AddSample(now());
      case State::kRests:
        if (now() >= until_) aside_ ? Begin() : Go(State::kWatches);
        return false;
    }
    return false;
  }

  // Whether what comes next is best not recorded.
  bool StepsAside() const { return aside_; }

  // Medians of the last trial, per thousand operators.
  int64_t recorded_nanoseconds() const { return Median(samples_[0]); }
  int64_t eager_nanoseconds() const { return Median(samples_[1]); }

 private:
  enum class State : uint8_t { kWatches, kTries, kRests };
  using Samples = std::array<int64_t, kSamples>;

  static int64_t Median(Samples samples) {
    std::nth_element(samples.begin(), samples.begin() + kSamples / 2, samples.end());
    return samples[kSamples / 2];
  }

  void Go(State state) {
    state_ = state;
    ops_ = doubtful_ = 0;
    windows_ = 0;
  }

  void Watch() {
    if (ops_ < kWindow) return;
    windows_ = doubtful_ * kShare >= ops_ ? windows_ + 1 : 0;
    ops_ = doubtful_ = 0;
    if (windows_ == kWindows) Begin();
  }

  void Begin() {
    Go(State::kTries);
    sample_ = 0;
    aside_ = settled_ = false;
  }

  void BeginSample(Clock::time_point now) {
    settled_ = true;
    ops_ = 0;
    begin_ = now;
  }

  bool AddSample(Clock::time_point now) {
    const int64_t nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(now - begin_).count();
    samples_[aside_ ? 1 : 0][static_cast<size_t>(sample_ / 2)] = nanoseconds * 1000 / static_cast<int64_t>(ops_);
    ops_ = 0;
    settled_ = false;
    aside_ = !aside_;
    if (++sample_ < 2 * kSamples) return false;
    const bool eager_is_faster = eager_nanoseconds() < recorded_nanoseconds();
    rest_ = eager_is_faster == was_aside_ ? std::min(2 * rest_, kLongest) : kShortest;
    aside_ = was_aside_ = eager_is_faster;
    Go(State::kRests);
    until_ = now + rest_;
    return true;
  }

  State state_ = State::kWatches;
  bool aside_ = false, was_aside_ = false;
  size_t ops_ = 0, doubtful_ = 0;
  int windows_ = 0;
  int sample_ = 0;  // Recorded and eager ones by turns.
  bool settled_ = false;
  std::array<Samples, 2> samples_{};
  Clock::time_point begin_, until_;
  Clock::duration rest_ = kShortest / 2;
};

}  // namespace lazuli::guards
