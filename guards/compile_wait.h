// How long the program waits for what is compiled in the background (LAZULI_COMPILE_WAIT_MS).
//
// A trace that comes again is likely to go on coming. Running its operators one by one until its program is there takes about as long as
// to wait for it, since the compiler then has the cores to itself, and after the wait all steps of a loop are the same: what runs, how
// long that takes, and every bit of its results, in this process and the next one. What hardly runs is not worth a wait, though. So waits
// are paid from a budget, which gets back what a program took when it has run a few times.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lazuli::guards {

struct CompiledProgram;

// What the waits of this process may take. Thread-safe.
class WaitBudget {
 public:
  static WaitBudget& Get();

  // Of `most` in all; zero when it is used up.
  std::chrono::nanoseconds Left(std::chrono::nanoseconds most) const;
  void Spend(std::chrono::nanoseconds time) { spent_.fetch_add(time.count(), std::memory_order_relaxed); }
  void GiveBack(std::chrono::nanoseconds time) { spent_.fetch_sub(time.count(), std::memory_order_relaxed); }
  void Reset() { spent_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> spent_{0};
};

// The waits for one program. Thread-safe.
class WaitedFor {
 public:
  void Note(std::chrono::nanoseconds time) { nanoseconds_.fetch_add(time.count(), std::memory_order_relaxed); }

  // The program runs. Gives the budget back what it took, the kPaidBackAfter-th time.
  void NoteRun() {
    if (nanoseconds_.load(std::memory_order_relaxed) != 0) PayBack();
  }

  static constexpr int kPaidBackAfter = 16;

 private:
  void PayBack();

  std::atomic<int64_t> nanoseconds_{0};  // That the budget has not got back.
  std::atomic<int> runs_{0};
};

// Waits for the program that `body` gets, if it is being compiled, as long as the budget lasts. Whether it waited.
bool AwaitProgram(CompiledProgram* body);

}  // namespace lazuli::guards
