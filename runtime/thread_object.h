// Objects of a thread that handlers of exit() may still ask for, when the thread's objects are gone.
#pragma once

#include <utility>

namespace lazuli::runtime {

// The calling thread's T for `Tag`, made when it is first asked for. It goes with the thread's other objects; who asks later gets a new
// one, which stays.
template <class T, class Tag = T>
T& ThreadObject() {
  static __thread T* object = nullptr;
  struct Closer {
    ~Closer() { delete std::exchange(object, nullptr); }
  };
  if (object == nullptr) {
    object = new T;
    static thread_local Closer closer;
    (void)closer;
  }
  return *object;
}

}  // namespace lazuli::runtime
