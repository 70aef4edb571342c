// How much may be pending, for how long, and how a mode ends.

#include <stdexcept>

#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

class LifetimeTest : public BackendTest {};

// A program may free what the program above let go of after recording its last use, but nothing that a view, a graph or a weak reference
// still reaches.
TEST_P(LifetimeTest, InputsDroppedAfterTheirLastUse) {
  ExpectSameAsEager([] {
    const auto w = torch::randn({16, 16}).requires_grad_();
    auto x = torch::randn({16, 16}) * 2;
    Tensors results;
    for (int i = 0; i < 4; ++i) {
      x.sum().item<float>();  // Now x has memory, and is an input from here on.
      auto row = x[i];
      c10::weak_intrusive_ptr<c10::StorageImpl> weak(
          c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(x.storage().unsafeGetStorageImpl()));
      auto loss = torch::mm(x, w).tanh().sum();
      x = (x.detach() * 0.5).relu() + 1;
      loss.backward();
      if (i % 2 == 0) row = torch::Tensor();
      results.push_back(x.sum());
      if (row.defined()) results.push_back(row * 2);
    }
    results.push_back(w.grad());
    return results;
  });
}

TEST_P(LifetimeTest, HundredThousandOpsWithoutASync) {
  const StatsDelta delta;
  const lazuli::DeviceMode mode(options());
  auto x = torch::zeros({4});
  auto y = torch::ones({4});
  for (int i = 0; i < 50000; ++i) {
    y = y + 1;
    x.add_(1);
  }
  EXPECT_GT(delta.cuts("trace_limit") + delta.cuts("loop"), 20);  // 4096 ops each, at most.
  EXPECT_EQ(x[3].item<float>(), 50000);
  EXPECT_EQ(y[0].item<float>(), 50001);
  // Equal blocks share programs: the whole chain compiles a handful.
  EXPECT_LE(delta.of(&Stats::programs_compiled), 6);
  EXPECT_EQ(delta.of(&Stats::recompile_limit_hits), 0);
}

TEST_P(LifetimeTest, LongAutogradChain) {
  ExpectSameAsEager([] {
    auto x = torch::ones({2}).requires_grad_();
    auto y = x;
    for (int i = 0; i < 3000; ++i) y = y * 1.0001;
    y.sum().backward();
    return Tensors{x.grad(), y.detach()};
  });
}

TEST_P(LifetimeTest, PendingBytesAreBounded) {
  constexpr int64_t kMegabyte = 1 << 20;
  const StatsDelta delta;
  const lazuli::DeviceMode mode(options().trace_bytes(8 * kMegabyte));
  Tensors kept;
  for (int i = 0; i < 32; ++i) kept.push_back(torch::full({kMegabyte / 4}, i) + 1);
  EXPECT_GE(delta.cuts("trace_limit"), 7);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(kept[i][5].item<float>(), i + 1);
}

// Inputs that the program has let go of are held by the trace alone.
TEST_P(LifetimeTest, DroppedInputsCountAsPendingBytes) {
  constexpr int64_t kMegabyte = 1 << 20;
  const auto weight = torch::ones({5 * kMegabyte / 2});
  const lazuli::DeviceMode mode(options().trace_bytes(8 * kMegabyte));
  const StatsDelta delta;
  auto total = weight.sum();
  for (int i = 0; i < 32; ++i) total = total + torch::empty({kMegabyte / 4}).uniform_().ge(0).sum() + weight[i];
  const int64_t cuts = delta.cuts("trace_limit") + delta.cuts("loop");  // Once full, a trace of this loop is cut between rounds.
  EXPECT_GE(cuts, 2);
  EXPECT_LE(cuts, 5);
  EXPECT_EQ(total.item<float>(), 2.5 * kMegabyte + 32 * (kMegabyte / 4 + 1));
}

