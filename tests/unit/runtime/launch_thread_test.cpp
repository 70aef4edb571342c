#include "runtime/launch_thread.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace lazuli::runtime {
namespace {

TEST(LaunchJob, RunsOnAThreadOfItsOwn) {
  LaunchJob job;
  EXPECT_TRUE(job.done());
  job.Wait();
  std::thread::id ran_on;
  job.Start([&] { ran_on = std::this_thread::get_id(); });
  job.Wait();
  EXPECT_TRUE(job.done());
  EXPECT_NE(ran_on, std::thread::id());
  EXPECT_NE(ran_on, std::this_thread::get_id());
}

TEST(LaunchJob, RunsHereToo) {
  LaunchJob job;
  std::thread::id ran_on;
  job.RunHere([&] { ran_on = std::this_thread::get_id(); });
  EXPECT_TRUE(job.done());
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  job.RunHere([] { throw std::runtime_error("no stream"); });
  EXPECT_THROW(job.Wait(), std::runtime_error);
}

TEST(LaunchJob, IsNotDoneWhileItRuns) {
  LaunchJob job;
  std::atomic<bool> go{false};
  job.Start([&] {
    while (!go) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // So that it is waited for asleep, too.
  });
  EXPECT_FALSE(job.done());
  go = true;
  job.Wait();
  EXPECT_TRUE(job.done());
}

TEST(LaunchJob, JobsRunInTheirOrder) {
  std::vector<int> order;
  std::vector<LaunchJob> jobs(50);
  for (int i = 0; i < 50; ++i) jobs[static_cast<size_t>(i)].Start([&order, i] { order.push_back(i); });
  for (LaunchJob& job : jobs) job.Wait();
  ASSERT_EQ(order.size(), 50U);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(LaunchJob, WaitThrowsOnceWhatTheWorkThrew) {
  LaunchJob job;
  job.Start([] { throw std::runtime_error("no stream"); });
  EXPECT_THROW(job.Wait(), std::runtime_error);
  job.Wait();
  int ran = 0;
  job.Start([&] { ++ran; });
  job.Wait();
  EXPECT_EQ(ran, 1);
}

TEST(LaunchJob, AChildStartsAThreadOfItsOwn) {
#ifdef LAZULI_SANITIZE_THREAD
  GTEST_SKIP() << "the thread sanitizer lets no child of a process with threads start one";
#endif
  LaunchJob job;
  std::atomic<int> ran{0};
  job.Start([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ++ran;
  });
  const pid_t child = fork();
  if (child == 0) {
    // fork() waited for the job.
    if (!job.done() || ran != 1) _exit(1);
    job.Start([&] { ++ran; });
    job.Wait();
    _exit(ran == 2 ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  job.Wait();
  EXPECT_EQ(ran, 1);
}

}  // namespace
}  // namespace lazuli::runtime
