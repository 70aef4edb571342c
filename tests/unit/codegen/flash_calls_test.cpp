#include "codegen/products/flash_calls.h"

#include <gtest/gtest.h>

namespace lazuli::codegen {
namespace {

TEST(FlashCallsTest, APlanPaysOnceSizesCameOftenEnough) {
  const int64_t sizes[] = {8, 12, 1024, 1024, 64, 1, 0}, others[] = {8, 12, 1025, 1025, 64, 1, 0};
  constexpr double kMultiplications = 8e12;  // 16 ms that cuDNN would have spared, of 40 that a plan takes.
  for (int call = 0; call < 3; ++call) EXPECT_FALSE(PlanPays(sizes, kMultiplications)) << call;
  EXPECT_TRUE(PlanPays(sizes, kMultiplications));
  EXPECT_TRUE(PlanPays(sizes, 1));
  EXPECT_FALSE(PlanPays(others, kMultiplications));
}

TEST(FlashCallsTest, SmallAttentionNeedsNoPlanForLong) {
  const int64_t sizes[] = {1, 12, 1, 100, 64, 0, 0};
  for (int call = 0; call < 10000; ++call) ASSERT_FALSE(PlanPays(sizes, 2.0 * 12 * 100 * 64)) << call;
}

}  // namespace
}  // namespace lazuli::codegen
