#include "tracer/recorder.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <thread>

#include "lazuli/lazuli.h"
#include "tests/support/same_as_eager.h"
#include "tracer/mode.h"

namespace lazuli::tracer {
namespace {

using lazuli::testing::StatsDelta;

class RecorderTest : public ::testing::Test {
 protected:
  void SetUp() override { lazuli::reset(); }
  static Options options() { return Options().backend("aten"); }
};

TEST_F(RecorderTest, IncludesTheKeysInsideTheModeOnly) {
  EXPECT_FALSE(ModeKeysIncluded());
  {
    const lazuli::DeviceMode mode(options());
    EXPECT_TRUE(ModeKeysIncluded());
    EXPECT_NE(Recorder::Current(), nullptr);
  }
  EXPECT_FALSE(ModeKeysIncluded());
}

TEST_F(RecorderTest, EachThreadHasItsOwn) {
  const lazuli::DeviceMode mode(options());
  Recorder* other = nullptr;
  std::thread([&] {
    EXPECT_EQ(Recorder::Current(), nullptr);
    const lazuli::DeviceMode own(options());
    other = Recorder::Current();
  }).join();
  EXPECT_NE(other, nullptr);
  EXPECT_NE(other, Recorder::Current());
}

TEST_F(RecorderTest, ThreadStateCarriesItToOtherThreads) {
  const lazuli::DeviceMode mode(options());
  Recorder* const mine = Recorder::Current();
  const at::ThreadLocalState state;
  std::thread([&] {
    const at::ThreadLocalStateGuard guard(state);
    EXPECT_EQ(Recorder::Current(), mine);
    EXPECT_TRUE(ModeKeysIncluded());
  }).join();
}

TEST_F(RecorderTest, CountsOpsAndViewsApart) {
  const auto x = torch::ones({4, 4});
  const StatsDelta delta;
  const lazuli::DeviceMode mode(options());
  auto y = (x + 1).t().slice(0, 0, 2) * 2;
  lazuli::sync();
  EXPECT_EQ(delta.of(&Stats::ops_recorded), 2);
  EXPECT_EQ(delta.of(&Stats::views_recorded), 2);
  EXPECT_EQ(delta.of(&Stats::traces), 1);
  EXPECT_EQ(delta.cuts("sync"), 1);
}

TEST_F(RecorderTest, AnEmptyTraceIsNotCut) {
  const StatsDelta delta;
  const lazuli::DeviceMode mode(options());
  lazuli::sync();
  lazuli::sync();
  EXPECT_EQ(delta.of(&Stats::traces), 0);
}

TEST_F(RecorderTest, AnEagerOpOnSettledTensorsCutsNothing) {
  const auto settled = torch::ones({4});
  const lazuli::DeviceMode mode(options());
  const auto pending = torch::ones({4}) + 1;
  const StatsDelta delta;
  EXPECT_EQ(settled[2].item<float>(), 1);
  const auto random = torch::rand({4});
  EXPECT_EQ(delta.of(&Stats::traces), 0);
  const auto uncut = lazuli::stats().eager_uncut;
  EXPECT_EQ(uncut.count("aten::_local_scalar_dense"), 1U);
  EXPECT_TRUE(lazuli::stats().eager_fallbacks.empty());
  EXPECT_EQ(pending.sum().item<float>(), 8);
}

TEST_F(RecorderTest, FallbacksAreCountedByOperator) {
  const lazuli::DeviceMode mode(options());
  const StatsDelta delta;
  const auto x = torch::ones({4}) * 2;
  EXPECT_EQ(torch::nonzero(x).size(0), 4);
  EXPECT_EQ(delta.fallbacks("aten::nonzero"), 1);
  EXPECT_EQ(delta.cuts("aten::nonzero"), 1);
}

TEST_F(RecorderTest, AnOpThatIsNotRecordedLeavesNothingBehind) {
  const auto a = torch::ones({3, 4});
  const auto b = torch::ones({5, 6});
  const lazuli::DeviceMode mode(options());
  const StatsDelta delta;
  for (int i = 0; i < 3; ++i) EXPECT_THROW(torch::mm(a, b), c10::Error);
  EXPECT_EQ(delta.of(&Stats::traces), 0);
  const auto x = a.slice(1, 1, 3) + 1;
  lazuli::sync();
  EXPECT_EQ(delta.of(&Stats::ops_recorded), 1);
  EXPECT_EQ(x.sum().item<float>(), 12);
}

TEST_F(RecorderTest, InputsAreReleasedAfterTheRun) {
  auto x = torch::ones({16});
  const auto storage = x.storage().getWeakStorageImpl();
  const lazuli::DeviceMode mode(options());
  auto y = x + 1;
  x.reset();
  lazuli::sync();
  EXPECT_TRUE(storage.expired());
  EXPECT_EQ(y.sum().item<float>(), 32);
}

TEST_F(RecorderTest, TensorsAreNotHeldByTheTrace) {
  const lazuli::DeviceMode mode(options());
  auto x = torch::ones({4}) + 1;
  EXPECT_EQ(x.use_count(), 1);
  EXPECT_EQ(x.storage().use_count(), 1U);
}

TEST_F(RecorderTest, AFactorOfOneOrZeroIsPartOfTheSkeleton) {
  const auto x = torch::ones({4});
  const lazuli::DeviceMode mode(options());
  for (const double alpha : {2.0, 3.0, 4.0, 1.0, 1.0}) {
    torch::add(x, x, alpha);
    lazuli::sync();
  }
  // One program for any factor, and one for 1.
  EXPECT_EQ(lazuli::stats().programs_compiled, 2);
}

TEST_F(RecorderTest, ErrorsOfAnOpReachSyncOnce) {
  const lazuli::DeviceMode mode(options());
  const auto x = torch::ones({3});
  for (int64_t row : {0, 0, 8}) {
    const auto y = x.index({torch::full({1}, row, torch::kLong)});
    if (row == 0) {
      lazuli::sync();
    } else {
      EXPECT_THROW(lazuli::sync(), c10::IndexError);
      EXPECT_NO_THROW(lazuli::sync());
    }
  }
}

}  // namespace
}  // namespace lazuli::tracer
