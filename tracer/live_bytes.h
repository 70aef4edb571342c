// How much of what a program has recorded is alive: where that is least, a trace is best cut.
//
// Results are made and let go of all the time, mostly by one thread, but a gradient's are made, and what was kept for it is let go of, by a
// thread of LibTorch's own where they are on a GPU. So each thread keeps a number of its own, which others read.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace lazuli::tracer {

namespace internal {
// Of the calling thread, which alone writes it; null at first.
extern __thread std::atomic<int64_t>* live_bytes __attribute__((tls_model("initial-exec")));
// Makes it. Threads beyond some hundreds share one, and may lose what another adds at the same time.
std::atomic<int64_t>* MakeLiveBytes();

inline std::atomic<int64_t>* ThreadLiveBytes() { return live_bytes != nullptr ? live_bytes : MakeLiveBytes(); }
}  // namespace internal

// The calling thread made a result of so many bytes, pending or not; or let go of one, where `nbytes` is negative.
inline void AddLiveBytes(int64_t nbytes) {
  std::atomic<int64_t>* const bytes = internal::ThreadLiveBytes();
  bytes->store(bytes->load(std::memory_order_relaxed) + nbytes, std::memory_order_relaxed);
}

// Of the threads that record in turns into one recorder, whose lock guards it.
class LiveBytes {
 public:
  // The calling thread records. Bytes that these threads have made and not let go of, to be compared within a short time only: what a
  // thread did before its first call does not count, nor what others let go of, nor what the first of more than a few threads do.
  int64_t Count();

 private:
  using Bytes = const std::atomic<int64_t>*;
  void Follow(Bytes bytes);

  std::vector<Bytes> followed_;
  int64_t others_ = 0;  // What `followed_` had when they were followed first, negative, and those had that no longer are.
};

}  // namespace lazuli::tracer