// A loop that nobody looks at holds no more of them than others do.
TEST_P(LifetimeTest, DroppedInputsHaveABudgetOfTheirOwn) {
  LAZULI_CPU_ONLY("a GPU has more");
  constexpr int64_t kElements = 1 << 20;
  const lazuli::DeviceMode mode(options());
  const StatsDelta delta;
  for (int i = 0; i < 80; ++i) torch::relu(torch::empty({kElements}).uniform_() + 1);
  EXPECT_GE(delta.cuts("trace_limit"), 1);
}

TEST_P(LifetimeTest, DroppedResultsDoNotCountAsPendingBytes) {
  constexpr int64_t kMegabyte = 1 << 20;
  const StatsDelta delta;
  const lazuli::DeviceMode mode(options().trace_bytes(8 * kMegabyte));
  auto x = torch::ones({kMegabyte / 4});
  for (int i = 0; i < 32; ++i) x = x + 1;
  EXPECT_LE(delta.cuts("trace_limit"), 1);
  EXPECT_EQ(x[7].item<float>(), 33);
}

TEST_P(LifetimeTest, ShortTraceLimit) {
  ExpectSameAsEager(
      [] {
        auto x = torch::arange(6, torch::kFloat);
        auto view = x.slice(0, 2, 5);
        for (int i = 0; i < 10; ++i) {
          view.mul_(1.5);
          x = x + view.sum();
          view = x.slice(0, 1, 4);
        }
        return Tensors{x, view};
      },
      options().trace_limit(3));
}

TEST_P(LifetimeTest, ExceptionOfTheProgramLeavesTheModeIntact) {
  auto x = torch::ones({3});
  const auto before = lazuli::is_enabled();
  EXPECT_THROW(
      {
        const lazuli::DeviceMode mode(options());
        x.add_(1);
        throw std::runtime_error("the program's own");
      },
      std::runtime_error);
  EXPECT_EQ(lazuli::is_enabled(), before);
  EXPECT_EQ(x.sum().item<float>(), 6);
  const lazuli::DeviceMode again(options());
  EXPECT_EQ((x + 1).sum().item<float>(), 9);
}

TEST_P(LifetimeTest, TensorsOutliveTheMode) {
  torch::Tensor x;
  torch::Tensor view;
  {
    const lazuli::DeviceMode mode(options());
    x = torch::ones({4}) * 2;
    view = x.slice(0, 0, 2);
  }
  view.add_(1);
  EXPECT_EQ(x.sum().item<float>(), 10);
  const lazuli::DeviceMode mode(options());
  x.mul_(2);
  EXPECT_EQ(view.sum().item<float>(), 12);
}

TEST_P(LifetimeTest, UnusedResultsAreNotComputed) {
  const lazuli::DeviceMode mode(options());
  const auto x = torch::full({4}, 1.0);
  const auto calls_of_step = [&](bool unused) {
    const StatsDelta delta;
    if (unused) torch::mm(x.view({1, 4}), x.view({4, 1})).exp();
    EXPECT_EQ((x + 1).sum().item<float>(), 8);
    return delta.of(&Stats::aten_calls) + delta.of(&Stats::kernel_launches);
  };
  for (int i = 0; i < 2; ++i) {
    calls_of_step(true);
    calls_of_step(false);
  }
  EXPECT_EQ(calls_of_step(true), calls_of_step(false));
}

TEST_P(LifetimeTest, ModeTurnedOffAndOnAgain) {
  auto x = torch::zeros({3});
  for (int i = 0; i < 4; ++i) {
    lazuli::enable(options());
    lazuli::enable(options());
    EXPECT_TRUE(lazuli::is_enabled());
    x = x + 1;
    lazuli::disable();
    EXPECT_FALSE(lazuli::is_enabled());
    x = x * 2;
  }
  EXPECT_EQ(x[0].item<float>(), 30);
}

TEST_P(LifetimeTest, ResetInTheMiddle) {
  const lazuli::DeviceMode mode(options());
  auto x = torch::ones({3}) + 1;
  lazuli::reset();
  x = x * 2;
  EXPECT_EQ(x.sum().item<float>(), 12);
  EXPECT_EQ(lazuli::stats().traces, 1);
}

LAZULI_FOR_EACH_BACKEND(LifetimeTest);

}  // namespace
}  // namespace lazuli::testing
