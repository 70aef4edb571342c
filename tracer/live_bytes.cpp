#include "tracer/live_bytes.h"

#include <array>
#include <cstddef>

namespace lazuli::tracer {
namespace {

constexpr size_t kMostThreads = 256;
constexpr size_t kMostFollowed = 8;

struct alignas(64) Slot {  // A cache line.
  std::atomic<int64_t> bytes{0};
};
std::array<Slot, kMostThreads> slots;  // Outlive all threads.

}  // namespace

__thread std::atomic<int64_t>* internal::live_bytes __attribute__((tls_model("initial-exec"))) = nullptr;

std::atomic<int64_t>* internal::MakeLiveBytes() {
  static std::atomic<size_t> next{0};
  live_bytes = &slots[next.fetch_add(1, std::memory_order_relaxed) % kMostThreads].bytes;
  return live_bytes;
}

int64_t LiveBytes::Count() {
  const Bytes own = internal::ThreadLiveBytes();
  int64_t count = others_;
  bool follows = false;
  for (const Bytes bytes : followed_) {
    count += bytes->load(std::memory_order_relaxed);
    follows |= bytes == own;
  }
  if (!follows) Follow(own);  // Which changes no count.
  return count;
}

void LiveBytes::Follow(Bytes bytes) {
  if (followed_.size() == kMostFollowed) {
    others_ += followed_.front()->load(std::memory_order_relaxed);
    followed_.erase(followed_.begin());
  }
  others_ -= bytes->load(std::memory_order_relaxed);
  followed_.push_back(bytes);
}

}  // namespace lazuli::tracer
