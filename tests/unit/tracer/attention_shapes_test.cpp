// What attention on GPUs returns, as it was seen there: [batch, heads, length, width] stored in several ways.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "lazuli/lazuli.h"
#include "tracer/shape_functions.h"
#include "tracer/shape_inference.h"

namespace lazuli::tracer {
namespace {

using torch::Tensor;
using Arguments = std::vector<c10::IValue>;

const c10::Device kGpu(c10::kCUDA, 0);

Tensor Heads(int64_t batch, int64_t heads, int64_t length, int64_t width = 64) {
  return torch::zeros({batch, heads, length, width}, torch::kBFloat16);
}
Tensor LengthFirst(int64_t batch, int64_t heads, int64_t length) {
  return torch::zeros({batch, length, heads, 64}, torch::kBFloat16).transpose(1, 2);
}
Tensor Packed(int64_t batch, int64_t heads, int64_t length) {
  return torch::zeros({batch, length, 3, heads, 64}, torch::kBFloat16).select(2, 1).transpose(1, 2);
}

c10::List<bool> Mask(std::initializer_list<bool> flags) {
  c10::List<bool> list;
  for (const bool flag : flags) list.push_back(flag);
  return list;
}

std::vector<Tensor> Shapes(const std::string& name, const Arguments& args) {
  const ShapeFunction* function = FindShapeFunction("aten::_scaled_dot_product_" + name, kGpu);
  EXPECT_NE(function, nullptr) << name;
  return (*function)(args);
}

std::vector<int64_t> FirstStrides(const std::string& name, const Arguments& args) { return Shapes(name, args).at(0).strides().vec(); }

Arguments Flash(const Tensor& q, const Tensor& k) { return {q, k, k, 0.0, true, false, c10::IValue()}; }
Arguments Cudnn(const Tensor& q, const Tensor& k, bool lse = true, const Tensor& bias = {}) {
  return {q, k, k, bias.defined() ? c10::IValue(bias) : c10::IValue(), lse, 0.0, false, false, c10::IValue()};
}
Arguments Efficient(const Tensor& q, const Tensor& k, bool lse = true) { return {q, k, k, c10::IValue(), lse, 0.0, false, c10::IValue()}; }

using Strides = std::vector<int64_t>;

TEST(AttentionShapesTest, ResultsLieAsQueriesDo) {
  EXPECT_EQ(FirstStrides("flash_attention", Flash(Heads(2, 4, 7), Heads(2, 4, 7))), Strides({1792, 448, 64, 1}));
  EXPECT_EQ(FirstStrides("flash_attention", Flash(LengthFirst(2, 4, 7), Heads(2, 4, 7))), Strides({1792, 64, 256, 1}));
  EXPECT_EQ(FirstStrides("flash_attention", Flash(Packed(2, 4, 7), Packed(2, 4, 7))), Strides({1792, 64, 256, 1}));
  EXPECT_EQ(FirstStrides("cudnn_attention", Cudnn(Heads(2, 4, 7), Heads(2, 4, 7))), Strides({1792, 448, 64, 1}));
  EXPECT_EQ(FirstStrides("cudnn_attention", Cudnn(Packed(2, 4, 7), Heads(2, 4, 9))), Strides({1792, 64, 256, 1}));
  EXPECT_EQ(FirstStrides("efficient_attention", Efficient(Heads(2, 4, 7), Heads(2, 4, 7))), Strides({1792, 64, 256, 1}));
}

TEST(AttentionShapesTest, OneQueryForManyHeadsIsManyForFew) {
  EXPECT_EQ(FirstStrides("flash_attention", Flash(Heads(2, 8, 1), Heads(2, 2, 12))), Strides({512, 64, 512, 1}));
  EXPECT_EQ(FirstStrides("flash_attention", Flash(Heads(2, 8, 1), Heads(2, 8, 12))), Strides({512, 64, 64, 1}));
}

TEST(AttentionShapesTest, StatisticsAndNumbers) {
  const auto flash = Shapes("flash_attention", Flash(Heads(2, 4, 7), Heads(2, 4, 9)));
  ASSERT_EQ(flash.size(), 9U);
  EXPECT_EQ(flash[1].sizes(), at::IntArrayRef({2, 4, 7}));
  EXPECT_FALSE(flash[2].defined() || flash[3].defined());
  EXPECT_EQ(flash[4].size(0), 7);
  EXPECT_EQ(flash[5].size(0), 9);
  const auto cudnn = Shapes("cudnn_attention", Cudnn(Heads(2, 4, 7), Heads(2, 4, 9)));
  EXPECT_EQ(cudnn.at(1).sizes(), at::IntArrayRef({2, 4, 7, 1}));
  EXPECT_FALSE(Shapes("cudnn_attention", Cudnn(Heads(2, 4, 7), Heads(2, 4, 9), /*lse=*/false)).at(1).defined());
  EXPECT_EQ(Shapes("efficient_attention", Efficient(Heads(2, 4, 33), Heads(2, 4, 33))).at(1).sizes(), at::IntArrayRef({2, 4, 64}));
  EXPECT_EQ(Shapes("efficient_attention", Efficient(Heads(2, 4, 33), Heads(2, 4, 33), false)).at(1).sizes(), at::IntArrayRef({2, 4, 0}));
}

TEST(AttentionShapesTest, GradientsLieAsTheirOperandsDo) {
  const Tensor q = Packed(2, 8, 5), k = LengthFirst(2, 2, 5), out = Heads(2, 8, 5), lse = torch::zeros({2, 8, 5}), none;
  const auto flash = Shapes("flash_attention_backward", {out, q, k, k, out, lse, none, none, 5, 5, 0.0, true, none, none, c10::IValue()});
  EXPECT_EQ(flash.at(0).strides(), at::IntArrayRef({2560, 64, 512, 1}));
  EXPECT_EQ(flash.at(1).strides(), at::IntArrayRef({640, 64, 128, 1}));
  const auto cudnn =
      Shapes("cudnn_attention_backward", {out, q, k, k, out, lse, none, none, none, none, none, 5, 5, 0.0, true, c10::IValue()});
  EXPECT_EQ(cudnn.at(0).strides(), at::IntArrayRef({2560, 64, 512, 1}));
  const Tensor key = Heads(2, 8, 5);
  const auto efficient = [&](const c10::List<bool>& mask) {
    return Shapes("efficient_attention_backward", {out, q, key, key, none, out, lse, none, none, 0.0, mask, true, c10::IValue()});
  };
  EXPECT_EQ(efficient(Mask({true, true, true, false})).at(1).strides(), at::IntArrayRef({2560, 64, 512, 1}));
  EXPECT_TRUE(efficient(Mask({true, true, true, true})).empty());
  EXPECT_TRUE(efficient(Mask({true, false, true, false})).empty());
}

TEST(AttentionShapesTest, NothingIsSaidWhereKernelsMayRefuse) {
  const Tensor q = Heads(2, 4, 7);
  EXPECT_TRUE(Shapes("flash_attention", Flash(q.to(torch::kFloat), q.to(torch::kFloat))).empty()) << "flash attention is for halves";
  EXPECT_FALSE(Shapes("efficient_attention", Efficient(q.to(torch::kFloat), q.to(torch::kFloat))).empty());
  EXPECT_TRUE(Shapes("flash_attention", Flash(q, q.to(torch::kHalf))).empty());
  EXPECT_TRUE(Shapes("flash_attention", Flash(Heads(2, 4, 7, 60), Heads(2, 4, 7, 60))).empty()) << "no whole vectors";
  EXPECT_TRUE(Shapes("flash_attention", Flash(Heads(2, 4, 7, 256), Heads(2, 4, 7, 256))).empty()) << "wide";
  EXPECT_TRUE(Shapes("flash_attention", Flash(q, Heads(2, 3, 7))).empty()) << "heads that cannot be shared";
  EXPECT_TRUE(Shapes("efficient_attention", Efficient(q, Heads(2, 2, 7))).empty()) << "nor are they shared here";
  EXPECT_TRUE(Shapes("flash_attention", Flash(q.transpose(2, 3), q.transpose(2, 3))).empty()) << "gaps in rows";
  EXPECT_TRUE(Shapes("cudnn_attention", Cudnn(q, Heads(2, 4, 0))).empty());
  const auto with_bias = [&](const Tensor& bias) { return Shapes("cudnn_attention", Cudnn(q, Heads(2, 4, 16), true, bias)); };
  EXPECT_FALSE(with_bias(torch::zeros({2, 1, 7, 16}, torch::kBFloat16)).empty());
  EXPECT_TRUE(with_bias(torch::zeros({2, 1, 7, 9}, torch::kBFloat16)).empty());
  EXPECT_TRUE(with_bias(torch::zeros({7, 16}, torch::kBFloat16)).empty());
  EXPECT_TRUE(with_bias(torch::zeros({2, 1, 7, 16})).empty()) << "of another dtype";
}

// From the first time on that a kernel did as the function says, other lengths need not be seen.
TEST(AttentionShapesTest, OtherLengthsNeedNotBeSeen) {
  lazuli::reset();
  const codegen::OpInfo& info = *codegen::FindOpInfo("aten::_scaled_dot_product_efficient_attention");
  const auto q = [](int64_t length) { return torch::zeros({1, 2, length, 8}); };
  EXPECT_FALSE(InferShapes(info, Efficient(q(5), q(5)), kGpu).has_value());
  codegen::OutputMetas seen(4);
  seen[0].sizes = {1, 2, 5, 8};
  seen[0].strides = {80, 8, 16, 1};
  seen[0].nbytes = 320;
  seen[1].sizes = {1, 2, 32};
  seen[1].strides = {64, 32, 1};
  seen[1].nbytes = 256;
  for (int i : {2, 3}) {
    seen[i].dtype = torch::kLong;
    seen[i].on_cpu = true;
    seen[i].nbytes = 8;
  }
  NoteForetold(info, Efficient(q(5), q(5)), seen, kGpu);
  const auto inferred = InferShapes(info, Efficient(q(40), q(41)), kGpu);
  ASSERT_TRUE(inferred.has_value());
  EXPECT_EQ((*inferred)[0].strides, c10::DimVector({640, 8, 16, 1}));
  EXPECT_EQ((*inferred)[1].sizes, c10::DimVector({1, 2, 64}));
  EXPECT_TRUE((*inferred)[2].on_cpu);
  EXPECT_FALSE(InferShapes(info, Efficient(q(40), q(41), /*lse=*/false), kGpu).has_value()) << "another kernel, perhaps";
  const codegen::OpInfo& flash = *codegen::FindOpInfo("aten::_scaled_dot_product_flash_attention");
  EXPECT_FALSE(InferShapes(flash, Flash(Heads(1, 2, 5), Heads(1, 2, 5)), kGpu).has_value()) << "each operator has to be seen";
}

}  // namespace
}  // namespace lazuli::tracer
