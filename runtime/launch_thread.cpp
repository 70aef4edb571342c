#include "runtime/launch_thread.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/open_library.h"
#include "runtime/process_end.h"

namespace lazuli::runtime {
namespace {

// Python's lock, where there is one and the thread holds it: given back while this lives.
class PythonReleased {
 public:
  PythonReleased() {
    const auto is_initialized = FindInPython<int()>("Py_IsInitialized"), is_held = FindInPython<int()>("PyGILState_Check");
    const auto save = FindInPython<void*()>("PyEval_SaveThread");
    if (is_initialized == nullptr || is_held == nullptr || save == nullptr || is_initialized() == 0 || is_held() == 0) return;
    state_ = save();
  }
  ~PythonReleased() {
    if (state_ != nullptr) FindInPython<void(void*)>("PyEval_RestoreThread")(state_);
  }
  PythonReleased(const PythonReleased&) = delete;
  PythonReleased& operator=(const PythonReleased&) = delete;

  bool was_held() const { return state_ != nullptr; }

 private:
  void* state_ = nullptr;
};

std::atomic<bool> is_wise{true};

constexpr std::chrono::seconds kTooLong{1};

// Going to sleep and being woken take longer than most of what is waited for here. Work that was announced may take as long as a few
// operators.
constexpr std::chrono::microseconds kSoon{50}, kAnnounced{500};

template <class Condition>
bool IsWithin(std::chrono::microseconds time, const Condition& condition) {
  using Clock = std::chrono::steady_clock;
  for (const Clock::time_point end = Clock::now() + time; !condition();) {
    if (Clock::now() > end) return false;
    __builtin_ia32_pause();
  }
  return true;
}

}  // namespace

class LaunchThread {
 public:
  static LaunchThread& Get() {
    static auto* const thread = [] {
      auto* const made = new LaunchThread;
      CloseAtProcessEnd([] { Get().Close(); });
      pthread_atfork([] { Get().BeforeFork(); }, [] { Get().state_->mutex.unlock(); }, [] { Get().state_ = new State; });
      return made;
    }();
    return *thread;
  }

  void Start(LaunchJob* job) {
    State& state = *state_;
    std::unique_lock<std::mutex> lock(state.mutex);
    if (state.closed || !HasThread(&state)) {
      lock.unlock();
      job->Run();
      return;
    }
    state.waiting.push_back(job);
    state.pending.fetch_add(1, std::memory_order_release);
    if (state.sleeps) state.changed.notify_all();
  }

  void Announce() {
    State& state = *state_;
    std::lock_guard<std::mutex> lock(state.mutex);
    if (!state.sleeps) return;
    state.announced = true;
    state.changed.notify_all();
  }

  void Wait(const LaunchJob& job) {
    if (IsWithin(kSoon, [&job] { return job.done(); })) return;
    std::unique_lock<std::mutex> lock(state_->mutex);
    WaitUntil(&lock, [&job] { return job.done(); });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;  // There is work for a thread that sleeps, or a job is done.
    std::deque<LaunchJob*> waiting;
    std::atomic<int> pending{0};  // Jobs that wait or run.
    bool has_thread = false;
    bool sleeps = false;
    bool announced = false;  // It is woken for work that comes soon.
    bool closed = false;     // The process ends: jobs run where they are started.
  };

  static bool HasThread(State* state) {
    if (state->has_thread) return true;
    try {
      std::thread([state] { Work(state); }).detach();
      state->has_thread = true;
    } catch (const std::system_error&) {  // The process may have no more of them.
    }
    return state->has_thread;
  }

  static void Work(State* state) {
    pthread_setname_np(pthread_self(), "lazuli-launch");
    std::unique_lock<std::mutex> lock(state->mutex);
    for (std::chrono::microseconds soon = kSoon;; soon = kSoon) {
      while (state->waiting.empty()) {
        lock.unlock();
        const bool has_job = IsWithin(soon, [state] { return state->pending.load(std::memory_order_acquire) > 0; });
        lock.lock();
        if (has_job) break;
        state->sleeps = true;
        state->changed.wait(lock, [state] { return !state->waiting.empty() || state->announced; });
        state->sleeps = false;
        if (std::exchange(state->announced, false)) soon = kAnnounced;
      }
      LaunchJob* const job = state->waiting.front();
      state->waiting.pop_front();
      lock.unlock();
      job->Run();
      [[maybe_unused]] static const int registered = CoverExitOfOtherThreads();
      lock.lock();
      state->pending.fetch_sub(1, std::memory_order_release);
      state->changed.notify_all();
    }
  }

  void BeforeFork() {
    std::unique_lock<std::mutex> lock(state_->mutex);
    WaitUntil(&lock, [this] { return IsIdle(); });
    lock.release();  // Held until fork() is done.
  }

  // A job that waits for Python now waits for good.
  void Close() {
    std::unique_lock<std::mutex> lock(state_->mutex);
    state_->closed = true;
    state_->changed.wait_for(lock, kTooLong, [this] { return IsIdle(); });
  }

  bool IsIdle() const { return state_->pending.load(std::memory_order_acquire) == 0; }

  template <class Condition>
  void WaitUntil(std::unique_lock<std::mutex>* lock, const Condition& condition) {
    while (!state_->changed.wait_for(*lock, kTooLong, condition)) {
      lock->unlock();
      {
        const PythonReleased released;
        if (released.was_held()) is_wise.store(false, std::memory_order_relaxed);
        lock->lock();
        state_->changed.wait_for(*lock, kTooLong, condition);
        lock->unlock();  // Before Python's is taken again.
      }
      lock->lock();
    }
  }

  State* state_ = new State;  // Never freed: the thread may outlive static destructors.
};

bool LaunchJob::IsWise() { return is_wise.load(std::memory_order_relaxed); }

void LaunchJob::Prepare() { LaunchThread::Get(); }

void LaunchJob::Announce() { LaunchThread::Get().Announce(); }

void LaunchJob::Start(std::function<void()> work) {
  work_ = std::move(work);
  done_.store(false, std::memory_order_relaxed);
  LaunchThread::Get().Start(this);
}

void LaunchJob::RunHere(std::function<void()> work) {
  work_ = std::move(work);
  Run();
}

void LaunchJob::Wait() {
  if (!done()) LaunchThread::Get().Wait(*this);
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
}

void LaunchJob::Run() {
  try {
    work_();
  } catch (...) {
    error_ = std::current_exception();
  }
  done_.store(true, std::memory_order_release);
}

}  // namespace lazuli::runtime
