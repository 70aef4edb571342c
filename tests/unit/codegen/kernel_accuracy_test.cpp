// Functions over a dense sample of all floats, and over random doubles, against wider types. lazuli-ulp tries all floats.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tools/function_accuracy.h"

namespace lazuli::testing {
namespace {

// A prime, so that low bits vary.
constexpr uint64_t kStep = 16001;
constexpr int64_t kDoubles = 50000;

class KernelAccuracy : public ::testing::TestWithParam<std::string> {};

TEST_P(KernelAccuracy, WithinTheBounds) {
  for (const tools::MeasuredFunction& function : tools::MeasuredFunctions()) {
    const auto accuracy = tools::MeasureFloats(function, {GetParam(), "eager"}, kStep);
    ASSERT_TRUE(accuracy.ok()) << accuracy.status();
    EXPECT_GT(accuracy->measured, 250000);
    EXPECT_LE(accuracy->worst, function.float_bound)
        << function.name << "(" << accuracy->worst_at << ", " << accuracy->worst_with << ") on " << GetParam();
  }
}

TEST_P(KernelAccuracy, DoublesWithinTheBounds) {
  for (const tools::MeasuredFunction& function : tools::MeasuredFunctions()) {
    const auto accuracy = tools::MeasureDoubles(function, {GetParam(), "eager"}, kDoubles);
    ASSERT_TRUE(accuracy.ok()) << accuracy.status();
    EXPECT_EQ(accuracy->measured, kDoubles);
    EXPECT_LE(accuracy->worst, function.double_bound)
        << function.name << "(" << accuracy->worst_at << ", " << accuracy->worst_with << ") on " << GetParam();
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, KernelAccuracy, ::testing::Values("avx512", "avx2"));

TEST(UlpsBetween, CountsFromTheTrueValue) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(tools::UlpsBetween(1.0f, 1.0), 0);
  EXPECT_EQ(tools::UlpsBetween(std::nextafter(1.0f, 2.0f), 1.0), 1);
  EXPECT_EQ(tools::UlpsBetween(std::nanf(""), std::nan("")), 0);
  EXPECT_TRUE(std::isinf(tools::UlpsBetween(-0.0f, 0.0)));
  EXPECT_TRUE(std::isinf(tools::UlpsBetween(1.0f, std::nan(""))));
  EXPECT_TRUE(std::isinf(tools::UlpsBetween(kInfinity, 1.0)));
  EXPECT_EQ(tools::UlpsBetween(kInfinity, 1e300), 0);
}

}  // namespace
}  // namespace lazuli::testing
