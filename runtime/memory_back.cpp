#include "runtime/memory_back.h"

#include <malloc.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>

#include "runtime/buffer_pool.h"
#include "runtime/own_code.h"

namespace lazuli::runtime {
namespace {

// What runs now and then.
class Paced {
 public:
  // Runs `give_back`, which may cost `later` nanoseconds more afterwards, unless it ran a short while ago.
  template <class GiveBack>
  void Run(const GiveBack& give_back, int64_t later = 0) {
    constexpr int64_t kPause = 20;  // Times as long as it took.
    const int64_t begin = Now();
    if (begin < due_.load(std::memory_order_relaxed)) return;
    give_back();
    const int64_t end = Now();
    due_.store(end + kPause * (end - begin + later), std::memory_order_relaxed);
  }

 private:
  static int64_t Now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
  std::atomic<int64_t> due_{0};
};

}  // namespace

void GiveCompilerBack() {
  static Paced paced;
  paced.Run([] {
    malloc_trim(0);
    ReleaseOwnCode();
  });
}

void GiveHeapBack() {
  static Paced paced;
  paced.Run([] { malloc_trim(0); });
}

void GiveScratchBack() {
  // The next program's page faults.
  constexpr int64_t kLater = 50'000'000;
  static Paced paced;
  paced.Run([] { BufferPool::Get().TrimScratch(); }, kLater);
}

void KeepHeap() {
  constexpr size_t kAlmostMost = 31 << 20;          // DEFAULT_MMAP_THRESHOLD_MAX is 32 MiB.
  void* volatile block = std::malloc(kAlmostMost);  // No page of it is touched. Volatile: else the compiler drops both calls.
  std::free(block);
}

}  // namespace lazuli::runtime
