#include "guards/eager_trial.h"

#include <algorithm>
#include <utility>

#include "runtime/median.h"

namespace lazuli::guards {
namespace {

// A program has to be slower than eager by this much: less is noise, and recording may win elsewhere.
constexpr double kMargin = 1.02;

constexpr int kMaxTrial = 16 * EagerTrial::kSamples;
constexpr int kMismatch = 8;
constexpr int kMaxMismatches = 3 * kMismatch;
// So many samples of the program tell whether its time is that of calls.
constexpr size_t kFirstSamples = 5;

using Sample = EagerTrial::Sample;

bool IsEndKnown(const std::vector<Sample>& samples) {
  return std::all_of(samples.begin(), samples.end(), [](const Sample& sample) { return sample.own != Sample::kUnknown; });
}

int64_t MedianOf(const std::vector<Sample>& samples, bool own) {
  std::vector<int64_t> times;
  for (const Sample& sample : samples) times.push_back(own ? sample.own : sample.until_next);
  return runtime::Median(times);
}

}  // namespace

EagerTrial::Way EagerTrial::Choose() {
  switch (state_.load(std::memory_order_relaxed)) {
    case State::kProgram:
      return Way::kProgram;
    case State::kEager:
      return Way::kEager;
    case State::kWarm:
      if (occurrences_.fetch_add(1, std::memory_order_relaxed) + 1 == kWarmUp) state_.store(State::kTiming, std::memory_order_relaxed);
      return Way::kProgram;
    case State::kTiming: {
      const int occurrence = occurrences_.fetch_add(1, std::memory_order_relaxed) - kWarmUp;
      if (occurrence >= kMaxTrial) {  // Occurrences that could not be timed do not count; a trial that gets nowhere ends.
        state_.store(State::kProgram, std::memory_order_relaxed);
        return Way::kProgram;
      }
      // By turns, so that both meet the same machine.
      return occurrence / kBlock % 2 == 0 ? Way::kProgram : Way::kEager;
    }
  }
  return Way::kProgram;
}

bool EagerTrial::AddSample(Way way, const Sample& sample) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!timing()) return false;
  // The first one after a change pays for the change.
  if (std::exchange(last_way_, way) != way) return false;
  auto& samples = samples_[static_cast<int>(way)];
  if (samples.size() < kSamples) samples.push_back(sample);
  if (samples_[1].empty() && samples.size() == kFirstSamples && MedianOf(samples, IsEndKnown(samples)) > num_ops_ * kMaxNanosecondsPerOp) {
    state_.store(State::kProgram, std::memory_order_relaxed);
    return false;
  }
  const size_t both = std::min(samples_[0].size(), samples_[1].size());
  if (both < kFirstSamples) return false;
  const bool own = IsEndKnown(samples_[0]) && IsEndKnown(samples_[1]);
  program_ns_ = MedianOf(samples_[0], own);
  eager_ns_ = MedianOf(samples_[1], own);
  const bool is_clear = static_cast<double>(program_ns_) <= kClearly * static_cast<double>(eager_ns_);
  if (both < kSamples && !is_clear) return false;
  const bool eager = static_cast<double>(program_ns_) > kMargin * static_cast<double>(eager_ns_);
  state_.store(eager ? State::kEager : State::kProgram, std::memory_order_relaxed);
  return eager;
}

void EagerTrial::NoteEnd(std::string_view cause) {
  std::lock_guard<std::mutex> lock(mutex_);
  end_ = cause;
}

bool EagerTrial::EndsAt(std::string_view cause) {
  std::lock_guard<std::mutex> lock(mutex_);
  return end_ == cause;
}

void EagerTrial::NoteMismatch() {
  if (mismatches_.fetch_add(kMismatch, std::memory_order_relaxed) + kMismatch < kMaxMismatches) return;
  state_.store(State::kProgram, std::memory_order_relaxed);
}

}  // namespace lazuli::guards
