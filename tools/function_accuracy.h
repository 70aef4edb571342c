// How far kernels' float functions are from the true values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/kernel_compiler.h"
#include "codegen/kernel_ir.h"

namespace lazuli::tools {

// A function of one float and what it is measured against: the same in double precision, whose own error is far below one float ulp.
struct MeasuredFunction {
  const char* name;
  codegen::KOp op;
  double (*reference)(double);
  double bound;  // In ulps: the most that the default precision may be off.
  float most;    // Larger arguments are not measured.
};

const std::vector<MeasuredFunction>& MeasuredFunctions();

struct Accuracy {
  double worst = 0;  // In ulps of the true value; infinite where a NaN, an infinity or the sign of a zero is wrong.
  float worst_at = 0;
  int64_t measured = 0;
};

// Runs `function` over every `step`th bit pattern of a float, from 0 on: 1 tries all 2^32, and takes minutes. Fails when the kernel cannot
// be compiled for `target`.
absl::StatusOr<Accuracy> MeasureAccuracy(const MeasuredFunction& function, const codegen::KernelTarget& target, uint64_t step);

// The distance of `got` from `expected` in units in the last place of the latter, rounded to float.
double UlpsBetween(float got, double expected);

}  // namespace lazuli::tools
