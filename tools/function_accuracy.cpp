#include "tools/function_accuracy.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <random>
#include <type_traits>

namespace lazuli::tools {
namespace {

using codegen::KOp;

constexpr int64_t kBlock = 1 << 16;
constexpr uint64_t kPatterns = uint64_t{1} << 32;

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

template <class T>
T FromBits(uint64_t pattern) {
  const auto bits = static_cast<BitsOf<T>>(pattern);
  T value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// A kernel that applies `op` to kBlock numbers of `type`, or pairs.
codegen::KernelIR KernelOf(KOp op, c10::ScalarType type) {
  codegen::KernelIR kernel;
  kernel.sizes = {kBlock};
  const int arity = codegen::KOpArity(op);
  for (int i = 0; i <= arity; ++i) kernel.buffers.push_back({type, {1}, i == arity});
  const auto add = [&](KOp inst_op, int32_t a, int32_t b, int64_t imm) {
    codegen::KInst inst;
    inst.op = inst_op;
    inst.type = type;
    inst.in = {a, b, -1};
    inst.imm = imm;
    kernel.insts.push_back(inst);
  };
  for (int i = 0; i < arity; ++i) add(KOp::kLoad, -1, -1, i);
  add(op, 0, arity > 1 ? 1 : -1, 0);
  add(KOp::kStore, arity, -1, arity);
  return kernel;
}

// The distance in ulps of T, for a reference in a wider type.
template <class T, class Wide>
double Ulps(T got, Wide expected) {
  constexpr double kWrong = std::numeric_limits<double>::infinity();
  if (std::isnan(expected) || std::isnan(got)) return std::isnan(expected) && std::isnan(got) ? 0 : kWrong;
  const Wide magnitude = std::fabs(expected);
  // What rounds to infinity, or lies within 1 ulp of it, may be infinity.
  if (std::isinf(got)) return magnitude >= std::numeric_limits<T>::max() && std::signbit(got) == std::signbit(expected) ? 0 : kWrong;
  if (std::isinf(expected)) return kWrong;
  if (expected == 0 && (got != 0 || std::signbit(got) != std::signbit(expected))) return kWrong;
  const T rounded = magnitude < std::numeric_limits<T>::max() ? static_cast<T>(magnitude) : std::numeric_limits<T>::max();
  BitsOf<T> bits;
  std::memcpy(&bits, &rounded, sizeof(bits));
  const Wide ulp = rounded < std::numeric_limits<T>::max() ? static_cast<Wide>(FromBits<T>(bits + 1)) - rounded
                                                           : static_cast<Wide>(rounded) - FromBits<T>(bits - 1);
  return static_cast<double>(std::fabs(got - expected) / ulp);
}

// Random bit patterns and numbers of moderate size by turns; of the latter some that are hard: whole ones, ones next to a multiple of pi /
// 2, ones close to 1.
template <class T>
T Draw(std::mt19937_64& random) {
  const uint64_t bits = random();
  if (random() % 2 == 0) return FromBits<T>(bits);
  const double unit = static_cast<double>(static_cast<int64_t>(bits)) * 0x1p-63;
  const double value = std::ldexp(unit, static_cast<int>(random() % 12) - 2);
  switch (random() % 8) {
    case 0:
      return static_cast<T>(std::round(value));
    case 1:
      return static_cast<T>(std::round(std::ldexp(unit, static_cast<int>(random() % 24))) * 1.5707963267948966);
    case 2:
      return static_cast<T>(1 + std::ldexp(unit, -static_cast<int>(random() % 50)));
    default:
      return static_cast<T>(value);
  }
}

// Fills the next arguments, and returns how many there are; 0: no more.
template <class T>
using Arguments = std::function<int64_t(std::vector<T>& a, std::vector<T>& b)>;

// For which functions of C have rules of their own: whole, odd and even numbers, ones, zeros, the ends of the type's range.
template <class T>
std::vector<T> SpecialValues() {
  using Limits = std::numeric_limits<T>;
  const T odd = static_cast<T>(std::ldexp(1.0, Limits::digits)) - 1;  // The largest.
  std::vector<T> values = {0, 0.5, 1, T(1.5), 2, 3, 64, 1025, odd, odd + 1, Limits::denorm_min(), Limits::min(), Limits::max()};
  values.push_back(Limits::infinity());
  values.push_back(Limits::quiet_NaN());
  for (size_t i = values.size(); i-- > 0;) values.push_back(-values[i]);
  return values;
}

// Begins with all pairs of special values.
template <class T>
Arguments<T> RandomArguments(uint64_t count) {
  return [count, random = std::mt19937_64(7), start = true](std::vector<T>& a, std::vector<T>& b) mutable {
    const int64_t n = static_cast<int64_t>(std::min<uint64_t>(count, kBlock));
    const std::vector<T> specials = start ? SpecialValues<T>() : std::vector<T>();
    const size_t pairs = specials.size() * specials.size();
    start = false;
    for (int64_t i = 0; i < n; ++i) {
      const auto pair = static_cast<size_t>(i);
      a[i] = pair < pairs ? specials[pair / specials.size()] : Draw<T>(random);
      b[i] = pair < pairs ? specials[pair % specials.size()] : Draw<T>(random);
    }
    count -= static_cast<uint64_t>(n);
    return n;
  };
}

// First, unless all come anyway, the ends of every binade: zeros, infinities, NaNs, the largest and the smallest numbers are among them.
Arguments<float> PatternsOfFloats(uint64_t step) {
  return [step, bits = uint64_t{0}, ends = step == 1](std::vector<float>& a, std::vector<float>& /*b*/) mutable {
    int64_t n = 0;
    for (uint64_t binade = 0; !ends && binade < 512; ++binade) {
      for (const uint32_t offset : {0xFFFFFFFFu, 0u, 1u}) a[n++] = FromBits<float>((binade << 23) + offset);
    }
    ends = true;
    for (; n < kBlock && bits < kPatterns; ++n, bits += step) a[n] = FromBits<float>(bits);
    return n;
  };
}

template <class T, class Reference>
absl::StatusOr<Accuracy> Measure(const MeasuredFunction& function, const codegen::KernelTarget& target, Reference reference,
                                 Arguments<T> next) {
  const auto kernel = codegen::CompileKernel(KernelOf(function.op, c10::CppTypeToScalarType<T>::value), target, nullptr);
  if (!kernel.ok()) return kernel.status();
  std::vector<T> a(kBlock), b(kBlock), out(kBlock);
  void* unary[] = {a.data(), out.data()};
  void* binary[] = {a.data(), b.data(), out.data()};
  Accuracy accuracy;
  std::mutex mutex;
  while (const int64_t n = next(a, b)) {
    (*kernel)->Run(codegen::KOpArity(function.op) == 1 ? unary : binary, nullptr);
    at::parallel_for(0, n, kBlock / 64, [&](int64_t begin, int64_t end) {
      Accuracy part;
      for (int64_t i = begin; i < end; ++i) {
        const double error = UlpsBetween(out[i], reference(a[i], b[i]));
        if (error > part.worst) part = {error, a[i], b[i], 0};
      }
      const std::lock_guard<std::mutex> lock(mutex);
      if (part.worst > accuracy.worst) accuracy = {part.worst, part.worst_at, part.worst_with, accuracy.measured};
    });
    accuracy.measured += n;
  }
  return accuracy;
}

}  // namespace

const std::vector<MeasuredFunction>& MeasuredFunctions() {
#define LAZULI_MEASURED(name, op, float_bound, double_bound)                                                                             \
  MeasuredFunction {                                                                                                                     \
#name, KOp::op, [](double x, double) { return std::name(x); }, [](long double x, long double) { return std::name(x); }, float_bound, \
                                                                                                                         double_bound    \
  }
#define LAZULI_MEASURED_PAIR(name, op, float_bound, double_bound)                                                                      \
  MeasuredFunction {                                                                                                                   \
#name, KOp::op,                                                                                                                    \
        [](double x, double y) { return std::name(x, y); }, [](long double x, long double y) { return std::name(x, y); }, float_bound, \
                                                                                                                       double_bound    \
  }
  static const auto* functions = new std::vector<MeasuredFunction>{
      LAZULI_MEASURED(exp, kExp, 1, 1),         LAZULI_MEASURED(expm1, kExpm1, 1, 1),  LAZULI_MEASURED(exp2, kExp2, 1, 1),
      LAZULI_MEASURED(log, kLog, 1, 1),         LAZULI_MEASURED(log1p, kLog1p, 1, 1),  LAZULI_MEASURED(log2, kLog2, 1, 1),
      LAZULI_MEASURED(log10, kLog10, 1, 1),     LAZULI_MEASURED(tanh, kTanh, 1, 1),    LAZULI_MEASURED(erf, kErf, 1, 1),
      LAZULI_MEASURED(sqrt, kSqrt, 0.5, 0.501), LAZULI_MEASURED(sin, kSin, 1, 1),      LAZULI_MEASURED(cos, kCos, 1, 1),
      LAZULI_MEASURED(tan, kTan, 1, 1),         LAZULI_MEASURED(asin, kAsin, 1, 1),    LAZULI_MEASURED(acos, kAcos, 1, 1),
      LAZULI_MEASURED(atan, kAtan, 1, 1),       LAZULI_MEASURED(sinh, kSinh, 1, 1),    LAZULI_MEASURED(cosh, kCosh, 1, 1),
      LAZULI_MEASURED(asinh, kAsinh, 1, 1),     LAZULI_MEASURED(acosh, kAcosh, 1, 1),  LAZULI_MEASURED(atanh, kAtanh, 1, 1),
      LAZULI_MEASURED(erfc, kErfc, 1, 1),       LAZULI_MEASURED_PAIR(pow, kPow, 1, 1), LAZULI_MEASURED_PAIR(atan2, kAtan2, 1, 1),
  };
#undef LAZULI_MEASURED
#undef LAZULI_MEASURED_PAIR
  return *functions;
}

double UlpsBetween(float got, double expected) { return Ulps(got, expected); }
double UlpsBetween(double got, long double expected) { return Ulps(got, expected); }

absl::StatusOr<Accuracy> MeasureFloats(const MeasuredFunction& function, const codegen::KernelTarget& target, uint64_t step) {
  if (codegen::KOpArity(function.op) == 1) return Measure<float>(function, target, function.for_float, PatternsOfFloats(step));
  return Measure<float>(function, target, function.for_float, RandomArguments<float>(kPatterns / step));
}

absl::StatusOr<Accuracy> MeasureDoubles(const MeasuredFunction& function, const codegen::KernelTarget& target, uint64_t samples) {
  return Measure<double>(function, target, function.for_double, RandomArguments<double>(samples));
}

}  // namespace lazuli::tools
