// FullGraph: a graph break throws, names its cause and its place, and loses nothing.

#include <gmock/gmock.h>

#include <future>
#include <thread>

#include "tests/support/error_of.h"
#include "tests/support/same_as_eager.h"
#include "tests/support/step_aside.h"

// The program: frames of namespace lazuli are never taken for it.
namespace program {

constexpr int kLine = __LINE__ + 1;
__attribute__((noinline)) float Read(const torch::Tensor& x) { return x.item<float>() + 1; }

}  // namespace program

namespace lazuli::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

class FullGraphTest : public BackendTest {
 protected:
  static torch::Tensor Sum(int64_t size) { return (torch::ones({size}) * 2 + 1).sum(0); }

  static void ExpectBreak(const std::string& cause, const std::function<void()>& run) {
    const Stats before = lazuli::stats();
    EXPECT_THAT(ErrorOf(run), HasSubstr("lazuli: graph break in a full graph: " + cause));
    EXPECT_EQ(lazuli::stats().traces, before.traces);
    EXPECT_EQ(lazuli::stats().cuts, before.cuts);
    EXPECT_EQ(lazuli::stats().eager_fallbacks, before.eager_fallbacks);
  }
};

TEST_P(FullGraphTest, ReadingDataNamesTheOperatorAndThePlace) {
  const lazuli::DeviceMode mode(options());
  const torch::Tensor y = Sum(4);
  {
    const lazuli::FullGraph full;
    const std::string error = ErrorOf([&] { program::Read(y); });
    EXPECT_THAT(error, HasSubstr("graph break in a full graph: aten::_local_scalar_dense"));
    EXPECT_THAT(error, AnyOf(HasSubstr("at fullgraph_test.cpp:" + std::to_string(program::kLine)), HasSubstr("at program::Read")));
    EXPECT_THAT(error, HasSubstr("4 recorded operators stay pending"));
    EXPECT_THAT(error, HasSubstr("torch::where"));
  }
  EXPECT_EQ(lazuli::stats().traces, 0);
  EXPECT_EQ(lazuli::stats().eager_fallbacks.size(), 0U);
  EXPECT_EQ(program::Read(y), 13);
  EXPECT_EQ(lazuli::stats().traces, 1);
  EXPECT_EQ(lazuli::stats().programs_compiled, 1);
}

TEST_P(FullGraphTest, EveryKindOfBreak) {
  const lazuli::DeviceMode mode(options());
  const torch::Tensor y = torch::arange(4, torch::kFloat) * 2;
  {
    const lazuli::FullGraph full;
    ExpectBreak("the data of a pending tensor is accessed (data_ptr)", [&] { y.data_ptr<float>(); });
    ExpectBreak("the data of a pending tensor is accessed (data_ptr)", [&] { y.accessor<float, 1>(); });
    ExpectBreak("lazuli::sync() runs what is pending", [] { lazuli::sync(); });
    ExpectBreak("aten::equal cannot be recorded", [&] { (void)torch::equal(y, y); });
    ExpectBreak("aten::_local_scalar_dense cannot be recorded", [&] { (void)(y.sum() > 1).item<bool>(); });
    // The work goes on.
    EXPECT_TRUE(lazuli::is_enabled());
    const torch::Tensor z = y + 1;
    ExpectBreak("aten::_local_scalar_dense", [&] { z[2].item<float>(); });
  }
  EXPECT_EQ(y.data_ptr<float>()[3], 6);
  EXPECT_TRUE(torch::equal(y, y));
  EXPECT_EQ(lazuli::stats().traces, 1);
}

TEST_P(FullGraphTest, TheEndOfTheScopeCutsNothing) {
  const lazuli::DeviceMode mode(options());
  torch::Tensor y = Sum(3);
  {
    const lazuli::FullGraph outer;
    {
      const lazuli::FullGraph inner;
      y = y * 2;
    }
    y = y + 1;
    ExpectBreak("aten::_local_scalar_dense", [&] { y.item<float>(); });
  }
  EXPECT_EQ(lazuli::stats().traces, 0);
  EXPECT_EQ((y + 1).item<float>(), 20);
  EXPECT_EQ(lazuli::stats().traces, 1);
}

