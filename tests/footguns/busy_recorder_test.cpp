// Threads without a mode, and child processes, while a thread's recorder is busy: it holds its lock while it runs a program.
#include <signal.h>
#include <sys/wait.h>
#include <torch/library.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kTooLong{20};

std::atomic<bool> gate_is_shut{false}, at_the_gate{false};

template <class Condition>
bool WaitUntil(const Condition& condition) {
  for (const auto end = Clock::now() + kTooLong; !condition();) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Returns when the gate is open.
torch::Tensor PassGate(const torch::Tensor& x) {
  at_the_gate = gate_is_shut.load();
  WaitUntil([] { return !gate_is_shut; });
  at_the_gate = false;
  return x.clone();
}

TORCH_LIBRARY(lazuli_busy_test, m) { m.def("pass_gate(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(lazuli_busy_test, CPU, m) { m.impl("pass_gate", &PassGate); }
TORCH_LIBRARY_IMPL(lazuli_busy_test, Meta, m) {
  m.impl("pass_gate", [](const torch::Tensor& x) { return torch::empty_like(x); });
}

class BusyRecorderTest : public BackendTest {
 protected:
  void SetUp() override {
    LAZULI_CPU_ONLY("the operator is the CPU's");
    BackendTest::SetUp();
    gate_is_shut = false;
    recording_ = TestThread([this] {
      const lazuli::DeviceMode mode(options());
      const torch::Tensor x = torch::ones({64});
      const auto pass = [&x] {
        static const auto op =
            c10::Dispatcher::singleton().findSchemaOrThrow("lazuli_busy_test::pass_gate", "").typed<torch::Tensor(const torch::Tensor&)>();
        const torch::NoGradGuard no_grad;
        return (op.call(x * 2) + 1).sum().item<float>();
      };
      for (int run = 0; run < 6; ++run) pass();
      gate_is_shut = true;
      passed_ = pass();
    });
    ASSERT_TRUE(WaitUntil([] { return at_the_gate.load(); }));
  }
  void TearDown() override {
    gate_is_shut = false;
    if (!recording_.joinable()) return;
    recording_.join();
    EXPECT_EQ(passed_, 192);
  }

 private:
  std::thread recording_;
  float passed_ = 0;
};

// What it needs none of.
bool UseOtherMemory() {
  const torch::Tensor base = torch::ones({8}), view = base.slice(0, 2, 6);
  view.data_ptr<float>()[0] = 5;
  return base.sum().item<float>() == 12 && (view * 2 + base[2]).sum().item<float>() == 36;
}

TEST_P(BusyRecorderTest, ThreadsWithoutAModeGoOn) {
  std::atomic<bool> done{false}, right{false};
  std::thread eager = TestThread([&] {
    right = UseOtherMemory();
    done = true;
  });
  EXPECT_TRUE(WaitUntil([&] { return done.load(); })) << "waits for the recorder";
  gate_is_shut = false;
  eager.join();
  EXPECT_TRUE(right);
}

TEST_P(BusyRecorderTest, ChildProcessesGoOnAndMayOpenAMode) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    bool right = UseOtherMemory();
    {
      const lazuli::DeviceMode mode(options());
      right = right && UseOtherMemory() && (torch::ones({3}) * 2).sum().item<float>() == 6;
    }
    _exit(right ? 0 : 1);
  }
  int status = 0;
  const bool ended = WaitUntil([&] { return waitpid(child, &status, WNOHANG) == child; });
  EXPECT_TRUE(ended) << "the child waits";
  if (!ended) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  EXPECT_EQ(status, 0);
}

LAZULI_FOR_EACH_BACKEND(BusyRecorderTest);

}  // namespace
}  // namespace lazuli::testing
