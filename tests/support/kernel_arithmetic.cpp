#include "tests/support/kernel_arithmetic.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <ATen/native/Math.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace lazuli::testing {

using c10::ScalarType;
using codegen::KInst;
using codegen::KOp;

bool IsFloating(ScalarType type) {
  return type == ScalarType::Float || type == ScalarType::Double || type == ScalarType::BFloat16 || type == ScalarType::Half;
}

int64_t Wrap(ScalarType type, int64_t value) {
  switch (type) {
    case ScalarType::Int:
      return static_cast<int32_t>(value);
    case ScalarType::Short:
      return static_cast<int16_t>(value);
    case ScalarType::Char:
      return static_cast<int8_t>(value);
    case ScalarType::Byte:
      return static_cast<uint8_t>(value);
    case ScalarType::Bool:
      return value != 0;
    default:
      return value;
  }
}

double Round(ScalarType type, double value) {
  switch (type) {
    case ScalarType::Float:
      return static_cast<float>(value);
    case ScalarType::BFloat16:
      return static_cast<float>(c10::BFloat16(static_cast<float>(value)));
    case ScalarType::Half:
      return static_cast<float>(c10::Half(static_cast<float>(value)));
    default:
      return value;
  }
}

template <typename T>
static Value ReadAs(const char* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  Value result;
  if constexpr (std::is_integral_v<T>) {
    result.i = value;
  } else {
    result.d = static_cast<double>(value);
  }
  return result;
}

Value Read(ScalarType type, const char* address) {
  switch (type) {
    case ScalarType::Float:
      return ReadAs<float>(address);
    case ScalarType::Double:
      return ReadAs<double>(address);
    case ScalarType::Long:
      return ReadAs<int64_t>(address);
    case ScalarType::Int:
      return ReadAs<int32_t>(address);
    case ScalarType::Short:
      return ReadAs<int16_t>(address);
    case ScalarType::Char:
      return ReadAs<int8_t>(address);
    case ScalarType::BFloat16:
      return ReadAs<c10::BFloat16>(address);
    case ScalarType::Half:
      return ReadAs<c10::Half>(address);
    case ScalarType::Bool: {
      Value value = ReadAs<uint8_t>(address);
      value.i = value.i != 0;
      return value;
    }
    default:
      return ReadAs<uint8_t>(address);
  }
}

template <typename T>
static void WriteAs(char* address, T value) {
  std::memcpy(address, &value, sizeof(T));
}

void Write(ScalarType type, char* address, const Value& value) {
  switch (type) {
    case ScalarType::Float:
      return WriteAs(address, static_cast<float>(value.d));
    case ScalarType::Double:
      return WriteAs(address, value.d);
    case ScalarType::BFloat16:
      return WriteAs(address, c10::BFloat16(static_cast<float>(value.d)));
    case ScalarType::Half:
      return WriteAs(address, c10::Half(static_cast<float>(value.d)));
    default:
      std::memcpy(address, &value.i, c10::elementSize(type));
  }
}

static int64_t Truncate(double value, ScalarType to) {
  const bool through_long = to == ScalarType::Long || to == ScalarType::Byte;
  const double limit = through_long ? 9223372036854775808.0 : 2147483648.0;
  if (!(value > -limit - (through_long ? 0 : 1) && value < limit)) {
    if (value == -limit) return Wrap(to, static_cast<int64_t>(value));
    return Wrap(to, through_long ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int32_t>::min());
  }
  return Wrap(to, static_cast<int64_t>(value));
}

static Value Cast(ScalarType from, ScalarType to, const Value& value) {
  Value result;
  if (IsFloating(from) && IsFloating(to)) {
    result.d = Round(to, to == ScalarType::Double ? value.d : Round(ScalarType::Float, value.d));
  } else if (IsFloating(from)) {
    result.i = to == ScalarType::Bool ? value.d != 0 : Truncate(value.d, to);
  } else if (IsFloating(to)) {
    result.d = to == ScalarType::Double ? static_cast<double>(value.i) : Round(to, static_cast<float>(value.i));
  } else {
    result.i = Wrap(to, value.i);
  }
  return result;
}

double MinMax(KOp op, double a, double b) {
  const bool ignore_nan = op == KOp::kFmin || op == KOp::kFmax;
  if (std::isnan(a) || std::isnan(b)) {
    if (ignore_nan) return std::isnan(a) ? b : a;
    return std::numeric_limits<double>::quiet_NaN();
  }
  return op == KOp::kMax || op == KOp::kFmax ? (a > b ? a : b) : (a < b ? a : b);
}

