// Where maxima and minima are: the first of equal ones, of NaN before all others, in rows, columns and all of a tensor.
#include <torch/torch.h>

#include "tests/support/differential.h"
#include "tests/support/expect_launches.h"

namespace lazuli::testing {
namespace {

// `x` with many equal elements.
torch::Tensor Ties(const torch::Tensor& x) { return x.clamp(-1, 1); }

// Rows of thousands of elements, each of them several times.
torch::Tensor Long(const torch::Tensor& x) { return x.flatten().expand({2200, -1}).reshape({2, -1}).slice(1, 0, 5003); }

const std::vector<OpCase>& ArgReduceOps() {
  static const auto* ops = new std::vector<OpCase>{
      LAZULI_UNARY("argmax of ties", kAny, kExact, Ties(x).argmax(-1)),
      LAZULI_UNARY("argmin of ties", kAny, kExact, Ties(x).argmin(-1, true)),
      LAZULI_UNARY("argmax of columns", kAny, kExact, Ties(x).argmax(0)),
      LAZULI_UNARY("argmin of columns", kAny, kExact, (x + 1).argmin(0, true)),
      LAZULI_UNARY("argmax of all", kAny, kExact, Ties(x).argmax()),
      LAZULI_UNARY("argmin of all keepdim", kAny, kExact, x.argmin(std::nullopt, true)),
      LAZULI_UNARY("argmax in the middle", kAny, kExact, x.unsqueeze(-1).expand({-1, -1, 3}).argmax(1) * 2),
      LAZULI_UNARY("argmax of one", kAny, kExact, x.unsqueeze(-1).argmax(-1)),
      LAZULI_UNARY("argmin of long rows", kAny, kExact, Long(x).argmin(1)),
      LAZULI_UNARY("argmax of long columns", kAny, kExact, Long(x).t().argmax(0)),
      LAZULI_UNARY("argmax of zeros", kAny, kExact, (x * 0).argmax(-1)),
      LAZULI_UNARY("argmin of zeros", kFinite, kExact, (x * 0).argmin(0)),
      LAZULI_UNARY("max of ties", kAny, kExact, All((x.clamp(2, 5) * 2).max(-1))),
      LAZULI_UNARY("min of ties", kAny, kExact, All(x.clamp(2, 5).min(0, true))),
      LAZULI_UNARY("max of long rows", kFinite, kExact, All(Long(x).max(1))),
      LAZULI_UNARY("indices alone", kAny, kExact, std::get<1>(x.max(-1))),
      LAZULI_UNARY("values alone", kFinite, kExact, std::get<0>((x + 3).min(-1))),
      LAZULI_UNARY("aminmax of rows", kFinite, kExact, All(x.aminmax(-1, true))),
      LAZULI_UNARY("aminmax of columns", kFinite, kExact, All((x + 2).aminmax(0))),
      LAZULI_UNARY("one of each row", kFinite, kExact, x.gather(-1, x.argmax(-1, true)) - x.amax(-1, true)),
      LAZULI_UNARY("argmax of a softmax", kFinite, kExact, (x.softmax(-1) * 0 + x).argmax(-1)),
      LAZULI_UNARY("places as numbers", kFinite, kExact, (x.argmax(-1, true) == x.argmin(-1, true)).to(torch::kFloat)),
  };
  return *ops;
}

class ArgReduceOpsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ArgReduceOpsTest, Values) { RunDifferential("arg_reduce", GetParam(), ArgReduceOps()); }

TEST_P(ArgReduceOpsTest, Gradients) {
  const std::vector<OpCase> ops = {
      LAZULI_UNARY("max dim", kFinite, kExact, std::get<0>((x * 2).max(-1))),
      LAZULI_UNARY("min dim", kFinite, kExact, std::get<0>(x.min(0, true)) * 3),
      LAZULI_UNARY("aminmax", kFinite, kExact, std::get<1>(x.aminmax(0)) - std::get<0>(x.aminmax(0))),
  };
  RunGradients("arg_reduce", GetParam(), ops);
}

LAZULI_BOTH_BACKENDS(ArgReduceOpsTest);

TEST(ArgReduceLaunches, TheNearestCentre) {
  const torch::Tensor x = torch::randn({300, 3}), centres = torch::randn({20, 3});
  ExpectLaunches(1, [&] {
    const torch::Tensor nearest = (x.unsqueeze(1) - centres).square().sum(-1).argmin(1);
    lazuli::sync();
  });
}

TEST(ArgReduceLaunches, ValuesAndPlacesOfRows) {
  const torch::Tensor x = torch::randn({300, 70});
  ExpectLaunches(1, [&] {
    const auto [values, places] = (x * 2 + 1).max(1);
    const torch::Tensor product = values * places;
    lazuli::sync();
  });
}

}  // namespace
}  // namespace lazuli::testing
