// Threads that compile in the background.
//
// The process ends without waiting for jobs that have not begun; fork() waits for those that have, and
// the child starts threads of its own when it compiles.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/functional/function_ref.h"

namespace lazuli::runtime {

// What a job is for. The time that is lost while it waits decides which job comes next.
struct CompileDemand {
  std::atomic<int64_t> lost_nanoseconds{0};
};

// Thread-safe.
class CompilePool {
 public:
  static CompilePool& Get();

  // Runs `job`, which must not throw, on one of at most `threads` threads.
  void Submit(std::shared_ptr<const CompileDemand> demand, std::function<void()> job, int64_t threads);

  // Returns when every job submitted before has run.
  void Wait();

  // Returns when `done` says so, which is asked after each job, or after `most`. It must not call the pool.
  void WaitUntil(absl::FunctionRef<bool()> done, std::chrono::nanoseconds most);

  // Whether the calling thread is one of its own.
  static bool OnItsThread();

  // Whether the process ends, or forks, and waits for jobs: long ones should come to an end.
  static bool Hurries();

  // Begins no job any more, and returns when those that have begun are done. For the end of the process.
  void Close();

 private:
  CompilePool();
  struct State;
  State* state_;  // Never freed: threads may outlive static destructors.
};

}  // namespace lazuli::runtime
