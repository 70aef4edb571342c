// The values of kernels under test, and arithmetic on them as KOps define it.
#pragma once

#include "codegen/kernel_ir.h"

namespace lazuli::testing {

// A value of any type: floats and doubles in `d` (exactly), everything else in `i`.
struct Value {
  double d = 0;
  int64_t i = 0;
};

bool IsFloating(c10::ScalarType type);

// What a value of `type` keeps of a number.
int64_t Wrap(c10::ScalarType type, int64_t value);
double Round(c10::ScalarType type, double value);

Value Read(c10::ScalarType type, const char* address);
void Write(c10::ScalarType type, char* address, const Value& value);

// `op`: a minimum or maximum.
double MinMax(codegen::KOp op, double a, double b);
// Neither touches memory nor reduces; its operands have type `in_type`.
Value Arithmetic(const codegen::KInst& inst, c10::ScalarType in_type, const Value& a, const Value& b, const Value& c);

}  // namespace lazuli::testing
