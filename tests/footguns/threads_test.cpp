// Several threads, and processes.

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <condition_variable>
#include <future>
#include <mutex>
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

TEST_P(ThreadsTest, ForksWithTheSameWorkPending) {
  LAZULI_CPU_ONLY("a forked child cannot use CUDA");
  const lazuli::DeviceMode mode(options());
  for (int i = 0; i < 4; ++i) {
    const auto x = torch::full({4}, i) * 3;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit((x + 1).data_ptr<int64_t>()[2] == 3 * i + 1 ? 0 : 1);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

// A thread that records nothing writes what recorded operators are yet to read: they see what was there when they were called.
TEST_P(ThreadsTest, ThreadsThatRecordNothingMayWriteInputs) {
  const std::vector<std::function<void(torch::Tensor)>> writes{
      [](torch::Tensor x) { x.fill_(100); },
      [](torch::Tensor x) { x.copy_(torch::full({4}, 100, x.device())); },
      [](torch::Tensor x) { x.zero_(); },
      [](torch::Tensor x) { x[0] = 100; },
      [](torch::Tensor x) {
        x.view({2, 2}).add_(7);
      },
      [](torch::Tensor x) { torch::add_out(x, x, x); },
      [](torch::Tensor x) { x.mutable_data_ptr(); },
  };
  const lazuli::DeviceMode mode(options());
  for (size_t i = 0; i < writes.size(); ++i) {
    SCOPED_TRACE(i);
    auto plain = torch::Tensor();
    std::thread([&] { plain = OnTestDevice(torch::ones({4})); }).join();
    const auto made = OnTestDevice(torch::ones({4})) + 0;
    lazuli::sync();
    for (const auto& x : {plain, made}) {
      const StatsDelta delta;
      const auto y = x * 2;
      std::thread([&] { writes[i](x); }).join();
      EXPECT_EQ(delta.cuts("written_elsewhere"), 1);
      EXPECT_EQ(y.sum().item<float>(), 8);
    }
  }
}

// And it may use what is pending.
TEST_P(ThreadsTest, ThreadsThatRecordNothingMayUsePendingTensors) {
  const lazuli::DeviceMode mode(options());
  auto a = OnTestDevice(torch::ones({4})) + 1;
  auto b = OnTestDevice(torch::ones({4})) * 5;
  auto w = OnTestDevice(torch::ones({4})).requires_grad_();
  (w * b).sum().backward();
  std::thread([&] {
    a.add_(b);
    const torch::NoGradGuard no_grad;
    w.add_(w.grad(), -0.1);
  }).join();
  EXPECT_EQ(a.sum().item<float>(), 28);
  EXPECT_EQ(w.sum().item<float>(), 2);
}

// Lets one thread go on when the other has come to `Reach(step)`.
class Steps {
 public:
  void Reach(int step) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      reached_ = step;
    }
    changed_.notify_all();
  }
  void Await(int step) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return reached_ >= step; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int reached_ = 0;
};

// A tensor made before any mode, and one that a mode recorded.
std::vector<torch::Tensor> PlainAndRecorded(const Options& options) {
  const auto plain = torch::arange(6, torch::kFloat);
  const lazuli::DeviceMode mode(options);
  auto recorded = torch::arange(6, torch::kFloat) * 1;
  lazuli::sync();
  return {plain, recorded};
}

TEST_P(ThreadsTest, ThreadsThatReadTheSameTensorsKeepTheirInputsApart) {
  const auto inputs = PlainAndRecorded(options());
  const auto run = [&](int seed, torch::Tensor* out) {
    const lazuli::DeviceMode mode(options());
    auto total = torch::zeros({6});
    for (int i = 0; i < 60; ++i) {
      // Other inputs come first, so that the shared ones have another number in each trace.
      for (int k = 0; k < (seed + i) % 3; ++k) total = total + torch::full({6}, k);
      total = total + inputs[i % 2] * inputs[(i + 1) % 2];
      if (i % 7 == seed) lazuli::sync();
    }
    *out = total.clone();
  };
  std::vector<torch::Tensor> results(3);
  std::vector<std::thread> threads;
  for (int seed = 0; seed < 3; ++seed) threads.emplace_back(TestThread(run, seed, &results[seed]));
  for (auto& thread : threads) thread.join();
  for (int seed = 0; seed < 3; ++seed) {
    auto expected = torch::zeros({6});
    for (int i = 0; i < 60; ++i) expected += ((seed + i) % 3 == 2 ? 1 : 0) + torch::arange(6) * torch::arange(6);
    ExpectSame(expected, results[seed], exact(), "thread");
  }
}

