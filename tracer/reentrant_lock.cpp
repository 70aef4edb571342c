#include "tracer/reentrant_lock.h"

#include <chrono>

namespace lazuli::tracer {
namespace internal {
__thread char this_thread __attribute__((tls_model("initial-exec"))) = 0;
}

void ReentrantLock::Wait(const void* self) {
  // An owner that unlocks in the same moment may not see the waiter yet, whence the time limit.
  constexpr auto kMissedWake = std::chrono::milliseconds(1);
  waiters_.fetch_add(1);
  std::unique_lock<std::mutex> guard(mutex_);
  while (!TryTake(self)) woken_.wait_for(guard, kMissedWake);
  waiters_.fetch_sub(1);
}

void ReentrantLock::Wake() {
  { const std::lock_guard<std::mutex> guard(mutex_); }
  woken_.notify_one();
}

}  // namespace lazuli::tracer
