// Formulas of op.def that do not fit on a line. Each follows the order of operations of ATen's vectorised CPU kernel.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <limits>

#include "codegen/lower_rows.h"

namespace lazuli::codegen {
namespace {

constexpr double kSqrtHalf = 0.70710678118654752440;       // 1 / sqrt(2)
constexpr double kTwoOverSqrtPi = 1.12837916709551257390;  // 2 / sqrt(pi)
constexpr double kGeluBeta = 1.41421356237309504880 * kTwoOverSqrtPi * 0.5;
constexpr double kGeluKappa = 0.044715;

// The largest number of a floating type.
double MostOf(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Half:
      return std::numeric_limits<c10::Half>::max();
    case c10::ScalarType::BFloat16:
      return std::numeric_limits<c10::BFloat16>::max();
    case c10::ScalarType::Float:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

bool IsTanhGelu(const OpEmitter& e, int arg) { return e.op().args[arg].value.toStringRef() == "tanh"; }

}  // namespace

Expr Lerp(Expr start, Expr end, Expr weight) {
  const Expr small = Abs(weight) < 0.5;
  return Fma(Select(small, weight, weight - 1.0), end - start, Select(small, start, end));
}

// CUDA's kernel multiplies by the inverse of a number.
Expr Quotient(const Operands& x) {
  if (x.on_cpu() || !x.is_number(1)) return x(0) / x.wide(1);
  return x(0) * (x.number(1) / x.wide(1));
}

Expr Addcdiv(const Operands& x) {
  if (x.on_cpu()) return x(0) + x(3) * x(1) / x(2);
  return Fma(x(3), x.step(x(1) / x(2)), x(0));
}

Expr Sign(Expr a) {
  const Expr zero = Like(a, 0), one = Like(a, 1);
  return Select(zero < a, one, zero) - Select(a < zero, one, zero);
}

Expr Relu6(Expr a) { return Min(Like(a, 6), Max(Like(a, 0), a)); }

// The bound comes first: of two zeros, Max and Min give the second, and eager keeps the value's.
Expr Clamp(const Operands& x) {
  Expr value = x(0);
  if (!x.emitter().IsNone(1)) value = Max(x(1), value);
  if (!x.emitter().IsNone(2)) value = Min(x(2), value);
  return value;
}

// A lone bound that is NaN is none; of two, as of tensors of bounds, NaN is the result.
Expr ClampToNumbers(const Operands& x) {
  const bool both = !x.emitter().IsNone(1) && !x.emitter().IsNone(2);
  if (both || !c10::isFloatingType(x.type())) return Clamp(x);
  const int bound = x.emitter().IsNone(1) ? 2 : 1;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double none = bound == 1 ? -kInfinity : kInfinity;
  const Expr given = x(bound), known = Select(given != given, Like(given, none), given);
  return bound == 1 ? Max(known, x(0)) : Min(known, x(0));
}

bool IsExponentOf(const TraceOp& op, c10::ScalarType type) {
  const TraceArg& exponent = op.args[1];
  if (exponent.kind != TraceArg::Kind::kConst || type == c10::kDouble || !c10::isFloatingType(type)) return true;
  const double exact = exponent.value.toScalar().toDouble(), rounded = static_cast<float>(exact);
  const auto is_odd = [](double number) { return std::fmod(number, 2) == 1 || std::fmod(number, 2) == -1; };
  return (exact == 0) == (rounded == 0) && std::isinf(exact) == std::isinf(rounded) && is_odd(exact) == is_odd(rounded);
}

Expr PowScalar(const Operands& x) {
  const TraceArg& exponent = x.emitter().op().args[1];
  const Expr base = x.narrow(0);
  if (exponent.kind != TraceArg::Kind::kConst) return Pow(base, x.narrow(1));
  const double value = exponent.value.toScalar().toDouble();
  if (value == 0) return Like(base, 1);
  if (value == 1) return base;
  if (value == 0.5) return Sqrt(base);
  if (value == 2) return base * base;
  if (value == 3) return x.step(base * base) * base;
  if (value == -0.5) return Reciprocal(Sqrt(base));
  if (value == -1) return Reciprocal(base);
  if (value == -2) return Reciprocal(x.step(base * base));
  return Pow(base, x.narrow(1));
}

Expr Elu(const Operands& x) {
  const Expr a = x(0), scale = x(2);
  const Expr negative = x(1) * scale;
  return Select(a < 0, Expm1(a * x(3)) * negative, a * scale);
}

Expr EluBackward(const Operands& x) {
  const Expr grad = x(0), at = x(5), inner = x(3), negative = x(1) * x(2);
  const bool is_result = x.emitter().op().args[4].value.toBool();
  const Expr left = is_result ? grad * inner * (at + negative) : grad * inner * negative * Exp(at * inner);
  return Select(at <= Like(at, 0), left, grad * x(2));
}

// Of the divisor's sign.
Expr Remainder(const Operands& x) {
  const Expr a = x(0), b = x(1), rest = Fmod(a, b);
  const Expr zero = Like(b, 0);
  return Select((rest != zero) & ((b < zero) ^ (rest < zero)), rest + b, rest);
}

Expr NanToNum(const Operands& x) {
  const Expr a = x(0), infinity = Like(a, std::numeric_limits<double>::infinity());
  const double most = MostOf(x.emitter().op().args[0].tensors[0].dtype);
  const auto given = [&](int arg, double otherwise) { return x.emitter().IsNone(arg) ? Like(a, otherwise) : x.narrow(arg); };
  return Select(IsNan(a), given(1, 0), Select(a == infinity, given(2, most), Select(a == -infinity, given(3, -most), a)));
}

Expr Xlogy(const Operands& x) {
  const Expr a = x(0), b = x(1);
  return Select(IsNan(b), b, Select(a == Like(a, 0), Like(a, 0), a * Log(b)));
}

Expr Gelu(const Operands& x) {
  const Expr a = x(0);
  if (!IsTanhGelu(x.emitter(), 1)) return a * 0.5 * (1.0 + Erf(a * kSqrtHalf));
  const Expr inner = kGeluBeta * (a + kGeluKappa * (a * a * a));
  return 0.5 * a * (1.0 + Tanh(inner));
}

Expr GeluBackward(const Operands& x) {
  const Expr grad = x(0), a = x(1);
  if (!IsTanhGelu(x.emitter(), 2)) {
    const Expr cdf = 0.5 * (1.0 + Erf(a * kSqrtHalf));
    const Expr pdf = kTwoOverSqrtPi * kSqrtHalf * 0.5 * Exp(a * a * -0.5);
    return grad * Fma(a, pdf, cdf);
  }
  const Expr tanh_inner = Tanh(kGeluBeta * (a + kGeluKappa * (a * a * a)));
  const Expr left = 0.5 * a;
  const Expr left_derivative = 0.5 * (1.0 + tanh_inner);
  const Expr tanh_derivative = Fma(-tanh_inner, tanh_inner, Like(a, 1));
  const Expr inner_derivative = kGeluBeta * (1.0 + Like(a, 3) * Like(a, kGeluKappa) * a * a);
  return grad * (left_derivative + left * tanh_derivative * inner_derivative);
}

// CUDA's kernels multiply, by a float.
Expr Sixth(const Operands& x, Expr value) { return x.on_cpu() ? value / 6 : value * (1.0f / 6.0f); }

Expr TanhBackward(const Operands& x) {
  const Expr y = x(1);
  return x(0) * (x.rounds_steps() ? x.step(1.0 - x.step(y * y)) : Fma(-y, y, Like(y, 1)));
}

Expr LogSigmoid(Expr a) { return Min(a, Like(a, 0)) - Log1p(Exp(-Abs(a))); }

Expr LogSigmoidAndBuffer(const Operands& x) {
  x.emitter().Result(1, Exp(-Abs(x(0))));
  return LogSigmoid(x(0));
}

Expr MishBackward(Expr grad, Expr x) {
  const Expr tanh_softplus = Tanh(Log1p(Exp(x)));
  return grad * Fma(x * Sigmoid(x), Fma(-tanh_softplus, tanh_softplus, Like(x, 1)), tanh_softplus);
}

}  // namespace lazuli::codegen
