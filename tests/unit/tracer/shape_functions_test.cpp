#include "tracer/shape_functions.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <set>

#include "tracer/shape_inference.h"

namespace lazuli::tracer {
namespace {

using torch::Tensor;
using Arguments = std::vector<c10::IValue>;

struct Case {
  std::string op;
  Arguments args;
};

c10::IValue None() { return {}; }
c10::IValue Ints(std::vector<int64_t> ints) { return {std::move(ints)}; }
c10::IValue Mask(std::initializer_list<bool> flags) {
  c10::List<bool> list;
  for (const bool flag : flags) list.push_back(flag);
  return list;
}
Tensor F(at::IntArrayRef sizes) { return torch::rand(sizes); }
Tensor D(at::IntArrayRef sizes) { return torch::rand(sizes, torch::kDouble); }
Tensor B(at::IntArrayRef sizes) { return torch::rand(sizes).to(torch::kBFloat16); }
Tensor Ids(at::IntArrayRef sizes) { return torch::randint(0, 3, sizes); }
Tensor ChannelsLast(at::IntArrayRef sizes) { return torch::rand(sizes).contiguous(at::MemoryFormat::ChannelsLast); }

// Layouts that pointwise operators keep, change and broadcast.
void AddPointwise(std::vector<Case>* cases) {
  const std::vector<Tensor> selfs = {
      F({4, 3}), F({4, 3}).t(), D({}), F({0, 2}), ChannelsLast({2, 3, 4, 5}), B({3, 8}).slice(1, 0, 8, 2), F({1, 5}).expand({4, 5})};
  for (const Tensor& x : selfs) {
    const Tensor mask = x > 0.5;
    const auto two = torch::full({}, 2, x.options());
    for (const char* op : {"aten::relu", "aten::isnan", "aten::hardswish"}) cases->push_back({op, {x}});
    cases->push_back({"aten::hardtanh", {x, 0.1, 0.9}});
    cases->push_back({"aten::logit", {x, None()}});
    cases->push_back({"aten::where.self", {mask, x, x}});
    cases->push_back({"aten::where.self", {mask, x, two}});
    cases->push_back({"aten::rsub.Tensor", {x, x, 1}});
    cases->push_back({"aten::rsub.Tensor", {x, two, 2}});
    cases->push_back({"aten::rsub.Scalar", {x, 2, 1}});
    cases->push_back({"aten::floor_divide", {x, x}});
    cases->push_back({"aten::hardtanh_backward", {x, x, 0.1, 0.9}});
    cases->push_back({"aten::hardswish_backward", {x, x}});
    cases->push_back({"aten::log_sigmoid_backward", {x, x, torch::empty_like(x)}});
    cases->push_back({"aten::_prelu_kernel", {x, x}});
    cases->push_back({"aten::native_dropout_backward", {x, mask, 2.0}});
    cases->push_back({"aten::mse_loss_backward", {x, x, x, 0}});
  }
  for (const Tensor& x :
       {F({4, 3}), F({4, 3}).t(), D({2, 5}), ChannelsLast({2, 3, 4, 5}), B({3, 8}).slice(1, 0, 8, 2), torch::arange(12).view({3, 4})}) {
    for (const std::vector<int64_t>& padding : {std::vector<int64_t>{1, 2}, {0, 1, 2, 0}, {-1, 2}, {-1, -1}, {0, 0}, {}}) {
      cases->push_back({"aten::constant_pad_nd", {x, padding, 2}});
    }
  }
  for (const Tensor& x : {F({4, 3}), D({2})}) cases->push_back({"aten::norm.Scalar", {x, 2}});
  cases->push_back({"aten::rsub.Tensor", {torch::arange(4), torch::arange(4), 1}});
  cases->push_back({"aten::relu", {torch::arange(4)}});
  for (const Tensor& x : selfs) {
    cases->push_back({"aten::abs", {x}});
    cases->push_back({"aten::logical_not", {x}});
    for (const char* op : {"aten::logical_and", "aten::logical_or", "aten::logical_xor"}) cases->push_back({op, {x, torch::ones({1})}});
    cases->push_back({"aten::clone", {x, None()}});
    cases->push_back({"aten::clone", {x, at::MemoryFormat::Contiguous}});
    for (const char* op : {"aten::zeros_like", "aten::ones_like"}) {
      cases->push_back({op, {x, None(), None(), None(), None(), None()}});
      cases->push_back({op, {x, at::kLong, None(), None(), None(), at::MemoryFormat::Contiguous}});
    }
    cases->push_back({"aten::full_like", {x, 3, at::kInt, None(), None(), None(), None()}});
    cases->push_back({"aten::_to_copy", {x, at::kDouble, None(), None(), None(), false, None()}});
    cases->push_back({"aten::sum", {x, None()}});
    cases->push_back({"aten::mean", {x, None()}});
    for (const int64_t dim : {-1, 0}) cases->push_back({"aten::stack", {std::vector<Tensor>{x, x, x}, dim}});
    cases->push_back({"aten::stack", {std::vector<Tensor>{x.unsqueeze(0), x.unsqueeze(0)}, -1}});
    cases->push_back({"aten::fill.Scalar", {x, 2}});
    cases->push_back({"aten::fill.Tensor", {x, F({})}});
    cases->push_back({"aten::zero", {x}});
    cases->push_back({"aten::masked_fill.Scalar", {x, x > 0, 2}});
    cases->push_back({"aten::masked_fill.Tensor", {x, x > 0, torch::zeros({}, x.options())}});
  }
  cases->push_back({"aten::masked_fill.Scalar", {F({3}), F({4, 1}) > 0, 2}});
  cases->push_back({"aten::sum", {torch::arange(4), None()}});
  cases->push_back({"aten::sum", {torch::arange(4), at::kDouble}});
  cases->push_back({"aten::where.self", {F({4, 1}) > 0.5, torch::arange(3), torch::arange(3)}});
  cases->push_back({"aten::where.self", {F({4, 1}) > 0.5, F({3}).t(), F({4, 3}).t().contiguous().t()}});
  cases->push_back({"aten::_prelu_kernel", {F({2, 3, 4}), F({3, 1})}});
}

void AddReductions(std::vector<Case>* cases) {
  for (const Tensor& x : {F({4, 3}), D({2, 3, 4}).transpose(0, 2), F({})}) {
    for (const char* op : {"aten::max", "aten::min"}) cases->push_back({op, {x}});
    for (const char* op : {"aten::var.correction", "aten::std.correction", "aten::var_mean.correction", "aten::std_mean.correction"}) {
      for (const bool keep : {false, true}) {
        cases->push_back({op, {x, None(), 1, keep}});
        cases->push_back({op, {x, Ints({-1}), None(), keep}});
        if (x.dim() > 1) cases->push_back({op, {x, Ints({0, 1}), 0, keep}});
      }
    }
  }
  for (const int64_t reduction : {0, 1, 2}) {
    cases->push_back({"aten::binary_cross_entropy", {F({4, 3}), F({4, 3}), None(), reduction}});
    const Tensor grad = reduction == 0 ? F({4, 3}) : F({});
    cases->push_back({"aten::binary_cross_entropy_backward", {grad, F({4, 3}), F({4, 3}), None(), reduction}});
    cases->push_back({"aten::mse_loss_backward", {grad, F({4, 3}), F({4, 3}), reduction}});
  }
  cases->push_back({"aten::_safe_softmax", {F({4, 3, 2}), -1, None()}});
}

void AddIndexing(std::vector<Case>* cases) {
  cases->push_back({"aten::index_select", {F({4, 3, 5}), 1, Ids({7})}});
  cases->push_back({"aten::select_backward", {F({4, 5}), Ints({4, 3, 5}), 1, -2}});
  cases->push_back({"aten::slice_backward", {F({4, 2, 5}), Ints({4, 6, 5}), 1, -5, 4, 2}});
  cases->push_back(
      {"aten::slice_backward", {F({4, 1, 5}).expand({4, 3, 5}), Ints({4, 6, 5}), 1, 3, std::numeric_limits<int64_t>::max(), 1}});
  cases->push_back({"aten::index_select", {F({5, 4}).t(), -1, Ids({2}).to(torch::kInt)}});
  cases->push_back({"aten::index_select", {torch::arange(6), 0, Ids({3})}});
  for (const Tensor& ids : {Ids({}), Ids({5}), Ids({2, 7}), Ids({7, 2}).t(), Ids({0})}) {
    cases->push_back({"aten::embedding", {F({3, 6}), ids, -1, false, false}});
    std::vector<int64_t> sizes = ids.sizes().vec();
    sizes.push_back(6);
    cases->push_back({"aten::embedding_dense_backward", {F(sizes), ids, 3, -1, false}});
  }
  cases->push_back({"aten::embedding", {B({6, 3}).t(), Ids({4}), -1, false, false}});
}

void AddConvolution(std::vector<Case>* cases, const Tensor& input, const Tensor& weight, int64_t stride, int64_t padding, int64_t dilation,
                    bool transposed, int64_t output_padding, int64_t groups) {
  const size_t n = static_cast<size_t>(input.dim() - 2);
  const auto every = [&](int64_t value) { return std::vector<int64_t>(n, value); };
  const int64_t channels = transposed ? weight.size(1) * groups : weight.size(0);
  const Tensor bias = torch::rand({channels}, input.options());
  cases->push_back({"aten::convolution",
                    {input, weight, bias, every(stride), every(padding), every(dilation), transposed, every(output_padding), groups}});
  const Tensor out =
      torch::convolution(input, weight, {}, every(stride), every(padding), every(dilation), transposed, every(output_padding), groups);
  for (const bool needs_input : {true, false}) {
    cases->push_back({"aten::convolution_backward",
                      {out.detach(), input, weight, Ints({channels}), every(stride), every(padding), every(dilation), transposed,
                       every(output_padding), groups, Mask({needs_input, true, !needs_input})}});
  }
}

void AddConvolutions(std::vector<Case>* cases) {
  AddConvolution(cases, F({2, 3, 9, 8}), F({4, 3, 3, 3}), 1, 1, 1, false, 0, 1);
  AddConvolution(cases, F({2, 4, 9, 8}), F({6, 2, 3, 3}), 2, 0, 2, false, 0, 2);
  AddConvolution(cases, F({2, 4, 8, 8}), F({4, 1, 3, 3}), 1, 1, 1, false, 0, 4);
  AddConvolution(cases, F({1, 3, 12}), F({5, 3, 4}), 3, 2, 1, false, 0, 1);
  AddConvolution(cases, F({2, 2, 5, 6, 7}), F({3, 2, 2, 2, 2}), 1, 0, 1, false, 0, 1);
  AddConvolution(cases, D({2, 3, 9, 8}), D({4, 3, 3, 3}), 1, 1, 1, false, 0, 1);
  AddConvolution(cases, F({2, 3, 5, 4}), F({3, 4, 3, 3}), 2, 1, 1, true, 1, 1);
  AddConvolution(cases, F({2, 3, 6}), F({3, 4, 3}), 2, 0, 1, true, 0, 1);
  AddConvolution(cases, F({2, 1, 6, 6}), F({4, 1, 1, 1}), 1, 0, 1, false, 0, 1);
  for (const bool transposed : {false, true}) {
    for (const int64_t batch : {1, 3}) {
      for (const std::vector<int64_t>& weight : {std::vector<int64_t>{4, 4, 3, 3}, {4, 4, 1, 1}, {4, 1, 3, 3}, {4, 4, 7, 6}}) {
        const int64_t groups = 4 / weight[1];
        for (const int64_t dilation : {1, 2}) {
          if (dilation == 2 && weight[2] == 7) continue;
          AddConvolution(cases, ChannelsLast({batch, 4, 7, 6}), F(weight), 1, 0, dilation, transposed, 0, groups);
          AddConvolution(cases, F({batch, 4, 7, 6}), ChannelsLast(weight), 1, 0, dilation, transposed, 0, groups);
          AddConvolution(cases, ChannelsLast({batch, 4, 7, 6}).to(torch::kDouble), ChannelsLast(weight).to(torch::kDouble), 2, 1, dilation,
                         transposed, 0, groups);
        }
      }
    }
  }
  AddConvolution(cases, ChannelsLast({2, 3, 7, 6}), F({1, 3, 3, 3}), 1, 0, 1, false, 0, 1);
  AddConvolution(cases, F({4, 9, 8, 3}).permute({0, 1, 3, 2}).transpose(1, 3).contiguous(), F({4, 8, 3, 3}), 1, 1, 1, false, 0, 1);
}

void AddNorms(std::vector<Case>* cases) {
  for (const Tensor& x : {F({4, 3, 6}), D({2, 6}), F({6, 4}).t(), B({5, 6}), F({0, 6})}) {
    const Tensor w = torch::rand({x.size(-1)}, x.options());
    cases->push_back({"aten::native_layer_norm", {x, Ints({x.size(-1)}), w, w, 1e-5}});
    cases->push_back({"aten::native_layer_norm", {x, Ints({x.size(-1)}), None(), None(), 1e-5}});
    const auto [y, mean, rstd] = torch::native_layer_norm(x, {x.size(-1)}, w, w, 1e-5);
    for (const bool all : {true, false}) {
      cases->push_back({"aten::native_layer_norm_backward", {y, x, Ints({x.size(-1)}), mean, rstd, w, w, Mask({true, all, all})}});
    }
  }
  cases->push_back({"aten::native_layer_norm", {F({4, 3, 6}), Ints({3, 6}), F({3, 6}), None(), 1e-5}});
  for (const Tensor& x :
       {F({4, 6}), F({2, 6, 5}), D({2, 6, 4, 4}), F({2, 6, 4, 4, 3}), ChannelsLast({2, 6, 4, 3}), ChannelsLast({1, 6, 1, 1})}) {
    const Tensor w = torch::rand({6}, x.options());
    for (const bool training : {true, false}) {
      cases->push_back({"aten::native_batch_norm", {x, w, w, w.clone(), w.clone(), training, 0.1, 1e-5}});
      cases->push_back({"aten::native_batch_norm_backward", {x, x, w, w, w, w, w, training, 1e-5, Mask({true, training, true})}});
    }
    cases->push_back({"aten::native_batch_norm", {x, None(), None(), None(), None(), true, 0.1, 1e-5}});
    const int64_t inner = x.numel() / x.size(0) / 6;
    cases->push_back({"aten::native_group_norm", {x, w, w, x.size(0), 6, inner, 3, 1e-5}});
    const auto [y, mean, rstd] = torch::native_group_norm(x, w, w, x.size(0), 6, inner, 3, 1e-5);
    cases->push_back({"aten::native_group_norm_backward", {y, x, mean, rstd, w, x.size(0), 6, inner, 3, Mask({true, true, false})}});
  }
  cases->push_back({"aten::_adaptive_avg_pool2d", {F({2, 3, 8, 9}), Ints({2, 3})}});
  cases->push_back({"aten::_adaptive_avg_pool2d", {F({3, 8, 9}), Ints({1, 3})}});
  cases->push_back({"aten::_adaptive_avg_pool2d_backward", {F({2, 3, 2, 3}), F({2, 3, 8, 9})}});
  for (const Tensor& x : {ChannelsLast({2, 3, 8, 9}), ChannelsLast({1, 3, 8, 9}), ChannelsLast({2, 1, 8, 9})}) {
    cases->push_back({"aten::_adaptive_avg_pool2d", {x, Ints({2, 3})}});
    cases->push_back({"aten::_adaptive_avg_pool2d", {x, Ints({1, 1})}});
    for (const Tensor& grad : {F({x.size(0), x.size(1), 2, 3}), ChannelsLast({x.size(0), x.size(1), 2, 3})}) {
      cases->push_back({"aten::_adaptive_avg_pool2d_backward", {grad, x}});
    }
  }
}

void AddAttention(std::vector<Case>* cases) {
  for (const Tensor& q : {F({2, 3, 5, 8}), D({1, 2, 7, 4}), F({2, 5, 3, 8}).transpose(1, 2),
                          F({2, 5, 3, 24}).slice(3, 0, 8).transpose(1, 2), F({5, 2, 3, 8}).permute({1, 2, 0, 3})}) {
    const Tensor k = torch::rand({q.size(0), q.size(1), 6, q.size(3)}, q.options());
    cases->push_back({"aten::_scaled_dot_product_flash_attention_for_cpu", {q, k, k, 0.0, false, None(), None()}});
    cases->push_back({"aten::_scaled_dot_product_flash_attention_for_cpu", {q, k, k, 0.0, true, None(), 0.5}});
    const auto [out, lse] = torch::_scaled_dot_product_flash_attention_for_cpu(q, k, k);
    cases->push_back({"aten::_scaled_dot_product_flash_attention_for_cpu_backward", {out, q, k, k, out, lse, 0.0, false, None(), None()}});
  }
  const Tensor bf16 = B({2, 3, 5, 8});
  cases->push_back({"aten::_scaled_dot_product_flash_attention_for_cpu", {bf16, bf16, bf16, 0.0, false, None(), None()}});
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  AddPointwise(&cases);
  AddReductions(&cases);
  AddIndexing(&cases);
  AddConvolutions(&cases);
  AddNorms(&cases);
  AddAttention(&cases);
  return cases;
}

std::string Text(const Case& test) {
  std::ostringstream text;
  text << test.op << "(";
  for (const auto& arg : test.args) {
    if (arg.isTensor()) {
      text << arg.toTensor().scalar_type() << arg.toTensor().sizes() << " strides " << arg.toTensor().strides() << ", ";
    } else {
      text << arg << ", ";
    }
  }
  return text.str() + ")";
}

TEST(ShapeFunctionsTest, AgreeWithWhatTheCpuAllocates) {
  std::set<std::string> spoke;
  for (const Case& test : AllCases()) {
    SCOPED_TRACE(Text(test));
    const codegen::OpInfo* info = codegen::FindOpInfo(test.op);
    ASSERT_NE(info, nullptr);
    const auto inferred = InferShapes(*info, test.args);
    if (!inferred.has_value()) continue;
    spoke.insert(test.op);
    torch::jit::Stack stack(test.args.begin(), test.args.end());
    info->handle.callBoxed(&stack);
    ASSERT_EQ(inferred->size(), stack.size());
    for (size_t i = 0; i < stack.size(); ++i) {
      const codegen::OutputMeta& meta = (*inferred)[i];
      const Tensor& eager = stack[i].toTensor();
      ASSERT_EQ(meta.defined, eager.defined()) << "result " << i;
      if (!eager.defined()) continue;
      EXPECT_EQ(at::IntArrayRef(meta.sizes), eager.sizes()) << "result " << i;
      EXPECT_EQ(at::IntArrayRef(meta.strides), eager.strides()) << "result " << i;
      EXPECT_EQ(meta.dtype, eager.scalar_type()) << "result " << i;
    }
  }
  // SchemaShapesTest asks the same of all of them.
  EXPECT_GE(spoke.size(), 55U);
}

TEST(ShapeFunctionsTest, GpusHaveRulesOfTheirOwn) {
  const std::vector<c10::IValue> args = {F({2, 3, 4, 4}), None(), None(), F({3}), F({3}), false, 0.1, 1e-5};
  const auto saved = [&args](c10::Device device) {
    return (*FindShapeFunction("aten::native_batch_norm", device))(args).at(1).sizes().vec();
  };
  EXPECT_EQ(saved(torch::kCPU), std::vector<int64_t>({0}));
  EXPECT_EQ(saved(torch::kCUDA), std::vector<int64_t>({3}));
  EXPECT_NE(FindShapeFunction("aten::geqrf", torch::kCPU), nullptr);
  EXPECT_EQ(FindShapeFunction("aten::geqrf", torch::kCUDA), nullptr);
  const auto dims = [](std::vector<int64_t> dims) {
    return (*FindShapeFunction("aten::_fft_r2c", torch::kCUDA))({F({2, 6, 8}), dims, 0, true});
  };
  EXPECT_EQ(dims({2}).at(0).sizes(), std::vector<int64_t>({2, 6, 5}));
  EXPECT_TRUE(dims({1, 2}).empty());
  EXPECT_EQ(FindShapeFunction("aten::relu", torch::kCUDA), FindShapeFunction("aten::relu", torch::kCPU));
}

// Numbers count less than matrices where dtypes meet.
TEST(ShapeFunctionsTest, NothingIsSaidOfMatricesOfSeveralDtypes) {
  const codegen::OpInfo& info = *codegen::FindOpInfo("aten::block_diag");
  EXPECT_TRUE(InferShapes(info, {std::vector<torch::Tensor>{F({2, 2}), F({3})}}).has_value());
  EXPECT_FALSE(InferShapes(info, {std::vector<torch::Tensor>{F({2, 2}), torch::ones({}, torch::kDouble)}}).has_value());
}

TEST(ShapeFunctionsTest, DtypesOfInPlaceFormsAreAskedFor) {
  const auto trusts = [](const char* name, const torch::Tensor& tensor) {
    const codegen::OpInfo& info = *codegen::FindOpInfo(name);
    return TakesDtypes(info, {tensor, tensor}, {}, torch::kCPU);
  };
  EXPECT_FALSE(trusts("aten::gcd_", F({2})));
  EXPECT_FALSE(trusts("aten::lcm_", F({2})));
  EXPECT_TRUE(trusts("aten::add_.Tensor", F({2})));
}

// What was learnt of operands without elements, or in another order, says nothing.
TEST(ShapeFunctionsTest, DtypesAreLearntFromElements) {
  const codegen::OpInfo& info = *codegen::FindOpInfo("aten::mv");
  const auto half = [](at::IntArrayRef sizes) { return torch::ones(sizes, torch::kHalf); };
  const auto takes = [&](const torch::Tensor& a, const torch::Tensor& b) { return TakesDtypes(info, {a, b}, {}, torch::kCPU); };
  EXPECT_FALSE(takes(half({2, 3}), F({3})));
  RememberDtypes(info, {half({0, 3}), F({0})}, {}, torch::kCPU);
  EXPECT_FALSE(takes(half({2, 3}), F({3})));
  RememberDtypes(info, {half({2, 3}), F({3})}, {}, torch::kCPU);
  EXPECT_TRUE(takes(half({2, 3}), F({3})));
  EXPECT_FALSE(takes(F({2, 3}), half({3})));
  ForgetShapes();
}

TEST(ShapeFunctionsTest, InPlaceFormsUseTheFunctionalOne) {
  EXPECT_EQ(FindShapeFunction("aten::relu_"), FindShapeFunction("aten::relu"));
  EXPECT_TRUE(InferShapes(*codegen::FindOpInfo("aten::relu_"), {F({2, 3})}).has_value());
  EXPECT_FALSE(InferShapes(*codegen::FindOpInfo("aten::_prelu_kernel"), {F({2, 3}), D({2, 3})}).has_value());
}

// What ATen refuses must come from ATen, at the operator.
TEST(ShapeFunctionsTest, SayNothingWhereTheOperatorFails) {
  const std::vector<Case> cases = {
      {"aten::relu", {torch::ones({2}, torch::kBool)}},
      {"aten::block_diag", {std::vector<torch::Tensor>{F({2, 2}), F({2, 2, 2})}}},
      {"aten::new_full",
       {torch::ones({2}, torch::kComplexFloat), std::vector<int64_t>{2}, c10::complex<double>(1, 2), static_cast<int64_t>(torch::kDouble),
        None(), None(), None()}},
      {"aten::full", {std::vector<int64_t>{-2}, 1.0, None(), None(), None(), None()}},
      {"aten::repeat", {F({2, 3}), std::vector<int64_t>{2}}},
      {"aten::diag_embed", {F({2, 3}), 0, 1, 1}},
      {"aten::diagonal_backward", {F({2}), std::vector<int64_t>{3, 3}, 0, 0, 1}},
      {"aten::affine_grid_generator", {torch::ones({2, 2, 3}, torch::kHalf), std::vector<int64_t>{2, 1, 1, 4}, false}},
      {"aten::affine_grid_generator", {F({2, 2, 3}), std::vector<int64_t>{3, 1, 4, 4}, false}},
      {"aten::embedding", {F({3, 4}), F({2}), -1, false, false}},
      {"aten::embedding", {F({3}), Ids({2}), -1, false, false}},
      {"aten::index_select", {F({3, 4}), 2, Ids({2})}},
      {"aten::index_select", {F({3, 4}), 0, F({2})}},
      {"aten::where.self", {F({3}), F({3}), F({3})}},
      {"aten::where.self", {F({3}) > 0, F({3}), F({4})}},
      {"aten::max", {F({0})}},
      {"aten::var.correction", {F({3, 4}), Ints({2}), 1, false}},
      {"aten::native_layer_norm", {F({3, 4}), Ints({5}), None(), None(), 1e-5}},
      {"aten::native_layer_norm", {F({3, 4}), Ints({4}), F({3}), None(), 1e-5}},
      {"aten::convolution", {F({1, 3, 4, 4}), F({2, 2, 3, 3}), None(), Ints({1, 1}), Ints({0, 0}), Ints({1, 1}), false, Ints({0, 0}), 1}},
      {"aten::convolution", {F({1, 3, 2, 2}), F({2, 3, 3, 3}), None(), Ints({1, 1}), Ints({0, 0}), Ints({1, 1}), false, Ints({0, 0}), 1}},
      {"aten::convolution", {F({1, 3, 4, 4}), D({2, 3, 3, 3}), None(), Ints({1, 1}), Ints({0, 0}), Ints({1, 1}), false, Ints({0, 0}), 1}},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(Text(test));
    const codegen::OpInfo* info = codegen::FindOpInfo(test.op);
    EXPECT_FALSE(InferShapes(*info, test.args).has_value());
    torch::jit::Stack stack(test.args.begin(), test.args.end());
    EXPECT_ANY_THROW(info->handle.callBoxed(&stack));
  }
}

}  // namespace
}  // namespace lazuli::tracer
