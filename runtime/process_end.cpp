#include "runtime/process_end.h"

#include <atomic>
#include <cstdlib>

namespace lazuli::runtime {

static __thread bool thread_ends = false;
void NoteThreadEnds() { thread_ends = true; }
bool ThreadEnds() { return thread_ends; }

namespace {

constexpr int kMost = 8;
std::atomic<void (*)()> functions[kMost];

void CloseAll() {
  for (const auto& function : functions) {
    if (void (*const close)() = function.load()) close();
  }
}

// A thread's own objects die first when it calls exit(), and nearly always that is the main one.
struct MainThread {
  ~MainThread() {
    NoteThreadEnds();
    CloseAll();
  }
};

[[maybe_unused]] const bool armed = [] {
  static thread_local MainThread main_thread;
  [[maybe_unused]] MainThread* const made = &main_thread;
  return true;
}();

}  // namespace

void CloseAtProcessEnd(void (*close)()) {
  for (auto& function : functions) {
    void (*none)() = nullptr;
    if (function.compare_exchange_strong(none, close)) return;
  }
  std::abort();  // More functions than there are in this library.
}

int CoverExitOfOtherThreads() { return std::atexit(&CloseAll); }

}  // namespace lazuli::runtime
