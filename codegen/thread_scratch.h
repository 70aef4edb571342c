// Memory of one thread for the time of a kernel's run.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>

#include "runtime/thread_object.h"

namespace lazuli::codegen {

// Grows and never shrinks: a kernel needs no allocation once its thread has run one as large. One object per thread and purpose.
class ThreadScratch {
 public:
  ThreadScratch() = default;
  ~ThreadScratch() { std::free(data_); }
  ThreadScratch(const ThreadScratch&) = delete;
  ThreadScratch& operator=(const ThreadScratch&) = delete;

  // At least so many bytes, at a multiple of 64; what was there before is lost when it grows. Throws std::bad_alloc.
  void* Reserve(int64_t bytes) {
    if (bytes <= capacity_) return data_;
    std::free(data_);
    capacity_ = (bytes + 4095) / 4096 * 4096;
    data_ = std::aligned_alloc(64, static_cast<size_t>(capacity_));
    if (data_ == nullptr) {
      capacity_ = 0;
      throw std::bad_alloc();
    }
    return data_;
  }

 private:
  void* data_ = nullptr;
  int64_t capacity_ = 0;
};

// The calling thread's for `Purpose`, a class that need not be defined.
template <class Purpose>
ThreadScratch& ScratchOfThread() {
  return runtime::ThreadObject<ThreadScratch, Purpose>();
}

}  // namespace lazuli::codegen