static double Transcendental(KOp op, double a, double b) {
  switch (op) {
    case KOp::kPow:
      return std::pow(a, b);
    case KOp::kAtan2:
      return std::atan2(a, b);
    case KOp::kHypot:
      return std::hypot(a, b);
    case KOp::kMod:
      return std::fmod(a, b);
    case KOp::kExp:
      return std::exp(a);
    case KOp::kExpm1:
      return std::expm1(a);
    case KOp::kLog:
      return std::log(a);
    case KOp::kLog1p:
      return std::log1p(a);
    case KOp::kLog2:
      return std::log2(a);
    case KOp::kLog10:
      return std::log10(a);
    case KOp::kExp2:
      return std::exp2(a);
    case KOp::kSin:
      return std::sin(a);
    case KOp::kCos:
      return std::cos(a);
    case KOp::kTan:
      return std::tan(a);
    case KOp::kAsin:
      return std::asin(a);
    case KOp::kAcos:
      return std::acos(a);
    case KOp::kAtan:
      return std::atan(a);
    case KOp::kSinh:
      return std::sinh(a);
    case KOp::kCosh:
      return std::cosh(a);
    case KOp::kTanh:
      return std::tanh(a);
    case KOp::kAsinh:
      return std::asinh(a);
    case KOp::kAcosh:
      return std::acosh(a);
    case KOp::kAtanh:
      return std::atanh(a);
    case KOp::kErf:
      return std::erf(a);
    case KOp::kErfc:
      return std::erfc(a);
    case KOp::kErfinv:
      return calc_erfinv(a);
    case KOp::kLgamma:
      return std::lgamma(a);
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

static double Floating(KOp op, ScalarType type, double a, double b, double c) {
  switch (op) {
    case KOp::kAdd:
      return Round(type, a + b);
    case KOp::kSub:
      return Round(type, a - b);
    case KOp::kMul:
      return Round(type, a * b);
    case KOp::kDiv:
      return Round(type, a / b);
    case KOp::kNeg:
      return -a;
    case KOp::kAbs:
      return std::fabs(a);
    case KOp::kSqrt:
      return Round(type, std::sqrt(a));
    case KOp::kFloor:
      return std::floor(a);
    case KOp::kCeil:
      return std::ceil(a);
    case KOp::kTrunc:
      return std::trunc(a);
    case KOp::kRound:
      return std::nearbyint(a);
    case KOp::kFma:
      return type == ScalarType::Float ? std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c)) : std::fma(a, b, c);
    case KOp::kMin:
    case KOp::kMax:
    case KOp::kFmin:
    case KOp::kFmax:
      return MinMax(op, a, b);
    default:
      return Round(type, Transcendental(op, a, b));
  }
}

static int64_t Integral(KOp op, ScalarType type, int64_t a, int64_t b) {
  const int64_t bits = 8 * static_cast<int64_t>(c10::elementSize(type));
  const bool is_signed = type != ScalarType::Byte && type != ScalarType::Bool;
  const bool in_range = b >= 0 && b < bits;
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (op) {
    case KOp::kAdd:
      return static_cast<int64_t>(ua + ub);
    case KOp::kSub:
      return static_cast<int64_t>(ua - ub);
    case KOp::kMul:
      return static_cast<int64_t>(ua * ub);
    case KOp::kDiv:
      return a / b;
    case KOp::kMod:
      return a % b;
    case KOp::kMin:
    case KOp::kFmin:
      return a < b ? a : b;
    case KOp::kMax:
    case KOp::kFmax:
      return a > b ? a : b;
    case KOp::kAnd:
      return a & b;
    case KOp::kOr:
      return a | b;
    case KOp::kXor:
      return a ^ b;
    case KOp::kShl:
      return in_range ? static_cast<int64_t>(ua << b) : 0;
    case KOp::kShr:
      return in_range ? a >> b : is_signed ? a >> (bits - 1) : 0;
    case KOp::kNeg:
      return static_cast<int64_t>(-ua);
    case KOp::kAbs:
      return a < 0 ? static_cast<int64_t>(-ua) : a;
    default:
      return type == ScalarType::Bool ? a == 0 : ~a;
  }
}

static bool Compare(KOp op, bool floating, const Value& a, const Value& b) {
  const bool eq = floating ? a.d == b.d : a.i == b.i;
  const bool lt = floating ? a.d < b.d : a.i < b.i;
  const bool gt = floating ? a.d > b.d : a.i > b.i;
  switch (op) {
    case KOp::kEq:
      return eq;
    case KOp::kNe:
      return !eq;
    case KOp::kLt:
      return lt;
    case KOp::kLe:
      return lt || eq;
    case KOp::kGt:
      return gt;
    default:
      return gt || eq;
  }
}

Value Arithmetic(const KInst& inst, ScalarType in_type, const Value& a, const Value& b, const Value& c) {
  Value result;
  const bool floating = IsFloating(in_type);
  if (inst.op == KOp::kCast) return Cast(in_type, inst.type, a);
  if (inst.op == KOp::kSelect) return a.i != 0 ? b : c;
  if (inst.op == KOp::kIsNan) {
    result.i = std::isnan(a.d);
  } else if (inst.op == KOp::kBits) {
    const auto narrow = static_cast<float>(a.d);
    int32_t bits;
    std::memcpy(&bits, &narrow, sizeof(bits));
    result.i = bits;
  } else if (inst.op >= KOp::kEq && inst.op <= KOp::kGe) {
    result.i = Compare(inst.op, floating, a, b);
  } else if (floating) {
    result.d = Floating(inst.op, in_type, a.d, b.d, c.d);
  } else {
    result.i = Wrap(in_type, Integral(inst.op, in_type, a.i, b.i));
  }
  return result;
}

}  // namespace lazuli::testing
