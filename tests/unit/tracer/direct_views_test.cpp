// Views that are made without ATen's kernels are ATen's, in every layout and for every argument, errors included.
#include "tracer/direct_views.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "lazuli/lazuli.h"

namespace lazuli::tracer {
namespace {

using torch::Tensor;

struct Case {
  std::string name;
  std::function<Tensor(const Tensor&)> view;
};

void AddDims(std::vector<Case>* cases) {
  for (int64_t dim = -5; dim <= 5; ++dim) {
    const std::string suffix = " " + std::to_string(dim);
    cases->push_back({"unsqueeze" + suffix, [=](const Tensor& x) { return x.unsqueeze(dim); }});
    cases->push_back({"squeeze" + suffix, [=](const Tensor& x) { return x.squeeze(dim); }});
    for (int64_t other = -4; other <= 4; ++other) {
      cases->push_back({"transpose" + suffix + "," + std::to_string(other), [=](const Tensor& x) { return x.transpose(dim, other); }});
      cases->push_back({"select" + suffix + "," + std::to_string(other), [=](const Tensor& x) { return x.select(dim, other); }});
    }
  }
}

void AddSlices(std::vector<Case>* cases) {
  using Place = std::optional<c10::SymInt>;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const std::vector<std::optional<int64_t>> places = {std::nullopt, 0, 1, 2, 3, 7, -1, -2, -7, kMost, -kMost};
  const auto text = [](const std::optional<int64_t>& place) { return place.has_value() ? std::to_string(*place) : std::string("none"); };
  for (const auto& start : places) {
    for (const auto& end : places) {
      for (const int64_t step : {int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{2}, int64_t{5}, kMost}) {
        for (const int64_t dim : {0, 1, -1, 4}) {
          cases->push_back(
              {"slice " + std::to_string(dim) + "," + text(start) + "," + text(end) + "," + std::to_string(step), [=](const Tensor& x) {
                 return x.slice_symint(dim, start.has_value() ? Place(*start) : Place(), end.has_value() ? Place(*end) : Place(), step);
               }});
        }
      }
    }
  }
}

void AddShapes(std::vector<Case>* cases) {
  const std::vector<std::vector<int64_t>> shapes = {
      {},        {-1},    {0},      {1},       {3}, {6},  {12},       {24},       {-1, 1}, {1, -1},   {2, 3},     {3, 2},      {4, 3},
      {2, 3, 4}, {-1, 3}, {-1, -1}, {1, 1, 1}, {5}, {-2}, {3, -1, 2}, {2, 3, -1}, {0, -1}, {4, 2, 3}, {2, -1, 4}, {2, 2, 3, 4}};
  for (const auto& shape : shapes) {
    const std::string suffix = " " + ::testing::PrintToString(shape);
    cases->push_back({"view" + suffix, [=](const Tensor& x) { return x.view(shape); }});
    cases->push_back({"_unsafe_view" + suffix, [=](const Tensor& x) { return at::_unsafe_view(x, shape); }});
    cases->push_back({"expand" + suffix, [=](const Tensor& x) { return x.expand(shape); }});
    cases->push_back({"permute" + suffix, [=](const Tensor& x) { return x.permute(shape); }});
  }
  for (const std::vector<int64_t>& dims :
       std::vector<std::vector<int64_t>>{{1, 0}, {0, 1}, {-1, 0}, {2, 0, 1}, {0, 2, 1}, {-1, -2, -3}, {0, 0, 1}, {0, 1, 2}}) {
    cases->push_back({"permute " + ::testing::PrintToString(dims), [=](const Tensor& x) { return x.permute(dims); }});
  }
  cases->push_back({"t", [](const Tensor& x) { return x.t(); }});
  cases->push_back({"alias", [](const Tensor& x) { return at::alias(x); }});
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  AddDims(&cases);
  AddSlices(&cases);
  AddShapes(&cases);
  return cases;
}

std::vector<Tensor> Operands() {
  const Tensor all = torch::arange(48.0).view({2, 2, 3, 4});
  return {torch::tensor(1.0),
          torch::arange(3.0),
          torch::arange(0.0),
          torch::arange(1.0),
          all[0][0],
          all[0],
          all,
          all[1].transpose(0, 2),
          all[1].slice(2, 1, 4),
          all.slice(3, 0, 4, 2)[1],
          torch::empty({0, 3}),
          torch::empty({2, 0, 4}),
          all[0].unsqueeze(1),
          torch::ones({1, 3}).expand({2, 3}),
          torch::ones({2, 1, 4}),
          torch::conj(torch::ones({2, 3}, torch::kComplexFloat)),
          torch::ones({2, 3}).to_sparse()};
}

struct Outcome {
  Tensor view;
  std::string error;
};

Outcome Try(const Case& test, const Tensor& x) {
  try {
    return {test.view(x), ""};
  } catch (const c10::Error& error) {
    return {Tensor(), error.what_without_backtrace()};
  }
}

void ExpectSame(const Outcome& expected, const Outcome& actual, const Tensor& x) {
  ASSERT_EQ(expected.error, actual.error);
  if (!expected.view.defined()) return;
  ASSERT_EQ(expected.view.sizes(), actual.view.sizes());
  ASSERT_EQ(expected.view.layout(), actual.view.layout());
  if (x.layout() != torch::kStrided) return;
  ASSERT_EQ(expected.view.strides(), actual.view.strides());
  ASSERT_EQ(expected.view.storage_offset(), actual.view.storage_offset());
  ASSERT_EQ(expected.view.unsafeGetTensorImpl()->key_set().raw_repr(), actual.view.unsafeGetTensorImpl()->key_set().raw_repr());
  ASSERT_TRUE(actual.view.is_alias_of(x));
  ASSERT_EQ(expected.view.is_contiguous(), actual.view.is_contiguous());
  ASSERT_EQ(expected.view.is_view(), actual.view.is_view());
}

TEST(DirectViewsTest, AreATensInEveryLayoutAndForEveryArgument) {
  const std::vector<Case> cases = Cases();
  const std::vector<Tensor> operands = Operands();
  int64_t views = 0, errors = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    for (const Case& test : cases) {
      const Outcome expected = Try(test, operands[i]);
      Outcome actual;
      {
        const lazuli::DeviceMode mode;
        actual = Try(test, operands[i]);
      }
      ASSERT_NO_FATAL_FAILURE(ExpectSame(expected, actual, operands[i])) << test.name << " of operand " << i;
      ++(expected.view.defined() ? views : errors);
    }
  }
  EXPECT_GT(views, 10000);
  EXPECT_GT(errors, 5000);
}

TEST(DirectViewsTest, ShareVersionsAndGradients) {
  const lazuli::DeviceMode mode;
  Tensor x = torch::ones({2, 3}).requires_grad_();
  Tensor y = x * 2;
  const Tensor row = y.t().select(0, 1).unsqueeze(0);
  EXPECT_TRUE(row.is_view());
  EXPECT_TRUE(row._base().is_same(y));
  const auto version = row._version();
  y.mul_(3);
  EXPECT_EQ(row._version(), version + 1);
  row.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), torch::tensor({{0.F, 6.F, 0.F}, {0.F, 6.F, 0.F}})));
}

TEST(DirectViewsTest, OfPendingTensorsCutNothing) {
  const lazuli::DeviceMode mode;
  lazuli::sync();
  lazuli::reset();
  const Tensor x = torch::ones({4, 6}) + 1;
  const Tensor view = x.t().slice(0, 1, 5, 2).view({2, 4}).unsqueeze(1).expand({2, 3, 4}).permute({2, 0, 1}).select(0, 1).squeeze(0);
  EXPECT_EQ(lazuli::stats().traces, 0);
  EXPECT_EQ(view.sum().item<float>(), 12);
}

TEST(DirectViewsTest, InInferenceMode) {
  const lazuli::DeviceMode mode;
  const c10::InferenceMode inference;
  const Tensor x = torch::ones({2, 3});
  const Tensor view = x.t()[1];
  EXPECT_TRUE(view.is_inference());
  EXPECT_FALSE(view.is_view());
}

}  // namespace
}  // namespace lazuli::tracer
