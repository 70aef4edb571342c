#include "tracer/dispatcher.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>

#include "lazuli/lazuli.h"
#include "runtime/mode_keys.h"

namespace lazuli::tracer {
namespace {

const char* const kTypedOps[] = {
#define LAZULI_TYPED_OP(name) #name,
#define LAZULI_SCALAR_TWIN(called, op) #called,
#define LAZULI_TYPED_VIEW(name)
#define LAZULI_TYPED_EAGER(name)
#include "tracer/typed_ops.def"
#undef LAZULI_TYPED_EAGER
#undef LAZULI_TYPED_VIEW
#undef LAZULI_SCALAR_TWIN
#undef LAZULI_TYPED_OP
};

class DispatcherTest : public ::testing::Test {
 protected:
  void SetUp() override { lazuli::reset(); }
  static bool HasKernel(const char* name, const char* overload) {
    return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).hasKernelForDispatchKey(runtime::kRecorderKey);
  }
  const lazuli::DeviceMode mode_{Options().backend("aten")};
};

TEST_F(DispatcherTest, HotOpsHaveTypedKernels) { EXPECT_GE(std::size(kTypedOps), 200U); }

TEST_F(DispatcherTest, EveryNonCompositeOperatorHasAKernel) {
  EXPECT_TRUE(HasKernel("aten::add", "Tensor"));
  EXPECT_TRUE(HasKernel("aten::histc", ""));
  EXPECT_TRUE(HasKernel("aten::add", "out"));
  EXPECT_TRUE(HasKernel("aten::as_strided", ""));
  EXPECT_TRUE(HasKernel("aten::nonzero", ""));
  // Decompose by themselves.
  EXPECT_FALSE(HasKernel("aten::linear", ""));
  EXPECT_FALSE(HasKernel("aten::cross_entropy_loss", ""));
}

TEST_F(DispatcherTest, FactoriesAreRecorded) {
  const auto make = [] {
    const int64_t before = lazuli::stats().ops_recorded;
    const auto x = torch::full({3}, 2.0);
    const auto y = torch::zeros({3});
    const auto z = torch::ones({3});
    lazuli::sync();
    const int64_t recorded = lazuli::stats().ops_recorded - before;
    EXPECT_EQ((x + y + z).sum().item<float>(), 9);
    return recorded;
  };
  make();  // What has no shape function runs once.
  EXPECT_GE(make(), 3);
}

// An operator on a tensor and a number is the one on tensors; where nobody knows its results, it runs once.
TEST_F(DispatcherTest, NumbersStandForTensors) {
  const auto x = torch::arange(6, torch::kFloat);
  const auto recorded = [](const std::function<torch::Tensor()>& op) {
    lazuli::sync();
    const int64_t before = lazuli::stats().ops_recorded;
    const torch::Tensor result = op();
    lazuli::sync();
    return lazuli::stats().ops_recorded - before;
  };
  EXPECT_EQ(recorded([&] { return torch::rsub(x, 1); }), 1);
  EXPECT_EQ(recorded([&] { return torch::rsub(x.to(torch::kLong), 2.5); }), 2);
  recorded([&] { return torch::fmod(x, 2); });
  EXPECT_EQ(recorded([&] { return torch::fmod(x, 2); }), 1);
  EXPECT_EQ(torch::fmod(x, 2).sum().item<float>(), 3);
}

TEST_F(DispatcherTest, FactoriesOfOtherDevicesAreNot) {
  EXPECT_TRUE(torch::empty({3}, torch::kMeta).is_meta());
  EXPECT_TRUE(torch::zeros({3}, torch::kMeta).is_meta());
}

TEST_F(DispatcherTest, BoxedAndTypedKernelsGiveTheSame) {
  // histc, trace and cumprod have boxed kernels only.
  const auto x = torch::arange(9, torch::kFloat).view({3, 3});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(torch::trace(x).item<float>(), 12);
    EXPECT_EQ(torch::cumprod(x + 1, 1)[2][2].item<float>(), 504);
    EXPECT_EQ(std::get<1>(torch::cummax(x, 0))[2][0].item<int64_t>(), 2);
  }
}

TEST_F(DispatcherTest, OutVariantsAreRecordedUnlessTheResultHasAnotherShape) {
  auto x = torch::ones({3}) + 1;
  auto out = torch::empty({3});
  torch::exp_out(out, x);
  EXPECT_EQ(lazuli::stats().eager_fallbacks.count("aten::exp.out"), 0);
  EXPECT_FLOAT_EQ(out[0].item<float>(), std::exp(2.0f));
  auto none = torch::empty({0});
  torch::exp_out(none, x + 1);
  EXPECT_EQ(lazuli::stats().eager_fallbacks.at("aten::exp.out"), 1);
  EXPECT_FLOAT_EQ(none[2].item<float>(), std::exp(3.0f));
}

}  // namespace
}  // namespace lazuli::tracer
