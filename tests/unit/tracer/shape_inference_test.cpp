#include "tracer/shape_inference.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lazuli/lazuli.h"

namespace lazuli::tracer {
namespace {

const codegen::OpInfo& Info(const std::string& name) {
  const codegen::OpInfo* info = codegen::FindOpInfo(name);
  TORCH_CHECK(info != nullptr, name);
  return *info;
}

TEST(InferShapesTest, GivesEagersLayout) {
  const auto x = torch::ones({4, 3}).t();
  const auto y = torch::ones({3, 1});
  const auto outputs = InferShapes(Info("aten::add.Tensor"), {x, y, 1});
  ASSERT_TRUE(outputs.has_value());
  ASSERT_EQ(outputs->size(), 1U);
  const auto eager = x + y;
  EXPECT_EQ(torch::IntArrayRef((*outputs)[0].sizes), eager.sizes());
  EXPECT_EQ(torch::IntArrayRef((*outputs)[0].strides), eager.strides());
  EXPECT_EQ((*outputs)[0].dtype, torch::kFloat);
  EXPECT_EQ((*outputs)[0].nbytes, 48);
}

TEST(InferShapesTest, FollowsTypePromotionOfWrappedNumbers) {
  auto number = torch::tensor(2.5, torch::kDouble);
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  const auto half = torch::ones({2}, torch::kHalf);
  EXPECT_EQ((*InferShapes(Info("aten::mul.Tensor"), {half, number}))[0].dtype, torch::kHalf);
  EXPECT_EQ((*InferShapes(Info("aten::mul.Tensor"), {torch::ones({2}, torch::kInt), number}))[0].dtype, torch::kFloat);
}

TEST(InferShapesTest, NeverTouchesTheData) {
  auto x = torch::full({2}, 3.0);
  ASSERT_TRUE(InferShapes(Info("aten::exp_"), {x}).has_value());
  EXPECT_EQ(x[0].item<float>(), 3);
}

TEST(InferShapesTest, SaysNothingAboutErrors) {
  EXPECT_FALSE(InferShapes(Info("aten::mm"), {torch::ones({2, 3}), torch::ones({2, 3})}).has_value());
}

TEST(ObserveTest, RemembersWhatCameOut) {
  const auto x = torch::ones({4, 5});
  const auto result = torch::empty_strided({4, 5}, {1, 4});
  const auto outputs = Observe(Info("aten::exp"), {x}, {result, torch::Tensor()});
  ASSERT_TRUE(outputs.has_value());
  EXPECT_EQ(torch::IntArrayRef((*outputs)[0].strides), result.strides());
  EXPECT_EQ((*outputs)[0].nbytes, 80);
  EXPECT_FALSE((*outputs)[1].defined);
}

TEST(ObserveTest, RefusesWhatIsNotAFreshDenseTensor) {
  const auto x = torch::ones({4, 5});
  EXPECT_FALSE(Observe(Info("aten::exp"), {x}, {x}).has_value());
  EXPECT_FALSE(Observe(Info("aten::exp"), {x}, {x.select(0, 1)}).has_value());
  EXPECT_FALSE(Observe(Info("aten::exp"), {x}, {torch::ones({3}).slice(0, 1)}).has_value());
  EXPECT_FALSE(Observe(Info("aten::exp"), {x}, {torch::eye(3).to_sparse()}).has_value());
  EXPECT_FALSE(Observe(Info("aten::exp"), {x}, {torch::ones({3}, torch::kMeta)}).has_value());
  EXPECT_FALSE(Observe(Info("aten::exp"), {x}, {c10::IValue(3.0)}).has_value());
  EXPECT_FALSE(Observe(Info("aten::exp"), {std::vector<torch::Tensor>{x}}, {x}).has_value());
}

TEST(ObserveTest, KeepsIntsAndNumbersOnTheCpu) {
  const auto x = torch::ones({4, 5});
  const auto observed = Observe(Info("aten::exp"), {x}, {torch::ones({4, 5}), c10::IValue(7), torch::ones({})});
  ASSERT_TRUE(observed.has_value());
  ASSERT_EQ(observed->size(), 3u);
  EXPECT_FALSE((*observed)[0].is_number);
  EXPECT_TRUE((*observed)[1].is_number);
  EXPECT_FALSE((*observed)[1].defined);
  EXPECT_EQ((*observed)[1].sizes[0], 7);
  // Of an operator on a GPU, only numbers may be on the CPU.
  const c10::Device gpu(c10::kCUDA, 0);
  EXPECT_FALSE(Observe(Info("aten::exp"), {x}, {torch::ones({4, 5})}, gpu).has_value());
  const auto number = Observe(Info("aten::exp"), {x}, {torch::ones({})}, gpu);
  ASSERT_TRUE(number.has_value());
  EXPECT_TRUE((*number)[0].on_cpu);
  EXPECT_FALSE((*observed)[2].on_cpu);
}

TEST(ObservationTest, AnOperatorWithoutAShapeFunctionRunsEagerlyOnce) {
  lazuli::reset();
  const lazuli::DeviceMode mode(Options().backend("aten"));
  // No Meta kernel can know a unique's length, but a histogram's is fixed by its arguments.
  for (int i = 0; i < 4; ++i) {
    const auto histogram = torch::histc(torch::arange(10, torch::kFloat) + i, 5, 0, 20);
    EXPECT_EQ(histogram.sum().item<float>(), 10);
  }
  EXPECT_LE(lazuli::stats().observations, 1);
  EXPECT_EQ(lazuli::stats().eager_fallbacks.count("aten::unique"), 0U);
}

}  // namespace
}  // namespace lazuli::tracer