TEST_P(FullGraphTest, BudgetsAndTheEndOfTheModeAreNoBreaks) {
  const lazuli::FullGraph full;
  torch::Tensor y;
  {
    const lazuli::DeviceMode mode(options().trace_limit(3));
    y = torch::ones({4});
    for (int i = 0; i < 9; ++i) y = y + 1;
    EXPECT_EQ(lazuli::stats().cuts.at("trace_limit"), 3);
  }
  EXPECT_EQ(lazuli::stats().cuts.at("mode_end"), 1);
  EXPECT_EQ(y.sum().item<float>(), 40);
  const lazuli::DeviceMode again(options());
  y = Sum(4);
  lazuli::reset();
  EXPECT_EQ(y.item<float>(), 12);  // Nothing is pending.
}

TEST_P(FullGraphTest, ObservingAnOperatorOnceIsNoBreak) {
  const lazuli::DeviceMode mode(options());
  const torch::Tensor x = torch::arange(6, torch::kFloat) + 1;
  const lazuli::FullGraph full;
  EXPECT_EQ(ErrorOf([&] { torch::histogram(x, 5); }), "no error");
  EXPECT_EQ(lazuli::stats().observations, 1);
  EXPECT_EQ(lazuli::stats().traces, 1);
  // An operator whose results' shapes depend on data will never be recorded.
  const torch::Tensor y = x * 2;
  ExpectBreak("aten::nonzero cannot be recorded", [&] { torch::nonzero(y > 4); });
}

TEST_P(FullGraphTest, EagerWithoutACutIsNoBreak) {
  const torch::Tensor ready = torch::arange(4, torch::kFloat);
  const lazuli::DeviceMode mode(options());
  const lazuli::FullGraph full;
  const torch::Tensor y = Sum(4);
  EXPECT_TRUE(torch::equal(ready, ready));
  EXPECT_EQ(ready[2].item<float>(), 2);
  EXPECT_EQ(lazuli::stats().eager_uncut.at("aten::equal"), 1);
  EXPECT_EQ(lazuli::stats().traces, 0);
}

TEST_P(FullGraphTest, TheOptionCoversTheWholeMode) {
  torch::Tensor y;
  {
    const lazuli::DeviceMode mode(options().fullgraph(true));
    y = Sum(5);
    ExpectBreak("aten::_local_scalar_dense", [&] { y.item<float>(); });
  }
  EXPECT_EQ(y.item<float>(), 15);
  const lazuli::DeviceMode mode(options());
  EXPECT_EQ(Sum(5).item<float>(), 15);
}

TEST_P(FullGraphTest, ThrowingKeepsWritesToInputs) {
  const torch::Tensor weight = torch::ones({4});
  const lazuli::DeviceMode mode(options());
  {
    const lazuli::FullGraph full;
    weight.mul_(3);
    ExpectBreak("the data of a pending tensor", [&] { weight.data_ptr<float>(); });
    weight.add_(1);
    // The memory is written once, by whoever may read it.
  }
  EXPECT_EQ(weight.data_ptr<float>()[0], 4);
  EXPECT_EQ(lazuli::stats().traces, 1);
}

TEST_P(FullGraphTest, ABreakInBackwardComesOutOfBackward) {
  const lazuli::DeviceMode mode(options());
  const auto x = torch::ones({4}, torch::requires_grad());
  const auto step = [&x](bool looks) {
    x.mutable_grad() = torch::Tensor();
    auto y = x * 3;
    if (looks) y.register_hook([](const torch::Tensor& grad) { EXPECT_EQ(grad.sum().item<float>(), 8); });
    (y * 2).sum().backward();
    return x.grad();
  };
  torch::Tensor gradient;
  {
    const lazuli::FullGraph full;
    ExpectBreak("aten::_local_scalar_dense", [&] { step(true); });
    gradient = step(false);  // Forward and backward are one graph.
  }
  EXPECT_EQ(gradient.sum().item<float>(), 12 * 2);
  EXPECT_EQ(step(true).sum().item<float>(), 12 * 2);
}

