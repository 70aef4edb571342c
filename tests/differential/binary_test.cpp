// Elementwise ops of two and three tensors, mixed dtypes, in-place variants, backward formulas.
#include <ATen/MemoryOverlap.h>

#include "tests/support/differential.h"

namespace lazuli::testing {
namespace {

const std::vector<OpCase>& ArithmeticOps() {
  static const auto* ops = new std::vector<OpCase>{
      LAZULI_BINARY("add", kAny, kAny, kExact, x + y),
      LAZULI_BINARY("add alpha", kFinite, kFinite, kComposite, x.add(y, 2)),
      LAZULI_BINARY("sub", kAny, kAny, kExact, x - y),
      LAZULI_BINARY("sub alpha", kFinite, kFinite, kComposite, x.sub(y, 3)),
      LAZULI_BINARY("rsub", kAny, kAny, kExact, torch::rsub(x, y)),
      LAZULI_BINARY("mul", kAny, kAny, kExact, x * y),
      LAZULI_BINARY("div", kAny, kAny, kExact, x / y),
      LAZULI_BINARY("div floor", kFinite, kNonZero, kExact, x.div(y, "floor")),
      LAZULI_BINARY("div trunc", kFinite, kNonZero, kExact, x.div(y, "trunc")),
      LAZULI_BINARY("floor_divide", kFinite, kNonZero, kExact, x.floor_divide(y)),
      LAZULI_BINARY("remainder", kFinite, kNonZero, kExact, x.remainder(y)),
      LAZULI_BINARY("fmod", kFinite, kNonZero, kExact, x.fmod(y)),
      LAZULI_BINARY("minimum", kAny, kFinite, kExact, torch::minimum(x, y)),
      LAZULI_BINARY("maximum", kAny, kFinite, kExact, torch::maximum(x, y)),
      LAZULI_BINARY("fmin", kAny, kFinite, kExact, torch::fmin(x, y)),
      LAZULI_BINARY("fmax", kAny, kFinite, kExact, torch::fmax(x, y)),
      LAZULI_BINARY("copysign", kAny, kAny, kExact, x.copysign(y)),
      LAZULI_BINARY("nextafter", kFinite, kFinite, kExact, x.nextafter(y)),
      LAZULI_BINARY("heaviside", kAny, kFinite, kExact, x.heaviside(y)),
      LAZULI_BINARY("gcd", kFinite, kFinite, kExact, x.gcd(y)),
      LAZULI_BINARY("lcm", kFinite, kFinite, kExact, x.lcm(y)),
      LAZULI_BINARY("ldexp", kFinite, kIndex, kComposite, x.ldexp(y)),
      LAZULI_BINARY("pow", kPositive, kFinite, kTranscendental, x.pow(y)),
      LAZULI_BINARY("pow any", kAny, kAny, kTranscendental, x.pow(y)),
      LAZULI_BINARY("atan2 any", kAny, kAny, kTranscendental, x.atan2(y)),
      LAZULI_BINARY("atan2", kFinite, kFinite, kTranscendental, x.atan2(y)),
      LAZULI_BINARY("hypot", kFinite, kFinite, kTranscendental, x.hypot(y)),
      LAZULI_BINARY("logaddexp", kFinite, kFinite, kComposite, x.logaddexp(y)),
      LAZULI_BINARY("xlogy", kFinite, kPositive, kComposite, x.xlogy(y)),
      LAZULI_BINARY("float_power", kPositive, kFinite, kTranscendental, x.float_power(y)),
      LAZULI_BINARY("dist chain", kFinite, kFinite, kExact, (x - y).square() * 0.5),
      LAZULI_BINARY("shift left", kIndex, kIndex, kExact, x.bitwise_left_shift(y)),
      LAZULI_BINARY("shift right", kAny, kIndex, kExact, x.bitwise_right_shift(y)),
      LAZULI_BINARY("bitwise_and", kAny, kAny, kExact, x.bitwise_and(y)),
      LAZULI_BINARY("bitwise_or", kAny, kAny, kExact, x.bitwise_or(y)),
      LAZULI_BINARY("bitwise_xor", kAny, kAny, kExact, x.bitwise_xor(y)),
      LAZULI_BINARY("clamp tensor", kAny, kFinite, kExact, torch::clamp(x, y, y + 1)),
      LAZULI_BINARY("clamp_min tensor", kAny, kFinite, kExact, torch::clamp_min(x, y)),
  };
  return *ops;
}

const std::vector<OpCase>& LogicOps() {
  static const auto* ops = new std::vector<OpCase>{
      LAZULI_BINARY("eq", kIndex, kIndex, kExact, x == y),
      LAZULI_BINARY("ne", kAny, kAny, kExact, x != y),
      LAZULI_BINARY("lt", kAny, kAny, kExact, x < y),
      LAZULI_BINARY("le", kAny, kAny, kExact, x <= y),
      LAZULI_BINARY("gt", kAny, kAny, kExact, x > y),
      LAZULI_BINARY("ge", kAny, kAny, kExact, x >= y),
      LAZULI_BINARY("logical_and", kUnit, kUnit, kExact, x.logical_and(y)),
      LAZULI_BINARY("logical_or", kUnit, kUnit, kExact, x.logical_or(y)),
      LAZULI_BINARY("logical_xor", kAny, kAny, kExact, x.logical_xor(y)),
      LAZULI_BINARY("isclose", kIndex, kIndex, kExact, x.isclose(y)),
      LAZULI_BINARY("where", kAny, kAny, kExact, torch::where(x > y, x, y)),
      LAZULI_TERNARY("where three", kUnit, kAny, kAny, kExact, torch::where(x > 0, y, z)),
      LAZULI_BINARY("masked_fill tensor", kAny, kAny, kExact, x.masked_fill(y > 0, Constant({}, x, 1, 2))),
      LAZULI_BINARY("masks combined", kAny, kAny, kExact, (x > 0).logical_and(y < 1).to(x.scalar_type())),
      LAZULI_BINARY("bool arithmetic", kUnit, kUnit, kExact, (x > 0) + (y > 0)),
  };
  return *ops;
}

const std::vector<OpCase>& TernaryOps() {
  static const auto* ops = new std::vector<OpCase>{
      LAZULI_TERNARY("addcmul", kFinite, kFinite, kFinite, kContracted, x.addcmul(y, z, 2)),
      LAZULI_TERNARY("addcmul one", kFinite, kFinite, kFinite, kContracted, x.addcmul(y, z)),
      LAZULI_TERNARY("addcdiv", kFinite, kFinite, kNonZero, kContracted, x.addcdiv(y, z, 2)),
      LAZULI_TERNARY("lerp", kFinite, kFinite, kUnit, kContracted, x.lerp(y, z)),
      LAZULI_BINARY("lerp scalar", kFinite, kFinite, kContracted, x.lerp(y, 0.3)),
      LAZULI_BINARY("lerp scalar high", kFinite, kFinite, kContracted, x.lerp(y, 0.7)),
      LAZULI_TERNARY("chain", kFinite, kFinite, kFinite, kExact, (x * y + z) * x - y),
      LAZULI_TERNARY("diamond", kFinite, kFinite, kFinite, kExact, (x + y) * (x - z)),
      LAZULI_TERNARY("addcmul_", kFinite, kFinite, kFinite, kContracted, x.addcmul_(y, z, 0.5)),
      LAZULI_TERNARY("addcdiv_", kFinite, kFinite, kNonZero, kContracted, x.addcdiv_(y, z, -0.1)),
      LAZULI_BINARY("lerp_", kFinite, kFinite, kContracted, x.lerp_(y, 0.1)),
  };
  return *ops;
}

// masked_fill_ takes a tensor that has several elements in one place. On a GPU any of them may be stored last.
torch::Tensor Filled(const torch::Tensor& x) { return x.is_cuda() && at::has_internal_overlap(x) != at::MemOverlap::No ? x.clone() : x; }

const std::vector<OpCase>& InPlaceOps() {
  static const auto* ops = new std::vector<OpCase>{
      LAZULI_BINARY("add_", kAny, kAny, kExact, x.add_(y)),
      LAZULI_BINARY("add_ alpha", kFinite, kFinite, kComposite, x.add_(y, 2)),
      LAZULI_BINARY("sub_", kAny, kAny, kExact, x.sub_(y)),
      LAZULI_BINARY("mul_", kAny, kAny, kExact, x.mul_(y)),
      LAZULI_BINARY("div_", kAny, kAny, kExact, x.div_(y)),
      LAZULI_BINARY("mul_ self", kAny, kAny, kExact, x.mul_(x)),
      LAZULI_BINARY("copy_", kFinite, kFinite, kExact, x.copy_(y)),
      LAZULI_BINARY("copy_ cast", kFinite, kFinite, kExact, x.copy_(y.to(torch::kDouble))),
      LAZULI_BINARY("add_ double", kFinite, kFinite, kExact, x.add_(y.to(torch::kDouble))),
      LAZULI_BINARY("maximum into", kAny, kFinite, kExact, x.copy_(torch::maximum(x, y))),
      LAZULI_BINARY("lt_", kAny, kAny, kExact, x.lt_(y)),
      LAZULI_BINARY("logical_and_", kUnit, kUnit, kExact, x.logical_and_(y)),
      LAZULI_BINARY("bitwise_xor_", kAny, kAny, kExact, x.bitwise_xor_(y)),
      LAZULI_BINARY("masked_fill_ tensor", kAny, kAny, kExact, Filled(x).masked_fill_(y > 0, 1)),
      LAZULI_BINARY("read then write", kFinite, kFinite, kExact,
                    [&] {
                      auto before = x * 2;
                      x.add_(y);
                      return before + x;
                    }()),
      LAZULI_BINARY("write both", kFinite, kFinite, kExact,
                    [&] {
                      x.add_(y);
                      y.mul_(x);
                      x.sub_(y);
                      return x + y;
                    }()),
  };
  return *ops;
}

const std::vector<OpCase>& MixedOps() {
  static const auto* ops = new std::vector<OpCase>{
      LAZULI_BINARY("add double", kFinite, kFinite, kExact, x + y.to(torch::kDouble)),
      LAZULI_BINARY("add half", kFinite, kFinite, kExact, x + y.to(torch::kHalf)),
      LAZULI_BINARY("mul bfloat16", kFinite, kFinite, kExact, x * y.to(torch::kBFloat16)),
      LAZULI_BINARY("add int", kFinite, kFinite, kExact, x + y.to(torch::kInt)),
      LAZULI_BINARY("mul bool", kFinite, kUnit, kExact, x * (y > 0)),
      LAZULI_BINARY("sub uint8", kFinite, kPositive, kExact, x - y.to(torch::kByte)),
      LAZULI_BINARY("div long", kFinite, kPositive, kExact, x / y.to(torch::kLong)),
      LAZULI_BINARY("lt mixed", kFinite, kFinite, kExact, x < y.to(torch::kInt)),
      LAZULI_BINARY("where mixed", kFinite, kFinite, kExact, torch::where(x > 0, x, y.to(torch::kDouble))),
      LAZULI_UNARY("zero-dim operand", kFinite, kExact, x * Constant({}, x, 1, 3)),
      LAZULI_UNARY("zero-dim double", kFinite, kExact, x + Constant({}, x, 1, 3).to(torch::kDouble)),
      LAZULI_UNARY("zero-dim first", kFinite, kExact, Constant({}, x, 1, 3).to(torch::kLong) - x),
  };
  return *ops;
}

const std::vector<OpCase>& BackwardOps() {
  static const auto* ops = new std::vector<OpCase>{
      LAZULI_BINARY("threshold_backward", kFinite, kFinite, kExact, torch::threshold_backward(x, y, 0)),
      LAZULI_BINARY("leaky_relu_backward", kFinite, kFinite, kExact, torch::leaky_relu_backward(x, y, 0.1, false)),
      LAZULI_BINARY("hardtanh_backward", kFinite, kFinite, kExact, torch::hardtanh_backward(x, y, -1, 1)),
      LAZULI_BINARY("hardswish_backward", kFinite, kFinite, kContracted, torch::hardswish_backward(x, y)),
      LAZULI_BINARY("hardsigmoid_backward", kFinite, kFinite, kExact, torch::hardsigmoid_backward(x, y)),
      LAZULI_BINARY("sigmoid_backward", kFinite, kUnit, kExact, torch::sigmoid_backward(x, y)),
      LAZULI_BINARY("tanh_backward", kFinite, kUnit, kContracted, torch::tanh_backward(x, y)),
      LAZULI_BINARY("gelu_backward", kFinite, kFinite, kComposite, torch::gelu_backward(x, y.expand_as(x))),
      LAZULI_BINARY("gelu_backward tanh", kFinite, kFinite, kComposite, torch::gelu_backward(x, y.expand_as(x), "tanh")),
      LAZULI_BINARY("silu_backward", kFinite, kFinite, kComposite, torch::silu_backward(x, y)),
      LAZULI_BINARY("mish_backward", kFinite, kFinite, kComposite, torch::mish_backward(x, y)),
      LAZULI_BINARY("elu_backward", kFinite, kFinite, kComposite, torch::elu_backward(x, 1, 1, 1, false, y)),
      LAZULI_BINARY("elu_backward of a result", kFinite, kFinite, kComposite, torch::elu_backward(x, 1.3, 0.7, 0.5, true, y)),
      LAZULI_BINARY("softplus_backward", kFinite, kFinite, kComposite, torch::softplus_backward(x, y, 1, 20)),
      LAZULI_BINARY("log_sigmoid_backward", kFinite, kFinite, kComposite,
                    torch::log_sigmoid_backward(x, y.expand_as(x), torch::exp(-y.expand_as(x).abs()))),
      LAZULI_BINARY("logit_backward", kFinite, kUnit, kComposite, torch::logit_backward(x, y.abs(), 1e-3)),
      LAZULI_BINARY("native_dropout_backward", kFinite, kFinite, kExact, torch::native_dropout_backward(x, y > 0, 2.0)),
  };
  return *ops;
}

class BinaryOps : public ::testing::TestWithParam<std::string> {};

TEST_P(BinaryOps, Arithmetic) { RunDifferential("binary arithmetic", GetParam(), ArithmeticOps()); }
TEST_P(BinaryOps, Logic) { RunDifferential("logic", GetParam(), LogicOps()); }
TEST_P(BinaryOps, Ternary) { RunDifferential("ternary", GetParam(), TernaryOps()); }
TEST_P(BinaryOps, InPlace) { RunDifferential("in place", GetParam(), InPlaceOps()); }
TEST_P(BinaryOps, MixedDtypes) { RunDifferential("mixed dtypes", GetParam(), MixedOps()); }
TEST_P(BinaryOps, Backward) { RunDifferential("backward formulas", GetParam(), BackwardOps()); }
TEST_P(BinaryOps, ArithmeticGradients) { RunGradients("binary arithmetic", GetParam(), ArithmeticOps()); }
TEST_P(BinaryOps, TernaryGradients) { RunGradients("ternary", GetParam(), TernaryOps()); }
TEST_P(BinaryOps, InPlaceGradients) { RunGradients("in place", GetParam(), InPlaceOps()); }
TEST_P(BinaryOps, MixedGradients) { RunGradients("mixed dtypes", GetParam(), MixedOps()); }

LAZULI_BOTH_BACKENDS(BinaryOps);

}  // namespace
}  // namespace lazuli::testing
