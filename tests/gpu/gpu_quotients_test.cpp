// Division by numbers: ATen's CUDA kernels multiply by the inverse of a number, but divide by those of a list. Skipped without a GPU.
#include <ATen/ops/_foreach_div.h>
#include <torch/torch.h>

#include "tests/support/gpu_modes.h"

namespace lazuli::testing {
namespace {

class GpuQuotientsTest : public OnGpuTest {
 protected:
  static constexpr torch::ScalarType kDtypes[] = {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16};
};

TEST_F(GpuQuotientsTest, OfTensors) {
  for (const auto dtype : kDtypes) {
    SCOPED_TRACE(c10::toString(dtype));
    torch::manual_seed(1);
    const auto x = torch::randn({10000}, OnGpu(torch::kDouble)).to(dtype), y = torch::rand({10000}, OnGpu(torch::kDouble)).to(dtype) + 0.5;
    const auto of_integers = torch::arange(10000, OnGpu(torch::kLong));
    ExpectEqualByKernels([&] {
      auto updated = x.clone();
      updated.div_(0.7);
      return Tensors{x / 3, x / 0.1, x / y, 2.5 / x, x / 1e-30, x / 0, of_integers / 7, updated, torch::neg(x / 49) / 10};
    });
  }
}

TEST_F(GpuQuotientsTest, OfLists) {
  for (const auto dtype : kDtypes) {
    SCOPED_TRACE(c10::toString(dtype));
    torch::manual_seed(2);
    const auto x = torch::randn({10000}, OnGpu(torch::kDouble)).to(dtype), y = torch::randn({100, 33}, OnGpu(torch::kDouble)).to(dtype);
    ExpectEqualByKernels([&] {
      Tensors results = at::_foreach_div(Tensors{x, y}, 0.1);
      for (const auto& each : at::_foreach_div(Tensors{x, y}, std::vector<at::Scalar>{3.0, 0.7})) results.push_back(each);
      Tensors updated = {x.clone(), y.clone()};
      at::_foreach_div_(updated, 0.3);
      at::_foreach_div_(updated, std::vector<at::Scalar>{7.0, 11.0});
      results.insert(results.end(), updated.begin(), updated.end());
      return results;
    });
  }
}

}  // namespace
}  // namespace lazuli::testing
