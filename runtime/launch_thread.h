// A thread that launches work for a GPU while the program's own thread records.
//
// There is one in the process, so that libraries keep one more handle at most. It starts with the first job. The end of the
// process and fork() wait for the jobs that are there; a child starts a thread of its own.
#pragma once

#include <atomic>
#include <exception>
#include <functional>

namespace lazuli::runtime {

// A place for one piece of work at a time. Of one thread, or guarded by a lock; it must be done before it goes out of scope.
class LaunchJob {
 public:
  // Whether jobs should be started at all. Not any more after one waited for Python (an operator written in it, a profiler that looks at
  // its stack) while the thread that held Python's lock waited for the job: it went on, but only after a second.
  static bool IsWise();
  // Registers what the end of the process and a fork ask of the thread, if that has not been done.
  static void Prepare();

  // Wakes the launching thread, if it sleeps: a job is likely to be started within some operators' time.
  static void Announce();

  // Runs `work` on the launching thread, after the jobs that were started before. The last one must be done.
  void Start(std::function<void()> work);
  // The same on the calling thread: it is done then.
  void RunHere(std::function<void()> work);
  // Whether there is nothing left to do. What the work wrote is visible then.
  bool done() const { return done_.load(std::memory_order_acquire); }
  // Returns when it is done. Throws what the work threw.
  void Wait();

 private:
  friend class LaunchThread;
  void Run();

  std::function<void()> work_;
  std::exception_ptr error_;
  std::atomic<bool> done_{true};
};

}  // namespace lazuli::runtime
