// Memory of objects of one class that come and go by the thousand: what a thread lets go of it hands out again.
#pragma once

#include <cstddef>
#include <new>

namespace lazuli::tracer {
namespace internal {

struct BlockList {
  void* head;
  int count;
  bool opened, closed;  // Closed: the thread is about to end.
};

}  // namespace internal

// For `Class::operator new` and `operator delete`. Blocks are those of the global ones, and may be returned to either.
template <class Class>
class ObjectPool {
 public:
  static void* Take(size_t size) {
    void* const block = list.head;
    if (block == nullptr || size != sizeof(Class)) return ::operator new(size);
    list.head = *static_cast<void**>(block);
    --list.count;
    return block;
  }

  static void Give(void* block) noexcept {
    if (list.count >= kMost || !IsOpen()) return ::operator delete(block);
    *static_cast<void**>(block) = list.head;
    list.head = block;
    ++list.count;
  }

 private:
  // Blocks that a thread keeps. None where a tool looks for uses of freed memory, or for races: it has to see each object's end.
#if defined(LAZULI_SANITIZE_ADDRESS) || defined(LAZULI_SANITIZE_THREAD)
  static constexpr int kMost = 0;
#else
  static constexpr int kMost = 256;
#endif

  struct Closer {
    ~Closer() {
      list.closed = true;
      while (list.head != nullptr) ::operator delete(Take(sizeof(Class)));
    }
  };

  static bool IsOpen() {
    if (!list.opened && !list.closed) {
      list.opened = true;
      static thread_local Closer closer;
      (void)closer;
    }
    return !list.closed;
  }

  static inline __thread internal::BlockList list __attribute__((tls_model("initial-exec"))) = {nullptr, 0, false, false};
};

}  // namespace lazuli::tracer
