// Every pointwise row against ATen: op by op, type by type, on values that include zeros, infinities and NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "codegen/ir/op_info.h"
#include "codegen/ir/trace_text.h"
#include "codegen/lower.h"
#include "codegen/pipeline.h"
#include "tests/support/eager_trace.h"

namespace lazuli::codegen {
namespace {

using lazuli::testing::EagerTrace;

struct Case {
  const char* name;
  int tensors;                    // Leading tensor arguments.
  std::vector<c10::IValue> rest;  // What follows them.
  int ulps;                       // Allowed distance, in units of the last place of the result's type.
  // A sum that may cancel: no special values, and distances count in units of the last place of 1 where results are smaller.
  bool cancels = false;
};

std::vector<Case> Cases() {
  const c10::IValue none;
  std::vector<Case> cases = {
      {"aten::add.Tensor", 2, {1}, 0},
      {"aten::add.Tensor", 2, {0.3}, 2},
      {"aten::sub.Tensor", 2, {1}, 0},
      {"aten::rsub.Scalar", 1, {1.5, 1}, 0},
      {"aten::mul.Tensor", 2, {}, 0},
      {"aten::div.Tensor", 2, {}, 0},
      {"aten::add.Tensor", 1, {0.37, 1}, 0},
      {"aten::mul.Tensor", 1, {0.37}, 0},
      {"aten::div.Tensor", 1, {0.37}, 0},
      {"aten::add.Tensor", 1, {3, 2}, 0},
      {"aten::mul.Tensor", 1, {-7}, 0},
      {"aten::sub.Tensor", 1, {2, 1}, 0},
      {"aten::addcmul", 3, {0.5}, 0},
      {"aten::addcdiv", 3, {-0.5}, 0},
      {"aten::lerp.Scalar", 2, {0.3}, 1},
      {"aten::lerp.Scalar", 2, {0.9}, 1},
      {"aten::lerp.Tensor", 3, {}, 1},
      {"aten::neg", 1, {}, 0},
      {"aten::isinf", 1, {}, 0},
      {"aten::abs", 1, {}, 0},
      {"aten::sign", 1, {}, 0},
      {"aten::reciprocal", 1, {}, 0},
      {"aten::sqrt", 1, {}, 1},
      {"aten::rsqrt", 1, {}, 0},
      {"aten::pow.Tensor_Scalar", 1, {2}, 0},
      {"aten::pow.Tensor_Scalar", 1, {3}, 0},
      {"aten::pow.Tensor_Scalar", 1, {0.5}, 1},
      {"aten::pow.Tensor_Scalar", 1, {-1.0}, 0},
      {"aten::pow.Tensor_Scalar", 1, {-2.0}, 0},
      {"aten::pow.Tensor_Scalar", 1, {-0.5}, 0},
      {"aten::pow.Tensor_Scalar", 1, {2.7}, 4},
      {"aten::pow.Tensor_Tensor", 2, {}, 2},
      {"aten::floor", 1, {}, 0},
      {"aten::ceil", 1, {}, 0},
      {"aten::trunc", 1, {}, 0},
      {"aten::round", 1, {}, 0},
      {"aten::minimum", 2, {}, 0},
      {"aten::maximum", 2, {}, 0},
      {"aten::fmin", 2, {}, 0},
      {"aten::fmax", 2, {}, 0},
      {"aten::clamp", 1, {-0.5, 1.25}, 0},
      {"aten::clamp", 1, {none, 0.5}, 0},
      {"aten::clamp", 1, {-1, 1}, 0},
      {"aten::clamp_min", 1, {0.25}, 0},
      {"aten::clamp_max", 1, {0.25}, 0},
      {"aten::exp", 1, {}, 2},
      {"aten::exp2", 1, {}, 2},
      {"aten::expm1", 1, {}, 2},
      {"aten::log", 1, {}, 2},
      {"aten::log1p", 1, {}, 2},
      {"aten::log2", 1, {}, 2},
      {"aten::log10", 1, {}, 2},
      {"aten::sin", 1, {}, 2},
      {"aten::cos", 1, {}, 2},
      {"aten::tan", 1, {}, 2},
      {"aten::asin", 1, {}, 2},
      {"aten::acos", 1, {}, 2},
      {"aten::atan", 1, {}, 2},
      {"aten::sinh", 1, {}, 2},
      {"aten::cosh", 1, {}, 2},
      {"aten::tanh", 1, {}, 2},
      {"aten::erf", 1, {}, 2},
      {"aten::erfc", 1, {}, 4},
      {"aten::atan2", 2, {}, 2},
      {"aten::sigmoid", 1, {}, 2},
      {"aten::relu", 1, {}, 0},
      {"aten::leaky_relu", 1, {0.1}, 0},
      {"aten::_prelu_kernel", 2, {}, 0},
      {"aten::elu", 1, {1.3, 1.0, 1.0}, 4},
      {"aten::hardtanh", 1, {-1.0, 1.0}, 0},
      {"aten::hardswish", 1, {}, 0},
      {"aten::hardsigmoid", 1, {}, 0},
      {"aten::softplus", 1, {1.0, 20.0}, 4},
      {"aten::silu", 1, {}, 2},
      {"aten::mish", 1, {}, 8},
      {"aten::gelu", 1, {"none"}, 8, true},
      {"aten::gelu", 1, {"tanh"}, 8, true},
      {"aten::threshold", 1, {0.2, 7.0}, 0},
  };
  for (const char* name : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    static auto* names = new std::deque<std::string>;
    names->push_back(std::string("aten::") + name + ".Tensor");
    cases.push_back({names->back().c_str(), 2, {}, 0});
    names->push_back(std::string("aten::") + name + ".Scalar");
    cases.push_back({names->back().c_str(), 1, {0.5}, 0});
  }
  const std::vector<Case> more = {
      {"aten::isnan", 1, {}, 0},
      {"aten::logical_not", 1, {}, 0},
      {"aten::logical_and", 2, {}, 0},
      {"aten::logical_or", 2, {}, 0},
      {"aten::logical_xor", 2, {}, 0},
      {"aten::bitwise_not", 1, {}, 0},
      {"aten::bitwise_and.Tensor", 2, {}, 0},
      {"aten::bitwise_or.Tensor", 2, {}, 0},
      {"aten::bitwise_xor.Tensor", 2, {}, 0},
      {"aten::threshold_backward", 2, {0.1}, 0, true},
      {"aten::leaky_relu_backward", 2, {0.1, false}, 0, true},
      {"aten::hardtanh_backward", 2, {-1.0, 1.0}, 0, true},
      {"aten::hardsigmoid_backward", 2, {}, 0, true},
      {"aten::sigmoid_backward", 2, {}, 0, true},
      {"aten::tanh_backward", 2, {}, 0, true},
      {"aten::silu_backward", 2, {}, 4, true},
      {"aten::mish_backward", 2, {}, 16, true},
      {"aten::gelu_backward", 2, {"none"}, 16, true},
      {"aten::gelu_backward", 2, {"tanh"}, 16, true},
      {"aten::softplus_backward", 2, {1.0, 20.0}, 4, true},
      {"aten::mse_loss_backward", 3, {0}, 0, true},
      // ATen's loop over what vectors leave goes in another order.
      {"aten::smooth_l1_loss_backward", 3, {0, 1.5}, 1, true},
      {"aten::huber_loss_backward", 3, {0, 1.5}, 1, true},
      {"aten::bitwise_left_shift.Tensor", 2, {}, 0},
      {"aten::bitwise_right_shift.Tensor", 2, {}, 0},
      {"aten::tril", 1, {1}, 0},
      {"aten::triu", 1, {-1}, 0},
  };
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

at::Tensor Values(c10::ScalarType type, bool special, int seed) {
  at::manual_seed(seed);
  // 4 x 61 elements: whole vectors and a remainder.
  at::Tensor values = at::randn({4, 61}, at::kDouble) * 3;
  if (c10::isFloatingType(type) && special) {
    const double infinity = std::numeric_limits<double>::infinity();
    const double specials[] = {0.0, -0.0, infinity, -infinity, std::nan(""), 1.0, -1.0, 0.5, 88.0, -88.0, 1e-30, 3e5};
    int at = seed;
    for (double value : specials) values.view({-1})[at++] = value;
  }
  return values.to(type);
}

// Largest distance in units of the last place; where both are NaN, 0. Where one is, or signs of infinity differ: huge.
double UlpDistance(const at::Tensor& a, const at::Tensor& b, bool cancels) {
  if (!a.is_floating_point()) return at::equal(a, b) ? 0 : 1e9;
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  const int bits = a.scalar_type() == at::kDouble ? 52 : a.scalar_type() == at::kFloat ? 23 : a.scalar_type() == at::kHalf ? 10 : 7;
  const double smallest = cancels                          ? 1.0
                          : a.scalar_type() == at::kHalf   ? std::ldexp(1, -14)
                          : a.scalar_type() == at::kDouble ? std::ldexp(1, -1022)
                                                           : std::ldexp(1, -126);
  const at::Tensor scale = at::exp2(at::floor(at::log2(at::clamp_min(at::abs(y), smallest)))) * std::ldexp(1.0, -bits);
  const at::Tensor same = (x == y) | (x.isnan() & y.isnan());
  const at::Tensor distance = at::where(same, at::zeros_like(x), at::abs(x - y) / scale);
  return at::nan_to_num(distance, 1e9, 1e9).max().item<double>();
}

class LowerTest : public ::testing::TestWithParam<c10::ScalarType> {};

TEST_P(LowerTest, PointwiseRowsFollowAten) {
  int lowered = 0;
  for (const Case& test : Cases()) {
    SCOPED_TRACE(test.name);
    EagerTrace t;
    std::vector<c10::IValue> args;
    for (int i = 0; i < test.tensors; ++i) args.emplace_back(t.Input(Values(GetParam(), !test.cancels, i * 5 + 3)));
    args.insert(args.end(), test.rest.begin(), test.rest.end());
    at::Tensor result;
    try {
      result = t.Op1(test.name, args);
    } catch (const c10::Error&) {
      continue;  // ATen has no such kernel for this type.
    }
    t.Keep(result);
    PipelineOptions options;
    options.target = {"avx512", "eager"};
    auto program = Compile(t.trace(), options, nullptr);
    ASSERT_TRUE(program.ok()) << program.status();
    lowered += (*program)->num_kernels();
    const auto outcome = t.Run(**program);
    ASSERT_EQ(outcome.result.error, nullptr);
    const at::Tensor actual = outcome.actual.back();
    ASSERT_EQ(actual.scalar_type(), result.scalar_type());
    // ATen's scalar code, which does what vectors leave over, rounds a product to BFloat16 and Half that its vector code does not.
    const bool scaled_sum = std::string(test.name) == "aten::add.Tensor" && test.ulps > 0;
    const int allowed = c10::isReducedFloatingType(GetParam()) && !scaled_sum ? std::min(test.ulps, 1) : test.ulps;
    const double distance = UlpDistance(actual, result, test.cancels);
    EXPECT_LE(distance, allowed) << [&] {
      const auto bad = at::logical_not((actual == result) | (actual != actual)).view({-1}).nonzero().view({-1}).slice(0, 0, 6);
      std::ostringstream text;
      text << "args " << test.rest << "\nat " << bad << "\n";
      for (int i = 0; i < test.tensors; ++i) text << "in " << args[i].toTensor().view({-1}).index_select(0, bad) << "\n";
      text << "actual " << actual.view({-1}).index_select(0, bad) << "\neager " << result.view({-1}).index_select(0, bad);
      return text.str();
    }();
  }
  EXPECT_GT(lowered, 10);
}

INSTANTIATE_TEST_SUITE_P(Types, LowerTest,
                         ::testing::Values(at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kByte, at::kBool),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

// Whether the only operator of the trace `op` has a row. Its result is in storage 3.
bool HasRow(const std::string& op) {
  const auto trace = ParseTrace(
      "trace scalars=0 offsets=0\nstorage %0: input cpu\nstorage %1: input cpu\nstorage %2: input cpu\nstorage %3: fresh 600 bytes cpu "
      "live\n" +
      op + "\n");
  EXPECT_TRUE(trace.ok()) << trace.status();
  return trace.ok() && FindRow(trace->ops[0]) != nullptr;
}

TEST(Lower, OperandsBroadcastToTheResult) {
  const char* const sum = ", alpha=1)";
  EXPECT_TRUE(HasRow(std::string("%3 f32[5,30] = aten::add.Tensor(%0 f32[5,30], %1 f32[30]") + sum));
  EXPECT_TRUE(HasRow(std::string("%3 f32[5,30] = aten::add.Tensor(%0 f32[5,1], %1 f32[1,30]") + sum));
  const char* const rest = ", weight=none, reduction=1)";
  const std::string gradient = "%3 f32[150,1] = aten::binary_cross_entropy_backward(%0 f32[], %1 f32[150,1], ";
  EXPECT_TRUE(HasRow(gradient + "%2 f32[150,1]" + rest));
  EXPECT_FALSE(HasRow(gradient + "%2 f32[150]" + rest));
  EXPECT_FALSE(HasRow(gradient + "%2 f32[1,150]" + rest));
  EXPECT_FALSE(HasRow(gradient + "%2 f32[1,150,1]" + rest));
}

// Its operand is a window of the result.
TEST(Lower, AGradientOfAWindowIsMadeByAKernel) {
  EXPECT_TRUE(HasRow("%3 f32[5,10,3] = aten::select_backward(%0 f32[5,3], input_sizes=[5,10,3], dim=1, index=4)"));
}

}  // namespace
}  // namespace lazuli::codegen
