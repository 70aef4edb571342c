#include "tracer/read_number.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lazuli/lazuli.h"

namespace lazuli::tracer {
namespace {

TEST(ReadNumberTest, OfEveryType) {
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16, torch::kLong, torch::kInt, torch::kShort,
                           torch::kChar, torch::kByte, torch::kBool}) {
    const torch::Tensor x = torch::tensor({0, 1, 3}).to(dtype);
    for (int64_t i = 0; i < 3; ++i) {
      const std::optional<at::Scalar> number = ReadNumber(x[i]);
      ASSERT_TRUE(number.has_value()) << dtype;
      EXPECT_EQ(number->type(), x[i].item().type()) << dtype;
      EXPECT_EQ(number->toDouble(), x[i].item().toDouble()) << dtype;
    }
  }
}

TEST(ReadNumberTest, LeavesTheUnusualToTheKernel) {
  EXPECT_FALSE(ReadNumber(torch::ones({2})).has_value());
  EXPECT_FALSE(ReadNumber(torch::ones({0})).has_value());
  EXPECT_FALSE(ReadNumber(torch::ones({}, torch::kComplexFloat)).has_value());
  EXPECT_FALSE(ReadNumber(torch::ones({}, torch::kMeta)).has_value());
  EXPECT_FALSE(ReadNumber(torch::ones({1}).to_sparse()).has_value());
}

TEST(ReadNumberTest, NothingThatIsPending) {
  const lazuli::DeviceMode mode;
  const torch::Tensor x = torch::ones({4}), sum = (x * 2).sum();
  EXPECT_FALSE(ReadNumber(sum).has_value());
  EXPECT_EQ(sum.item<float>(), 8);
  EXPECT_EQ(ReadNumber(sum)->toDouble(), 8);
  // A write that is pending.
  sum.add_(torch::ones({3}).sum());
  EXPECT_EQ(sum.item<float>(), 11);
  EXPECT_THROW(torch::ones({2}).item<float>(), c10::Error);
}

}  // namespace
}  // namespace lazuli::tracer
