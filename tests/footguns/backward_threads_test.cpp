// Which threads run backward passes.

#include <c10/core/AutogradState.h>
#include <torch/torch.h>

#include <set>
#include <thread>

#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class BackwardThreadsTest : public BackendTest {
 protected:
  ~BackwardThreadsTest() override { c10::AutogradState::get_tls_state().set_multithreading_enabled(true); }
};

bool IsDivided() { return c10::AutogradState::get_tls_state().get_multithreading_enabled(); }
void Divide(bool divided) { c10::AutogradState::get_tls_state().set_multithreading_enabled(divided); }

// The threads that gradients of a small network come to hooks on.
std::set<std::thread::id> ThreadsOfHooks() {
  std::set<std::thread::id> threads;
  auto w = torch::randn({4, 4}).requires_grad_();
  auto y = torch::randn({2, 4}).mm(w).tanh();
  y.register_hook([&](const torch::Tensor& grad) {
    threads.insert(std::this_thread::get_id());
    return grad * 2;
  });
  y.square().sum().backward();
  EXPECT_TRUE(w.grad().defined());
  return threads;
}

// A custom function whose gradient runs a backward pass of its own.
class Reenters : public torch::autograd::Function<Reenters> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x) {
    context->save_for_backward({x});
    return x.sin() * x;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const torch::AutoGradMode grad_mode(true);
    auto x = context->get_saved_variables()[0].detach().requires_grad_();
    (x.sin() * x).sum().backward();
    return {x.grad() * grads[0]};
  }
};

Tensors TrainWithHooks() {
  torch::nn::Sequential net(torch::nn::Linear(6, 16), torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})), torch::nn::Linear(16, 3));
  net->to(TestDevice());
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  net->parameters()[0].register_hook([](const torch::Tensor& grad) { return grad.clamp(-0.5, 0.5); });
  const auto x = torch::randn({5, 6});
  Tensors losses;
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    auto loss = Reenters::apply(net->forward(x)).square().mean();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.detach());
  }
  for (const auto& parameter : net->parameters()) losses.push_back(parameter.detach());
  return losses;
}

TEST_P(BackwardThreadsTest, RunOnTheThreadThatStartsThem) {
  const lazuli::DeviceMode mode(options());
  EXPECT_EQ(ThreadsOfHooks(), std::set<std::thread::id>{std::this_thread::get_id()});
  EXPECT_EQ(IsDivided(), !OnGpu());
}

TEST_P(BackwardThreadsTest, OnesOfThreadsWithoutAModeAreLeftAlone) {
  const lazuli::DeviceMode mode(options());
  torch::randn({3}) + 1;
  bool divided = false;
  TestThread([&] { divided = IsDivided(); }).join();
  EXPECT_TRUE(divided);
}

TEST_P(BackwardThreadsTest, TheOptionLeavesThemToAutograd) {
  const lazuli::DeviceMode mode(options().autograd_multithreading(true));
  EXPECT_EQ(ThreadsOfHooks().count(std::this_thread::get_id()), OnGpu() ? 0 : 1);
  EXPECT_TRUE(IsDivided());
}

TEST_P(BackwardThreadsTest, TrainAsEagerlyBothWays) {
  ExpectSameAsEager(TrainWithHooks);
  lazuli::reset();
  ExpectSameAsEager(TrainWithHooks, options().autograd_multithreading(true));
}

// Off from a GPU's first operator on, until the mode ends or pauses.
TEST_P(BackwardThreadsTest, TheSettingIsTheProgramsOutsideModes) {
  const auto record = [] { torch::randn({3}) + 1; };
  {
    const lazuli::DeviceMode outer(options());
    EXPECT_TRUE(IsDivided());
    {
      const torch::NoGradGuard no_grad;
      const c10::InferenceMode inference;
      record();
    }
    EXPECT_TRUE(IsDivided());
    lazuli::sync();
    record();
    EXPECT_EQ(IsDivided(), !OnGpu());
    {
      const lazuli::DeviceMode inner(options());
      EXPECT_EQ(IsDivided(), !OnGpu());
    }
    EXPECT_EQ(IsDivided(), !OnGpu());
    {
      const lazuli::EagerScope eager;
      EXPECT_TRUE(IsDivided());
    }
    {
      const lazuli::StanceGuard stance("force_eager");
      EXPECT_TRUE(IsDivided());
    }
    record();
    EXPECT_EQ(IsDivided(), !OnGpu());
  }
  EXPECT_TRUE(IsDivided());
}

TEST_P(BackwardThreadsTest, WhatTheProgramSaysStands) {
  Divide(false);
  {
    const lazuli::DeviceMode mode(options());
    ThreadsOfHooks();
  }
  EXPECT_FALSE(IsDivided());
  Divide(true);
  {
    const lazuli::DeviceMode mode(options());
    ThreadsOfHooks();
    Divide(true);
    const lazuli::DeviceMode inner(options());
    EXPECT_EQ(ThreadsOfHooks().count(std::this_thread::get_id()), OnGpu() ? 0 : 1);
    EXPECT_TRUE(IsDivided());
  }
  EXPECT_TRUE(IsDivided());
}

TEST_P(BackwardThreadsTest, ErrorsLeaveThemAsTheyWere) {
  const lazuli::DeviceMode mode(options());
  auto x = torch::randn({3, 3}).requires_grad_();
  auto y = x.exp();
  y.register_hook([](const torch::Tensor&) { throw std::runtime_error("no gradient for you"); });
  try {
    y.sum().backward();
    FAIL() << "threw nothing";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("no gradient for you"), std::string::npos) << error.what();
  }
  EXPECT_FALSE(x.grad().defined());
  EXPECT_EQ(ThreadsOfHooks(), std::set<std::thread::id>{std::this_thread::get_id()});
}

// Each thread's backward passes run beside the others', and accumulate into the same gradients.
TEST_P(BackwardThreadsTest, ThreadsAddToOneGradient) {
  auto w = torch::randn({8, 8}).requires_grad_();
  w.mutable_grad() = torch::zeros({8, 8});
  const auto once = [](const torch::Tensor& weights) { (weights * 2).sum().backward(); };
  const auto run = [&] {
    const lazuli::DeviceMode mode(options());
    for (int i = 0; i < 25; ++i) once(w);
    lazuli::sync();
  };
  const StatsDelta delta;
  std::thread first = TestThread(run);
  std::thread second = TestThread(run);
  first.join();
  second.join();
  EXPECT_TRUE(w.grad().eq(2 * 2 * 25).all().item<bool>()) << w.grad();
  EXPECT_GT(delta.of(&Stats::ops_recorded), 0);
}

LAZULI_FOR_EACH_BACKEND(BackwardThreadsTest);

}  // namespace
}  // namespace lazuli::testing
