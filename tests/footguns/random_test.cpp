// Random numbers, and work that must happen exactly once.

#include <torch/library.h>

#include <atomic>

#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

std::atomic<int> custom_calls{0};

torch::Tensor CountedDouble(const torch::Tensor& x) {
  ++custom_calls;
  return x * 2;
}

TORCH_LIBRARY(lazuli_footguns, m) {
  m.def("counted_double(Tensor x) -> Tensor");
  m.impl("counted_double", torch::kCPU, &CountedDouble);
  m.impl("counted_double", torch::kCUDA, &CountedDouble);
}

torch::Tensor CallCounted(const torch::Tensor& x) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("lazuli_footguns::counted_double", "").typed<torch::Tensor(const torch::Tensor&)>();
  return op.call(x);
}

class RandomTest : public BackendTest {};

TEST_P(RandomTest, NumbersComeInProgramOrder) {
  ExpectSameAsEager([] {
    auto a = torch::rand({5});
    auto b = torch::randn({5});
    auto c = torch::empty({5}).uniform_(-1, 1);
    auto d = torch::bernoulli(torch::full({5}, 0.5));
    auto e = torch::randint(100, {5});
    auto f = torch::randperm(7);
    auto g = torch::multinomial(a + 0.1, 3);
    auto h = torch::empty({4}).normal_(1, 2) + torch::empty({4}).exponential_();
    return Tensors{a + b, c, d, e, f, g, h, torch::rand_like(a) * torch::randn_like(b)};
  });
}

TEST_P(RandomTest, SeedSetBetweenOps) {
  ExpectSameAsEager([] {
    auto a = torch::rand({4});
    torch::manual_seed(3);
    auto b = torch::rand({4});
    auto c = a + b;
    torch::manual_seed(3);
    auto d = torch::rand({4});
    return Tensors{a, b, c, d, b - d};
  });
}

TEST_P(RandomTest, GeneratorStateSavedAndRestored) {
  LAZULI_CPU_ONLY("generators are of one device");
  ExpectSameAsEager([] {
    auto generator = at::detail::getDefaultCPUGenerator();
    auto before = torch::rand({3}) * 2;
    const auto state = generator.get_state();
    auto first = torch::rand({3}) * 2;
    generator.set_state(state);
    auto second = torch::rand({3}) * 2;
    auto own = torch::make_generator<at::CPUGeneratorImpl>(17);
    auto third = torch::rand({3}, own) + torch::randn({3}, own);
    return Tensors{before, first, second, first - second, third};
  });
}

TEST_P(RandomTest, DropoutDrawsTheSameMasksForwardAndBackward) {
  ExpectSameAsEager([] {
    auto x = torch::ones({8, 8}).requires_grad_();
    auto y = torch::dropout(x, 0.3, true);
    auto z = torch::feature_dropout(y.view({2, 4, 8}), 0.5, true);
    auto u = torch::alpha_dropout(z, 0.2, true);
    u.sum().backward();
    return Tensors{y, z, u, x.grad(), torch::dropout(x.detach(), 0.3, false)};
  });
}

TEST_P(RandomTest, NothingRunsTwiceAroundItem) {
  ExpectSameAsEager([] {
    auto x = torch::zeros({4});
    double total = 0;
    for (int i = 0; i < 5; ++i) {
      x.add_(1);
      x.add_(torch::rand({4}));
      total += x.sum().item<double>();
      x.mul_(0.5);
    }
    return Tensors{x, torch::full({1}, total)};
  });
}

TEST_P(RandomTest, CustomOperatorRunsOncePerCall) {
  const lazuli::DeviceMode mode(options());
  custom_calls = 0;
  auto x = torch::ones({3});
  constexpr int kCalls = 6;
  for (int i = 0; i < kCalls; ++i) {
    x = CallCounted(x + 1);
    if (i % 2 == 0) {
      EXPECT_GT(x.sum().item<float>(), 0);
      EXPECT_EQ(custom_calls, i + 1);
    }
    // Reading again must not run anything again.
    x[0].item<float>();
  }
  EXPECT_EQ(x[0].item<float>(), 190);
  EXPECT_EQ(custom_calls, kCalls);
}

TEST_P(RandomTest, DataDependentShapesCutOnceAndContinue) {
  ExpectSameAsEager([] {
    auto x = torch::randn({10});
    auto positive = x.masked_select(x > 0);
    auto indices = torch::nonzero(x > 0);
    auto unique = std::get<0>(at::_unique(torch::randint(4, {20})));
    return Tensors{positive * 2, indices + 1, unique, x.index({x < 0}) - 1};
  });
}

TEST_P(RandomTest, ControlFlowOnValues) {
  ExpectSameAsEager([] {
    auto x = torch::full({3}, 1.0);
    int steps = 0;
    while (x.sum().item<float>() < 100) {
      x = x * 1.5 + 0.25;
      ++steps;
    }
    if ((x > 30).any().item<bool>()) x = x - 1;
    return Tensors{x, torch::full({1}, steps)};
  });
}

LAZULI_FOR_EACH_BACKEND(RandomTest);

}  // namespace
}  // namespace lazuli::testing
