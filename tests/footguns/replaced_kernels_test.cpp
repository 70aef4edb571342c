// Kernels that the program has put in place of LibTorch's: they are called, as in eager mode, once for each call.
#include <torch/library.h>

#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

int kernel_calls = 0, autograd_calls = 0;

torch::Tensor OwnHardswish(const torch::Tensor& x) {
  ++kernel_calls;
  return x * 100;
}
torch::Tensor OwnHardsigmoid(c10::DispatchKeySet keys, const torch::Tensor& x) {
  ++autograd_calls;
  return at::_ops::hardsigmoid::redispatch(keys & c10::after_autograd_keyset, x) + 100;
}
// One for the CPU of an operator that is pieces otherwise.
torch::Tensor OwnDistance(const torch::Tensor& x, const torch::Tensor& y, double /*p*/, double /*eps*/, bool /*keepdim*/) {
  ++kernel_calls;
  return (x - y).abs() + 100;
}

// No other test in this folder calls these operators.
TORCH_LIBRARY_IMPL(aten, CPU, m) {
  m.impl("hardswish", &OwnHardswish);
  m.impl("pairwise_distance", &OwnDistance);
}
TORCH_LIBRARY_IMPL(aten, AutogradCPU, m) { m.impl("hardsigmoid", &OwnHardsigmoid); }
TORCH_LIBRARY_IMPL(aten, AutogradCUDA, m) { m.impl("hardsigmoid", &OwnHardsigmoid); }

class ReplacedKernelsTest : public BackendTest {
 protected:
  static void SetUpTestSuite() {
    if (!OnGpu()) return;
    // LibTorch's library for GPUs is opened late, and its kernels would come on top of one that was there before.
    static auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
    library->impl("hardswish", &OwnHardswish);
  }
};

TEST_P(ReplacedKernelsTest, OfADevice) {
  const auto program = [] {
    const auto x = torch::linspace(-4, 4, 20) * 2;
    return Tensors{torch::hardswish(x) + 1, torch::hardswish(x.exp()) * x};
  };
  kernel_calls = 0;
  ExpectSameAsEager(program);
  EXPECT_EQ(kernel_calls, 2 * (1 + kRuns));
}

TEST_P(ReplacedKernelsTest, OfAnOperatorThatIsPieces) {
  LAZULI_CPU_ONLY("the kernel is for the CPU");
  const auto program = [] {
    const auto x = torch::randn({4, 5}) * 2, y = torch::randn({4, 5});
    return Tensors{torch::pairwise_distance(x, y) + 1};
  };
  kernel_calls = 0;
  ExpectSameAsEager(program);
  EXPECT_EQ(kernel_calls, 1 + kRuns);
}

TEST_P(ReplacedKernelsTest, OfAutograd) {
  const auto program = [] {
    const auto x = torch::linspace(-4, 4, 20) * 2;
    return Tensors{torch::hardsigmoid(x) + 1, x * 3};
  };
  autograd_calls = 0;
  ExpectSameAsEager(program);
  EXPECT_EQ(autograd_calls, 1 + kRuns);
}

// While there are modes, and programs with the operator; and of an operator that calls with a number are recorded as.
TEST_P(ReplacedKernelsTest, LaterThanTheFirstMode) {
  const bool first = GetParam() == "aten";  // Kernels are put in place once a process.
  const auto program = [] {
    const auto x = torch::linspace(-4, 4, 20) * 2;
    return Tensors{torch::mish(x) + 1, torch::bitwise_xor(x.to(torch::kInt), 3) * 2};
  };
  if (first) ExpectSameAsEager(program);
  static const auto* library = [] {
    auto* made = new torch::Library(torch::Library::IMPL, "aten", std::nullopt, __FILE__, __LINE__);
    for (const torch::DeviceType device : {torch::kCPU, torch::kCUDA}) {
      made->impl("mish", torch::dispatch(device, &OwnHardswish));
      made->impl("bitwise_xor.Tensor",
                 torch::dispatch(device, [](const torch::Tensor& x, const torch::Tensor& y) { return OwnHardswish(x) + y; }));
    }
    return made;
  }();
  ASSERT_NE(library, nullptr);
  kernel_calls = 0;
  ExpectSameAsEager(program);
  EXPECT_EQ(kernel_calls, 2 * (1 + kRuns));
}

LAZULI_FOR_EACH_BACKEND(ReplacedKernelsTest);

}  // namespace
}  // namespace lazuli::testing
