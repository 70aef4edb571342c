#include "tests/support/kernel_reference.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <ATen/native/Math.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace lazuli::testing {
namespace {

using c10::ScalarType;
using codegen::IsReduce;
using codegen::KernelIR;
using codegen::KInst;
using codegen::KOp;

// A value of any type: floats and doubles in `d` (exactly), everything else in `i`.
struct Value {
  double d = 0;
  int64_t i = 0;
};

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
Value ReadAs(const char* address) {
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
void WriteAs(char* address, T value) {
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

int64_t Truncate(double value, ScalarType to) {
  const bool through_long = to == ScalarType::Long || to == ScalarType::Byte;
  const double limit = through_long ? 9223372036854775808.0 : 2147483648.0;
  if (!(value > -limit - (through_long ? 0 : 1) && value < limit)) {
    if (value == -limit) return Wrap(to, static_cast<int64_t>(value));
    return Wrap(to, through_long ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int32_t>::min());
  }
  return Wrap(to, static_cast<int64_t>(value));
}

Value Cast(ScalarType from, ScalarType to, const Value& value) {
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

double Transcendental(KOp op, double a, double b) {
  switch (op) {
    case KOp::kPow:
      return std::pow(a, b);
    case KOp::kAtan2:
      return std::atan2(a, b);
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

double Floating(KOp op, ScalarType type, double a, double b, double c) {
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

int64_t Integral(KOp op, ScalarType type, int64_t a, int64_t b) {
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

bool Compare(KOp op, bool floating, const Value& a, const Value& b) {
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
  } else if (inst.op >= KOp::kEq && inst.op <= KOp::kGe) {
    result.i = Compare(inst.op, floating, a, b);
  } else if (floating) {
    result.d = Floating(inst.op, in_type, a.d, b.d, c.d);
  } else {
    result.i = Wrap(in_type, Integral(inst.op, in_type, a.i, b.i));
  }
  return result;
}

// Evaluates all instructions up to the one asked for, at one point; Reduce results are remembered per kept point.
class Interpreter {
 public:
  Interpreter(const KernelIR& kernel, void* const* buffers, const uint64_t* scalars)
      : kernel_(kernel),
        buffers_(buffers),
        scalars_(scalars),
        rank_(static_cast<int>(kernel.sizes.size())),
        kept_(rank_ - kernel.num_reduced),
        values_(kernel.insts.size()) {}

  void Run() {
    c10::DimVector point(rank_, 0);
    KeptPoints(0, &point);
  }

 private:
  void KeptPoints(int dim, c10::DimVector* point) {
    if (dim < kept_) {
      for (int64_t i = 0; i < kernel_.sizes[dim]; ++i) {
        (*point)[dim] = i;
        KeptPoints(dim + 1, point);
      }
      return;
    }
    const size_t n = kernel_.insts.size();
    reduced_.assign(n, Value());
    for (size_t r = 0; r < n; ++r) {
      if (IsReduce(kernel_.insts[r].op)) Reduce(static_cast<int>(r), point);
    }
    // Values of every store at every point of this kept point before anything is written.
    std::vector<std::pair<char*, std::pair<ScalarType, Value>>> writes;
    for (const KInst& inst : kernel_.insts) {
      if (inst.op == KOp::kCheck) {
        EachReduced(kept_, point, -1, [&] {
          if (ValuesAt(inst.in[0], *point).i == 0) writes.push_back({Address(static_cast<int>(inst.imm), *point), {inst.type, {0, 1}}});
        });
      }
      if (inst.op != KOp::kStore) continue;
      EachReduced(kept_, point, inst.imm, [&] {
        writes.push_back({Address(static_cast<int>(inst.imm), *point), {inst.type, ValuesAt(inst.in[0], *point)}});
      });
    }
    for (auto& [address, typed] : writes) Write(typed.first, address, typed.second);
  }

  template <typename F>
  void EachReduced(int dim, c10::DimVector* point, int64_t buffer, const F& body) {
    if (dim == rank_) return body();
    const bool once = buffer >= 0 && kernel_.buffers[buffer].strides[dim] == 0;
    for (int64_t i = 0; i < (once ? 1 : kernel_.sizes[dim]); ++i) {
      (*point)[dim] = i;
      EachReduced(dim + 1, point, buffer, body);
    }
    (*point)[dim] = 0;
  }

  void Reduce(int r, c10::DimVector* point) {
    const KInst& inst = kernel_.insts[r];
    const bool floating = IsFloating(inst.type);
    const double inf = std::numeric_limits<double>::infinity();
    Value acc;
    if (inst.op == KOp::kReduceProd) acc = {1, 1};
    if (inst.op == KOp::kReduceAll) acc.i = 1;
    bool first = true;
    EachReduced(kept_, point, -1, [&] {
      const Value x = ValuesAt(inst.in[0], *point);
      switch (inst.op) {
        case KOp::kReduceSum:
          acc.d += x.d;
          acc.i = Wrap(inst.type, static_cast<int64_t>(static_cast<uint64_t>(acc.i) + static_cast<uint64_t>(x.i)));
          break;
        case KOp::kReduceProd:
          acc.d *= x.d;
          acc.i = Wrap(inst.type, static_cast<int64_t>(static_cast<uint64_t>(acc.i) * static_cast<uint64_t>(x.i)));
          break;
        case KOp::kReduceAny:
          acc.i |= x.i;
          break;
        case KOp::kReduceAll:
          acc.i &= x.i;
          break;
        default: {
          const bool is_max = inst.op == KOp::kReduceMax;
          if (floating && first) acc.d = is_max ? -inf : inf;
          if (!floating && first) acc = x;
          acc.d = floating ? MinMax(is_max ? KOp::kMax : KOp::kMin, acc.d, x.d) : 0;
          acc.i = is_max ? std::max(acc.i, x.i) : std::min(acc.i, x.i);
        }
      }
      first = false;
    });
    if (floating && first && inst.op == KOp::kReduceMax) acc.d = -inf;
    if (floating && first && inst.op == KOp::kReduceMin) acc.d = inf;
    acc.d = Round(inst.type, acc.d);
    reduced_[r] = acc;
  }

  char* Address(int b, const c10::DimVector& point) const {
    int64_t offset = 0;
    for (int d = 0; d < rank_; ++d) offset += point[d] * kernel_.buffers[b].strides[d];
    return static_cast<char*>(buffers_[b]) + offset * static_cast<int64_t>(c10::elementSize(kernel_.buffers[b].dtype));
  }

  Value ValuesAt(int last, const c10::DimVector& point) {
    for (int i = 0; i <= last; ++i) {
      const KInst& inst = kernel_.insts[i];
      switch (inst.op) {
        case KOp::kLoad:
          values_[i] = Read(inst.type, Address(static_cast<int>(inst.imm), point));
          break;
        case KOp::kGather: {
          const int64_t bytes = values_[inst.in[0]].i * static_cast<int64_t>(c10::elementSize(inst.type));
          values_[i] = Read(inst.type, Address(static_cast<int>(inst.imm), point) + bytes);
          break;
        }
        case KOp::kStore:
        case KOp::kCheck:
          break;
        case KOp::kConst:
        case KOp::kScalar: {
          const uint64_t bits = inst.op == KOp::kConst ? static_cast<uint64_t>(inst.imm) : scalars_[inst.imm];
          if (IsFloating(inst.type)) {
            double d;
            std::memcpy(&d, &bits, sizeof(d));
            values_[i].d = Round(inst.type, d);
          } else {
            values_[i].i = Wrap(inst.type, static_cast<int64_t>(bits));
          }
          break;
        }
        case KOp::kIndex:
          values_[i].i = point[inst.imm];
          break;
        default: {
          if (IsReduce(inst.op)) {
            values_[i] = reduced_[i];
            break;
          }
          auto operand = [&](int k) { return inst.in[k] < 0 ? Value() : values_[inst.in[k]]; };
          values_[i] = Arithmetic(inst, kernel_.insts[inst.in[0]].type, operand(0), operand(1), operand(2));
        }
      }
    }
    return values_[last];
  }

  const KernelIR& kernel_;
  void* const* buffers_;
  const uint64_t* scalars_;
  int rank_;
  int kept_;
  std::vector<Value> reduced_;  // Per Reduce, at the current kept point.
  std::vector<Value> values_;   // Per instruction, at the current point.
};

}  // namespace

void RunReference(const KernelIR& kernel, void* const* buffers, const uint64_t* scalars) { Interpreter(kernel, buffers, scalars).Run(); }

uint64_t BitsOf(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

}  // namespace lazuli::testing
