// Group norm and its gradients: numbers of groups, layouts, with and without weights.
#include "tests/support/expect_launches.h"
#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

struct Case {
  std::vector<int64_t> sizes;
  int64_t groups;
  bool channels_last = false;
};

const std::vector<Case>& Cases() {
  static const auto* cases =
      new std::vector<Case>{{{3, 6}, 2},          {{2, 6, 5}, 3},    {{2, 6, 5, 7}, 1}, {{2, 6, 5, 7}, 6},   {{4, 64, 16, 16}, 8},
                            {{2, 4, 3, 4, 5}, 2}, {{1, 4, 9, 9}, 2}, {{2, 6, 1, 1}, 2}, {{4, 64, 9, 9}, 32}, {{2, 6, 5, 7}, 3, true}};
  return *cases;
}

class GroupNormTest : public BackendTest {
 protected:
  void ForEachCase(const std::function<Tensors(const torch::Tensor&, int64_t, const torch::Tensor&, const torch::Tensor&)>& run) const {
    for (const Case& c : Cases()) {
      for (torch::ScalarType dtype : {torch::kFloat, torch::kDouble, torch::kBFloat16}) {
        for (bool affine : {false, true}) {
          SCOPED_TRACE(::testing::Message() << c.sizes << " groups " << c.groups << " " << dtype << " affine " << affine);
          lazuli::reset();
          ExpectSameAsEager([&] {
            torch::Tensor x = torch::randn(c.sizes, torch::kDouble).mul(2).add(0.5).to(dtype);
            if (c.channels_last) x = x.contiguous(torch::MemoryFormat::ChannelsLast);
            const torch::Tensor weight = affine ? torch::rand({c.sizes[1]}, dtype) + 0.5 : torch::Tensor();
            return run(x, c.groups, weight, affine ? torch::randn({c.sizes[1]}, dtype) : torch::Tensor());
          });
        }
      }
    }
  }
};

TEST_P(GroupNormTest, Forward) {
  ForEachCase([](const torch::Tensor& x, int64_t groups, const torch::Tensor& weight, const torch::Tensor& bias) {
    const int64_t elements = x.numel() / x.size(0) / x.size(1);
    // CUDA's kernel takes no other layout.
    const torch::Tensor input = x.is_cuda() ? x.contiguous() : x;
    const auto [y, mean, rstd] = torch::native_group_norm(input, weight, bias, x.size(0), x.size(1), elements, groups, 1e-5);
    return Tensors{y, mean, rstd, torch::group_norm(x + 1, groups, weight, bias).relu_()};
  });
}

TEST_P(GroupNormTest, Backward) {
  ForEachCase([](const torch::Tensor& x, int64_t groups, const torch::Tensor& weight, const torch::Tensor& bias) {
    if (x.scalar_type() == torch::kBFloat16) return Tensors{x + 1};
    Tensors wanted;
    for (const torch::Tensor& t : {x, weight, bias}) {
      if (t.defined()) wanted.push_back(t.requires_grad_());
    }
    const torch::Tensor y = torch::group_norm(x, groups, weight, bias).relu();
    const torch::Tensor factors = torch::linspace(0, 1, y.numel(), y.scalar_type()).view(y.sizes());
    return torch::autograd::grad({(y * factors).sum()}, wanted);
  });
}

TEST_P(GroupNormTest, FusesWithItsNeighbours) {
  LAZULI_CPU_ONLY("how many kernels there are is the CPU's plan");
  if (exact()) return;
  const torch::Tensor x = torch::randn({4, 16, 9, 9}), weight = torch::rand({16}), bias = torch::rand({16});
  ExpectLaunches(1, [&] {
    const torch::Tensor y = torch::group_norm(x * 2, 4, weight, bias).relu() + x;
    lazuli::sync();
  });
}

LAZULI_FOR_EACH_BACKEND(GroupNormTest);

}  // namespace
}  // namespace lazuli::testing
