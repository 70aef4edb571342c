// Losses of operands whose sizes LibTorch takes for the same, though broadcasting would bring other elements together.
#include <ATen/ops/binary_cross_entropy.h>

#include "tests/support/error_of.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

class LossSizesTest : public BackendTest {};

TEST_P(LossSizesTest, BinaryCrossEntropyLeavesOutOnes) {
  const std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> sizes = {
      {{20, 1}, {20}}, {{20}, {20, 1}},  {{20, 1}, {1, 20}}, {{6, 1, 5}, {6, 5}}, {{6, 5}, {6, 1, 5}}, {{1, 20}, {20}},
      {{20}, {1, 20}}, {{4, 1, 1}, {4}}, {{4, 1}, {2, 2}},   {{6, 1, 6}, {6, 6}}, {{5, 1}, {1, 5}}};
  int taken = 0;
  for (const auto& pair : sizes) {
    const auto &of_input = pair.first, &of_target = pair.second;
    for (const auto reduction : {at::Reduction::None, at::Reduction::Mean, at::Reduction::Sum}) {
      for (const bool weighted : {false, true}) {
        SCOPED_TRACE(::testing::PrintToString(of_input) + " " + ::testing::PrintToString(of_target));
        const auto program = [&] {
          const auto input = torch::rand(of_input).requires_grad_(), target = torch::rand(of_target);
          const auto weight = weighted ? torch::rand(of_input) : torch::Tensor();
          at::binary_cross_entropy(input, target, weight, reduction).sum().backward();
          return Tensors{input.grad()};
        };
        if (ErrorOf(program) != "no error") continue;
        ++taken;
        lazuli::reset();
        ExpectSameAsEager(program, options(), /*runs=*/4);
      }
    }
  }
  EXPECT_GT(taken, 50);
}

LAZULI_FOR_EACH_BACKEND(LossSizesTest);

}  // namespace
}  // namespace lazuli::testing
