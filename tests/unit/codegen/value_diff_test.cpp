#include "codegen/value_diff.h"

#include <gmock/gmock.h>
#include <torch/types.h>

#include <cmath>
#include <limits>

namespace lazuli::codegen {
namespace {

using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

// The index of the first difference, or -1.
int64_t IndexOf(const std::vector<double>& expected, const std::vector<double>& actual, const Tolerance& tolerance = {},
                c10::ScalarType type = torch::kFloat) {
  const auto difference =
      FirstValueDifference(torch::tensor(expected, torch::kDouble).to(type), torch::tensor(actual, torch::kDouble).to(type), tolerance);
  return difference.has_value() ? difference->index : -1;
}

TEST(ValueDiffTest, EqualBits) {
  EXPECT_EQ(IndexOf({1, -2, kInf, -kInf, kNan, 0}, {1, -2, kInf, -kInf, kNan, 0}), -1);
  EXPECT_EQ(IndexOf({}, {}), -1);
}

TEST(ValueDiffTest, TheFirstOfSeveral) { EXPECT_EQ(IndexOf({1, 2, 3, 4}, {1, 2, 5, 6}), 2); }

TEST(ValueDiffTest, WithoutAToleranceEveryBitCounts) {
  EXPECT_EQ(IndexOf({0.0}, {-0.0}), 0);
  EXPECT_EQ(IndexOf({1}, {std::nextafter(1.0F, 2.0F)}), 0);
  EXPECT_EQ(IndexOf({1}, {std::nextafter(1.0, 2.0)}, {}, torch::kDouble), 0);
}

TEST(ValueDiffTest, UlpsAreOfEachElement) {
  const double ulp = std::numeric_limits<float>::epsilon();
  EXPECT_EQ(IndexOf({1, 1024}, {1 + 2 * ulp, 1024 * (1 + 2 * ulp)}, {2, 0}), -1);
  EXPECT_EQ(IndexOf({1, 1024}, {1 + 3 * ulp, 1024}, {2, 0}), 0);
  EXPECT_EQ(IndexOf({1.0}, {1.0 + 1.0 / 128}, {1, 0}, torch::kBFloat16), -1);
  EXPECT_EQ(IndexOf({1.0}, {1.0 + 3.0 / 128}, {2, 0}, torch::kBFloat16), 0);
}

TEST(ValueDiffTest, ScaleIsOfTheLargest) {
  const double ulp = std::numeric_limits<float>::epsilon();
  EXPECT_EQ(IndexOf({1, 1024}, {1 + 1000 * ulp, 1024}, {0, 1}), -1);
  EXPECT_EQ(IndexOf({1, 1024}, {1 + 1100 * ulp, 1024}, {0, 1}), 0);
}

TEST(ValueDiffTest, NoToleranceMovesWhatIsNotFinite) {
  const Tolerance wide{1e30, 1e30};
  EXPECT_EQ(IndexOf({kInf}, {1}, wide), 0);
  EXPECT_EQ(IndexOf({1}, {kInf}, wide), 0);
  EXPECT_EQ(IndexOf({kInf}, {-kInf}, wide), 0);
  EXPECT_EQ(IndexOf({kNan}, {1}, wide), 0);
  EXPECT_EQ(IndexOf({1}, {kNan}, wide), 0);
}

TEST(ValueDiffTest, IntegersAreNeverOff) {
  const auto a = torch::tensor({int64_t{1} << 53, (int64_t{1} << 53) + 1}), b = torch::tensor({int64_t{1} << 53, int64_t{1} << 53});
  const auto difference = FirstValueDifference(a, b, {1e30, 1e30});
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->text, "element 1: expected 9007199254740993, got 9007199254740992");
  EXPECT_FALSE(FirstValueDifference(torch::tensor({true, false}), torch::tensor({true, false}), {}).has_value());
  EXPECT_TRUE(FirstValueDifference(torch::tensor({true, false}), torch::tensor({true, true}), {}).has_value());
}

TEST(ValueDiffTest, ComplexNumbersByTheirParts) {
  const auto a = torch::complex(torch::ones({2}), torch::ones({2})), b = torch::complex(torch::ones({2}), torch::tensor({1.0F, 2.0F}));
  EXPECT_EQ(FirstValueDifference(a, b, {})->index, 3);
  EXPECT_EQ(LargestDifference(a, b), 1);
}

TEST(ValueDiffTest, SaysByHowMuch) {
  const auto difference = FirstValueDifference(torch::tensor({1.0F}), torch::tensor({1.5F}), {4, 0});
  EXPECT_EQ(difference->expected, "1");
  EXPECT_EQ(difference->actual, "1.5");
  EXPECT_THAT(difference->text, HasSubstr("element 0: expected 1, got 1.5 (off by 4194304 ulp, 4 allowed)"));
}

TEST(ValueDiffTest, LargestDifference) {
  const auto largest = [](const std::vector<double>& a, const std::vector<double>& b) {
    return lazuli::codegen::LargestDifference(torch::tensor(a, torch::kDouble), torch::tensor(b, torch::kDouble));
  };
  EXPECT_EQ(largest({1, 2, kNan, kInf}, {1.5, 4, kNan, kInf}), 2);
  EXPECT_EQ(largest({1}, {kInf}), kInf);
  EXPECT_EQ(largest({1}, {kNan}), kInf);
  EXPECT_EQ(largest({}, {}), 0);
}

}  // namespace
}  // namespace lazuli::codegen
