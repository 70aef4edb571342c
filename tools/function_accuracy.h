// How far kernels' functions are from the true values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/kernel_compiler.h"
#include "codegen/kernel_ir.h"

namespace lazuli::tools {

// A function of one number or two, and what it is measured against: the same in a wider type, whose own error is far below one ulp of the
// narrower one.
struct MeasuredFunction {
  using OfDouble = double (*)(double, double);
  using OfLongDouble = long double (*)(long double, long double);

  const char* name;
  codegen::KOp op;
  OfDouble for_float;  // These ignore the second argument of a function of one number.
  OfLongDouble for_double;
  double float_bound;  // In ulps: the most that the default precision may be off.
  double double_bound;
};

const std::vector<MeasuredFunction>& MeasuredFunctions();

struct Accuracy {
  double worst = 0;  // In ulps of the true value; infinite where a NaN, an infinity or the sign of a zero is wrong.
  double worst_at = 0;
  double worst_with = 0;  // The second argument.
  int64_t measured = 0;
};

// Runs a function of one float over every `step`th bit pattern, from 0 on: 1 tries all 2^32, and takes a minute of one CPU. Of two floats,
// it takes 2^32 / `step` pairs, half of them random bit patterns, half of moderate size. Fails when the kernel cannot be compiled for
// `target`.
absl::StatusOr<Accuracy> MeasureFloats(const MeasuredFunction& function, const codegen::KernelTarget& target, uint64_t step);

// Runs `function` over so many random doubles (pairs), as MeasureFloats draws pairs.
absl::StatusOr<Accuracy> MeasureDoubles(const MeasuredFunction& function, const codegen::KernelTarget& target, uint64_t samples);

// The distance of `got` from `expected` in units in the last place of the latter, rounded to the type of `got`.
double UlpsBetween(float got, double expected);
double UlpsBetween(double got, long double expected);

}  // namespace lazuli::tools
