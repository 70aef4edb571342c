// Several threads, and processes.

#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

class ThreadsTest : public BackendTest {};

torch::Tensor Work(float seed, int steps) {
  auto x = torch::full({16, 16}, seed);
  for (int i = 0; i < steps; ++i) {
    x = (x * 0.5 + 1).relu();
    x.add_(x.t().clone(), 0.25);
    if (i % 5 == 4 && x.sum().item<float>() < 0) break;
  }
  return x;
}

TEST_P(ThreadsTest, TwoModesOnTwoThreads) {
  const auto expected_one = Work(1, 30);
  const auto expected_two = Work(-3, 30);
  torch::Tensor one;
  torch::Tensor two;
  const auto run = [this](float seed, torch::Tensor* out) {
    const lazuli::DeviceMode mode(options());
    for (int i = 0; i < 5; ++i) *out = Work(seed, 30);
  };
  std::thread first = TestThread(run, 1.0f, &one);
  std::thread second = TestThread(run, -3.0f, &two);
  first.join();
  second.join();
  ExpectSame(expected_one, one, exact(), "first thread");
  ExpectSame(expected_two, two, exact(), "second thread");
}

TEST_P(ThreadsTest, OtherThreadsStayEager) {
  const lazuli::DeviceMode mode(options());
  const StatsDelta delta;
  TestThread([] {
    EXPECT_FALSE(lazuli::is_enabled());
    EXPECT_EQ((torch::ones({3}) + 1).sum().item<float>(), 6);
  }).join();
  EXPECT_EQ(delta.of(&Stats::ops_recorded), 0);
  EXPECT_TRUE(lazuli::is_enabled());
}

TEST_P(ThreadsTest, PendingTensorReadByAnEagerThread) {
  const lazuli::DeviceMode mode(options());
  for (int round = 0; round < 10; ++round) {
    const auto x = torch::ones({64}) * 3 + round;
    double sum = 0;
    TestThread([&x, &sum] { sum = (x + 1).sum().item<double>(); }).join();
    EXPECT_EQ(sum, 64 * (4 + round));
  }
}

TEST_P(ThreadsTest, PendingTensorReadByAThreadWithItsOwnMode) {
  const lazuli::DeviceMode mode(options());
  for (int round = 0; round < 10; ++round) {
    const auto x = torch::ones({64}) * 3 + round;
    double sum = 0;
    TestThread([this, &x, &sum] {
      const lazuli::DeviceMode own(options());
      sum = (x + 1).sum().item<double>();
    }).join();
    EXPECT_EQ(sum, 64 * (4 + round));
  }
}

TEST_P(ThreadsTest, ReadersRaceWithTheRecordingThread) {
  const lazuli::DeviceMode mode(options());
  std::vector<std::thread> readers;
  std::vector<double> sums(4);
  const auto x = torch::ones({32}) + 1;
  const auto y = x * 2;
  for (size_t i = 0; i < sums.size(); ++i) {
    readers.emplace_back([&, i] { sums[i] = (i % 2 == 0 ? x : y).sum().item<double>(); });
  }
  auto z = y;
  for (int i = 0; i < 50; ++i) z = z + 1;
  for (auto& reader : readers) reader.join();
  for (size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], i % 2 == 0 ? 64 : 128);
  EXPECT_EQ(z.sum().item<double>(), 32 * 54);
}

TEST_P(ThreadsTest, PendingTensorDroppedByAnotherThread) {
  const lazuli::DeviceMode mode(options());
  auto kept = torch::ones({8}) * 2;
  auto dropped = kept + 1;
  TestThread([tensor = std::move(dropped)]() mutable { tensor.reset(); }).join();
  EXPECT_EQ(kept.sum().item<float>(), 16);
}

TEST_P(ThreadsTest, TensorOutlivesTheThreadAndModeThatMadeIt) {
  torch::Tensor x;
  TestThread([&] {
    const lazuli::DeviceMode mode(options());
    x = torch::ones({8}) * 5;
  }).join();
  EXPECT_EQ((x + 1).sum().item<float>(), 48);
}

TEST_P(ThreadsTest, ParallelForAndLaunchUnderTheMode) {
  const lazuli::DeviceMode mode(options());
  std::vector<double> sums(8);
  const auto x = torch::ones({10}) * 2;
  at::parallel_for(0, 8, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sums[i] = (x * i).sum().item<double>();
  });
  for (size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], 20.0 * i);
}

TEST_P(ThreadsTest, ForkedChildStartsEagerAndParentGoesOn) {
  LAZULI_CPU_ONLY("a forked child cannot use CUDA");
  const lazuli::DeviceMode mode(options());
  const auto x = torch::ones({4}) * 3;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // No gtest in the child: it only reports through its exit status.
    const bool eager = !lazuli::is_enabled();
    const bool value = (x + 1).data_ptr<float>()[2] == 4;
    _exit(eager && value ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(lazuli::is_enabled());
  EXPECT_EQ((x * 2).sum().item<float>(), 24);
}

LAZULI_FOR_EACH_BACKEND(ThreadsTest);

}  // namespace
}  // namespace lazuli::testing
