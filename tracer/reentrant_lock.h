// A mutex that its owner may lock again. Recording takes it twice per operator, nearly always alone, so that locking is one atomic exchange
// and unlocking a store.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace lazuli::tracer {

namespace internal {
extern __thread char this_thread __attribute__((tls_model("initial-exec")));  // Its address is the thread's identity.
}

class ReentrantLock {
 public:
  ReentrantLock() = default;
  ReentrantLock(const ReentrantLock&) = delete;
  ReentrantLock& operator=(const ReentrantLock&) = delete;

  void lock() {
    const void* const self = &internal::this_thread;
    if (owner_.load(std::memory_order_relaxed) == self) {
      ++depth_;
    } else if (!TryTake(self)) {
      Wait(self);
    }
  }

  // By the owner, as often as it locked.
  void unlock() {
    if (depth_ > 0) {
      --depth_;
      return;
    }
    owner_.store(nullptr, std::memory_order_release);
    if (waiters_.load(std::memory_order_relaxed) > 0) Wake();
  }

  // How often the owner has locked it beyond the first time. Only for the owner.
  int depth() const { return depth_; }

 private:
  bool TryTake(const void* self) {
    const void* nobody = nullptr;
    return owner_.compare_exchange_strong(nobody, self, std::memory_order_acquire, std::memory_order_relaxed);
  }

  void Wait(const void* self);
  void Wake();

  std::atomic<const void*> owner_{nullptr};
  int depth_ = 0;
  std::atomic<int> waiters_{0};
  std::mutex mutex_;
  std::condition_variable woken_;
};

}  // namespace lazuli::tracer
