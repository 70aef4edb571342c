#include "codegen/cuda/other_plans.h"

#include <gtest/gtest.h>

#include "runtime/compile_pool.h"
#include "runtime/counters.h"
#include "runtime/options.h"

namespace lazuli::codegen {
namespace {

// Says nothing but which hints it was planned with.
class Planned : public CompiledKernel {
 public:
  explicit Planned(std::vector<int64_t> hints) : hints_(std::move(hints)) {}
  const std::vector<int64_t>& hints() const { return hints_; }
  void Run(void* const*, const uint64_t*, const int64_t*) const override {}
  void RunUnits(void* const*, const uint64_t*, const int64_t*, int64_t, int64_t) const override {}
  bool Walks(int) const override { return false; }
  UnitWalk WalkOf(int, const int64_t*) const override { return {}; }
  bool CanBatch() const override { return false; }
  void RunFirstOfBatch(absl::Span<const runtime::BoundKernel>) const override {}

 private:
  const std::vector<int64_t> hints_;
};

class OtherPlansTest : public ::testing::Test {
 protected:
  void TearDown() override { ASSERT_TRUE(runtime::ActivateOptions(Options()).ok()); }
  OtherPlans Plans(std::vector<int64_t> hints) {
    return OtherPlans(std::move(hints), [this](absl::Span<const int64_t> now) -> absl::StatusOr<std::shared_ptr<const CompiledKernel>> {
      ++made_;
      if (now[0] == 7) return absl::InternalError("cannot be compiled");
      if (now[0] == 9) return nullptr;
      return std::make_shared<const Planned>(std::vector<int64_t>(now.begin(), now.end()));
    });
  }
  static const std::vector<int64_t>* HintsOf(const CompiledKernel* kernel) {
    return kernel == nullptr ? nullptr : &dynamic_cast<const Planned*>(kernel)->hints();
  }
  static const CompiledKernel* For(const OtherPlans& plans, std::vector<int64_t> symbols) { return plans.For(symbols.data()); }

  int made_ = 0;
};

TEST_F(OtherPlansTest, EachClassOfSizesHasItsOwn) {
  ASSERT_TRUE(runtime::ActivateOptions(Options().async(false)).ok());
  const OtherPlans plans = Plans({1000, 64});
  for (const int64_t near : {513, 1000, 1024, 2047, 256}) EXPECT_EQ(For(plans, {near, 64}), nullptr) << near;
  EXPECT_EQ(made_, 0);
  const CompiledKernel* const few = For(plans, {64, 64});
  ASSERT_NE(few, nullptr);
  EXPECT_EQ(*HintsOf(few), (std::vector<int64_t>{64, 64}));
  EXPECT_EQ(For(plans, {200, 100}), few);
  const CompiledKernel* const many = For(plans, {64, 6400});
  ASSERT_NE(many, nullptr);
  EXPECT_NE(many, few);
  EXPECT_EQ(For(plans, {64, 64}), few);
  EXPECT_EQ(made_, 2);
}

TEST_F(OtherPlansTest, WhatIsNoBetterIsNotMadeAgain) {
  ASSERT_TRUE(runtime::ActivateOptions(Options().async(false)).ok());
  const OtherPlans plans = Plans({4000});
  for (int time = 0; time < 3; ++time) {
    EXPECT_EQ(For(plans, {9}), nullptr);
    EXPECT_EQ(For(plans, {70000}) != nullptr, true);
  }
  EXPECT_EQ(made_, 2);
  const OtherPlans fails = Plans({4000});
  for (int time = 0; time < 3; ++time) EXPECT_EQ(For(fails, {7}), nullptr);
  EXPECT_EQ(made_, 3);
}

TEST_F(OtherPlansTest, CompiledInTheBackground) {
  ASSERT_TRUE(runtime::ActivateOptions(Options().async(true)).ok());
  const int64_t before = runtime::Counters::Get().kernels_replanned.value();
  const OtherPlans plans = Plans({4000});
  EXPECT_EQ(For(plans, {16}), nullptr);
  runtime::CompilePool::Get().Wait();
  EXPECT_NE(For(plans, {17}), nullptr);
  EXPECT_EQ(made_, 1);
  EXPECT_EQ(runtime::Counters::Get().kernels_replanned.value(), before + 1);
}

TEST_F(OtherPlansTest, ThereAreOnlySoMany) {
  ASSERT_TRUE(runtime::ActivateOptions(Options().async(false)).ok());
  const OtherPlans plans = Plans({1});
  for (int64_t size = 1; size < (int64_t{1} << 40); size *= 2) For(plans, {size});
  EXPECT_EQ(made_, 8);
}

}  // namespace
}  // namespace lazuli::codegen