TEST_P(ThreadsTest, AWriteComesAfterWhatAnotherThreadHasRecordedToRead) {
  for (const torch::Tensor& x : PlainAndRecorded(options())) {
    for (const bool recorded : {true, false}) {
      const auto before = x.clone();
      const auto after = recorded ? before + 1 : torch::full_like(before, 7);
      Steps steps;
      torch::Tensor y;
      std::thread reader = TestThread([&] {
        const lazuli::DeviceMode mode(options());
        y = x * 2;
        steps.Reach(1);
        steps.Await(2);
        EXPECT_EQ(x[1].item<float>(), after[1].item<float>());
      });
      const StatsDelta delta;
      std::thread writer = TestThread([&] {
        const lazuli::DeviceMode mode(options());
        steps.Await(1);
        if (recorded) {
          x.add_(1);
        } else {  // Always runs at once.
          x.random_(7, 8);
        }
        steps.Reach(2);
      });
      reader.join();
      writer.join();
      ExpectSame(before * 2, y, exact(), "read before the write");
      ExpectSame(after, x, exact(), "written");
      EXPECT_EQ(delta.cuts("written_elsewhere"), 1);
    }
  }
}

TEST_P(ThreadsTest, WhatAnotherThreadHasPendingIsRunAndTheReadRecorded) {
  Steps steps;
  torch::Tensor x;
  std::thread maker = TestThread([&] {
    const lazuli::DeviceMode mode(options());
    x = torch::full({8}, 2) * 3;
    steps.Reach(1);
    steps.Await(2);
  });
  float sum = 0;
  std::thread reader = TestThread([&] {
    const lazuli::DeviceMode mode(options());
    steps.Await(1);
    const StatsDelta delta;
    const auto y = x + 1;
    EXPECT_EQ(delta.of(&Stats::ops_recorded), 2) << "the maker's trace has run";
    EXPECT_EQ(delta.fallbacks("aten::add.Tensor"), 0);
    sum = y.sum().item<float>();
    steps.Reach(2);
  });
  maker.join();
  reader.join();
  EXPECT_EQ(sum, 56);
}

// Without any order among them, as in Hogwild's lock-free descent: updates may get lost, but nothing fails.
TEST_P(ThreadsTest, ThreadsMayWriteOneTensorWithoutOrder) {
  const auto target = torch::arange(5, torch::kFloat);
  for (auto& weight : {torch::zeros({1, 5}), torch::full({1, 5}, 3.0)}) {
    const auto descend = [&](int seed) {
      const torch::NoGradGuard no_grad;
      const lazuli::DeviceMode mode(options());
      for (int i = 0; i < 150; ++i) {
        const auto x = (torch::arange(80, torch::kFloat).reshape({16, 5}) * (0.7 * seed + 0.1 * i)).sin();
        const auto residual = x.matmul(weight.t()).squeeze(1) - x.mv(target);
        weight.sub_(residual.unsqueeze(0).mm(x), 0.004);
        if (i % 20 == 19) {
          EXPECT_TRUE(std::isfinite(weight.sum().item<float>()));
        }
      }
    };
    std::vector<std::thread> threads;
    for (int seed = 1; seed <= 3; ++seed) threads.emplace_back(TestThread(descend, seed));
    for (auto& thread : threads) thread.join();
    EXPECT_LT((weight.squeeze() - target).abs().max().item<float>(), 0.1);
  }
}

// A step that goes on on other threads: a recorder that does nothing any more still expects what it saw once.
TEST_P(ThreadsTest, StepsThatMoveToAnotherThread) {
  const Options in_background = options().async(true).compile_wait_ms(0);
  const auto step = [](int rounds) {
    auto h = torch::ones({8, 8}) / 2;
    float total = (h + 1).sum().item<float>();
    for (int i = 0; i < rounds; ++i) h = torch::tanh(h) + 1;
    return total + h.mean().item<float>();
  };
  const float expected = step(20);
  std::promise<void> begun, done;
  std::thread first = TestThread([&] {
    const lazuli::DeviceMode mode(in_background);
    for (int i = 0; i < 4; ++i) step(19);
    EXPECT_NEAR(step(20), expected, 1e-3);
    begun.set_value();
    done.get_future().wait();
  });
  begun.get_future().wait();
  TestThread([&] {
    const lazuli::DeviceMode mode(in_background);
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(step(20), expected, 1e-3);
    lazuli::wait_for_compiles();
    const StatsDelta ready;
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(step(20), expected, 1e-3);
    EXPECT_EQ(ready.of(&Stats::cache_hits), 8);
    EXPECT_EQ(ready.of(&Stats::eager_replays), 0);
  }).join();
  done.set_value();
  first.join();
}

LAZULI_FOR_EACH_BACKEND(ThreadsTest);

}  // namespace
}  // namespace lazuli::testing
