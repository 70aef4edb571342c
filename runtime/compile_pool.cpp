#include "runtime/compile_pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/process_end.h"

namespace lazuli::runtime {
namespace {

thread_local bool on_pool_thread = false;
std::atomic<bool> hurries{false};

}  // namespace

struct CompilePool::State {
  struct Job {
    std::shared_ptr<const CompileDemand> demand;
    std::function<void()> run;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Job> waiting;
  int64_t threads = 0;
  int64_t running = 0;
  bool closed = false;   // The process ends: no job begins any more.
  bool forking = false;  // No job begins before fork() is done.

  void Work() {
    on_pool_thread = true;
    pthread_setname_np(pthread_self(), "lazuli-compile");
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return !waiting.empty() && !closed && !forking; });
      const auto urgent = std::max_element(waiting.begin(), waiting.end(), [](const Job& a, const Job& b) {
        return a.demand->lost_nanoseconds.load(std::memory_order_relaxed) < b.demand->lost_nanoseconds.load(std::memory_order_relaxed);
      });
      const Job job = std::move(*urgent);
      waiting.erase(urgent);
      ++running;
      lock.unlock();
      job.run();
      [[maybe_unused]] static const int registered = CoverExitOfOtherThreads();
      lock.lock();
      --running;
      changed.notify_all();
    }
  }

  // The lock is held.
  void StartThreads(int64_t limit) {
    while (threads < std::min(limit, running + static_cast<int64_t>(waiting.size()))) {
      ++threads;
      std::thread([this] { Work(); }).detach();
    }
    changed.notify_all();
  }

  void WaitForRunning(std::unique_lock<std::mutex>* lock) {
    changed.wait(*lock, [this] { return running == 0; });
  }
};

bool CompilePool::OnItsThread() { return on_pool_thread; }
bool CompilePool::Hurries() { return hurries; }

CompilePool& CompilePool::Get() {
  static auto* const pool = [] {
    auto* const made = new CompilePool;
    CloseAtProcessEnd([] { Get().Close(); });
    return made;
  }();
  return *pool;
}

void CompilePool::Close() {
  State& state = *state_;
  hurries = true;
  std::unique_lock<std::mutex> lock(state.mutex);
  state.closed = true;
  state.WaitForRunning(&lock);
}

CompilePool::CompilePool() : state_(new State) {
  // A job may hold any lock of the compiler's: none may be in the middle when the memory is copied.
  pthread_atfork(
      [] {
        State& state = *Get().state_;
        hurries = true;
        std::unique_lock<std::mutex> lock(state.mutex);
        state.forking = true;
        state.WaitForRunning(&lock);
        lock.release();  // Held until fork() is done.
      },
      [] {
        State& state = *Get().state_;
        state.forking = false;
        hurries = false;
        state.mutex.unlock();
        state.changed.notify_all();
      },
      [] {
        // The threads are gone, and with them the meaning of locks that they waited on.
        State& state = *Get().state_;
        hurries = false;
        auto waiting = std::move(state.waiting);
        Get().state_ = new State;
        Get().state_->waiting = std::move(waiting);
      });
}

void CompilePool::Submit(std::shared_ptr<const CompileDemand> demand, std::function<void()> job, int64_t threads) {
  State* const state = state_;
  std::lock_guard<std::mutex> lock(state->mutex);
  state->waiting.push_back({std::move(demand), std::move(job)});
  state->StartThreads(threads);
}

void CompilePool::Wait() {
  State* const state = state_;
  std::unique_lock<std::mutex> lock(state->mutex);
  if (state->threads == 0) state->StartThreads(1);  // After fork().
  state->changed.wait(lock, [state] { return state->waiting.empty() && state->running == 0; });
}

void CompilePool::WaitUntil(absl::FunctionRef<bool()> done, std::chrono::nanoseconds most) {
  State* const state = state_;
  std::unique_lock<std::mutex> lock(state->mutex);
  if (state->threads == 0) state->StartThreads(1);  // After fork().
  state->changed.wait_for(lock, most, [&] { return done() || state->closed; });
}

}  // namespace lazuli::runtime
