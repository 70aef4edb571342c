// How long the program waits for what is compiled in the background (LAZULI_COMPILE_WAIT_MS).
//
// A trace that comes again is likely to go on coming. Running its operators one by one until its program is there takes about as long as
// to wait for it, since the compiler then has the cores to itself, and after the wait all steps of a loop are the same: what runs, how
// long that takes, and every bit of its results, in this process and the next one. What hardly runs is not worth a wait, though. So waits
// are paid from a budget, which is full at first and fills up again slowly.
#pragma once

#include <chrono>
#include <mutex>

namespace lazuli::guards {

struct CompiledProgram;

// What the waits of this process may take: a token bucket. Thread-safe.
class WaitBudget {
 public:
  using Clock = std::chrono::steady_clock;

  static WaitBudget& Get();

  // What is left at `now` of a budget of `most`, which gets back a kRefill-th of the time that passes.
  std::chrono::nanoseconds Left(std::chrono::nanoseconds most, Clock::time_point now);
  // A wait has taken `time`.
  void Spend(std::chrono::nanoseconds time);
  void Reset();

  static constexpr int kRefill = 16;

 private:
  std::mutex mutex_;
  std::chrono::nanoseconds spent_{0};
  Clock::time_point refilled_;
};

// Waits for the program that `body` gets, if it is being compiled, as long as the budget lasts. Whether it waited.
bool AwaitProgram(CompiledProgram* body);

}  // namespace lazuli::guards