TEST_P(FullGraphTest, OtherThreadsMayReadAndTheLockIsFree) {
  const lazuli::DeviceMode mode(options());
  const torch::Tensor y = Sum(4);
  const lazuli::FullGraph full;
  ExpectBreak("aten::_local_scalar_dense", [&] { y.item<float>(); });
  std::thread([&y] { EXPECT_EQ(y.item<float>(), 12); }).join();
  EXPECT_EQ(y.item<float>(), 12);  // No longer pending.
}

TEST_P(FullGraphTest, SyncStillRunsTheWorkOfOtherThreads) {
  const lazuli::DeviceMode mode(options());
  const torch::Tensor mine = Sum(4);
  std::promise<void> pending, done;
  std::thread other([&] {
    const lazuli::DeviceMode own(options());
    const torch::Tensor theirs = Sum(5);
    pending.set_value();
    done.get_future().wait();
    EXPECT_EQ(theirs.item<float>(), 15);
  });
  pending.get_future().wait();
  {
    const lazuli::FullGraph full;
    EXPECT_THAT(ErrorOf([] { lazuli::sync(); }), HasSubstr("graph break"));
  }
  EXPECT_EQ(lazuli::stats().traces, 1);
  done.set_value();
  other.join();
  EXPECT_EQ(lazuli::stats().traces, 1);
  EXPECT_EQ(mine.item<float>(), 12);
}

TEST_P(FullGraphTest, AnExceptionEndsTheScope) {
  const lazuli::DeviceMode mode(options());
  const torch::Tensor y = Sum(4);
  EXPECT_THROW(
      {
        const lazuli::FullGraph full;
        const torch::Tensor dropped = y * 2;
        program::Read(dropped);
      },
      c10::Error);
  EXPECT_EQ(program::Read(y), 13);
}

TEST_P(FullGraphTest, EagerCodeInTheScopeBreaksTheGraphWhenItReadsIt) {
  const lazuli::DeviceMode mode(options());
  const torch::Tensor y = Sum(4);
  const lazuli::FullGraph full;
  const lazuli::StanceGuard eager("force_eager");
  EXPECT_EQ((torch::ones({2}) * 2).sum().item<float>(), 4);
  ExpectBreak("the data of a pending tensor", [&] { y.item<float>(); });
}

TEST_P(FullGraphTest, EagerCodeThatMayOverwriteWhatIsPendingBreaksTheGraph) {
  torch::Tensor weight = torch::ones({4});
  const lazuli::DeviceMode mode(options());
  const torch::Tensor y = weight * 2;
  {
    const lazuli::FullGraph full;
    ExpectBreak("code that runs eagerly may overwrite", [] { const lazuli::EagerScope eager; });
    ExpectBreak("code that runs eagerly may overwrite", [] { const lazuli::StanceGuard eager("force_eager"); });
    EXPECT_TRUE(lazuli::is_enabled());
  }
  EXPECT_EQ(y.sum().item<float>(), 8);
}

TEST_P(FullGraphTest, SteppingAsideDoesNotHideBreaks) {
  const auto tiny = [] { return torch::full({4}, 7.0); };
  const lazuli::DeviceMode mode(options());
  const torch::NoGradGuard no_grad;
  RunUntilAside([&](int64_t) { ASSERT_EQ(tiny().data_ptr<float>()[3], 7); });
  {
    const lazuli::FullGraph full;
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(ErrorOf([&] { tiny().data_ptr<float>(); }), HasSubstr("graph break")) << i;
    }
  }
  EXPECT_EQ(tiny().data_ptr<float>()[3], 7);
}

LAZULI_FOR_EACH_BACKEND(FullGraphTest);

}  // namespace
}  // namespace lazuli::testing
