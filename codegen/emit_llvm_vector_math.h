// What inlined functions are made of: arithmetic on a scalar or a vector of floats or doubles, as LLVM IR. Lanes do not influence each
// other.
#pragma once

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

#include <limits>

#include "codegen/emit_llvm_plan.h"
#include "codegen/emit_llvm_poly_tables.h"

namespace lazuli::codegen {

// `compute` of vectors of `lanes` lanes, for operands of any number of lanes: they are cut, or filled up with lanes whose results are
// dropped. `b` may be null.
llvm::Value* InVectorsOf(llvm::IRBuilder<>& builder, int lanes, llvm::Value* a, llvm::Value* b,
                         llvm::function_ref<llvm::Value*(llvm::Value*, llvm::Value*)> compute);

class VectorMath {
 public:
  using Value = llvm::Value;

  // Of values of `type`: Float, Double, or a vector of them. Without `isa` AVX2 and FMA are what there is.
  VectorMath(llvm::IRBuilder<>& builder, llvm::Type* type, const IsaInfo& isa = {});

 protected:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr double kLog2E = 1.4426950408889634;
  static constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

  // A whole number, and an integer whose low bits are its.
  struct Whole {
    Value* n;
    Value* bits;
  };
  // x = 2^n m, sqrt(1/2) <= m < sqrt(2).
  struct Split {
    Value* n;         // As a number of the type,
    Value* exponent;  // and as an integer.
    Value* m;
  };

  Value* C(double value) const;
  Value* I(int64_t value) const;
  llvm::Type* IntType() const;
  Value* Bits(Value* value) { return b_.CreateBitCast(value, IntType()); }
  Value* FromBits(Value* bits) { return b_.CreateBitCast(bits, type_); }

  Value* Add(Value* a, Value* b) { return b_.CreateFAdd(a, b); }
  Value* Sub(Value* a, Value* b) { return b_.CreateFSub(a, b); }
  Value* Mul(Value* a, Value* b) { return b_.CreateFMul(a, b); }
  Value* Div(Value* a, Value* b) { return b_.CreateFDiv(a, b); }
  Value* Neg(Value* a) { return b_.CreateFNeg(a); }
  Value* Fma(Value* a, Value* b, Value* c) { return b_.CreateIntrinsic(llvm::Intrinsic::fma, {type_}, {a, b, c}); }
  Value* Abs(Value* a) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a); }
  Value* Sqrt(Value* a) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a); }
  Value* Round(Value* a) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, a); }
  Value* Trunc(Value* a) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, a); }
  Value* CopySign(Value* magnitude, Value* sign) { return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, magnitude, sign); }
  Value* Select(Value* condition, Value* a, Value* b) { return b_.CreateSelect(condition, a, b); }
  Value* Less(Value* a, double b) { return b_.CreateFCmpOLT(a, C(b)); }
  // A NaN passes.
  Value* Clamp(Value* x, double low, double high);
  // Coefficients lowest power first. Long ones are evaluated in parts, which do not wait for each other.
  Value* Polynomial(Value* x, llvm::ArrayRef<double> coefficients);

  // The whole number next to x * factor, where it is below 2^22 (2^51).
  Whole NearestWhole(Value* x, double factor) { return WholeOfShifted(Fma(x, C(factor), C(Shift()))); }
  // Added to a number far larger, whose last place is 1, x loses its fraction.
  double Shift() const { return is_float_ ? 0x1.8p23 : 0x1.8p52; }
  Whole WholeOfShifted(Value* sum) { return {Sub(sum, C(Shift())), Bits(sum)}; }
  // value * 2^n, rounded once, for whole n with which 2^n is a normal number;
  Value* Scale(Value* value, Value* n);
  // and for any with which the result may be one, or is 0 or infinity. Lanes outside of `remains`, if it is given, are 0 whatever the rest
  // is.
  Value* ScaleWide(Value* value, Value* n, Value* remains = nullptr);
  // Whether that is one instruction.
  bool HasScale() const { return lanes_ == native_lanes_ && lanes_ == (is_float_ ? 16 : 8); }
  Value* PowerOf2(Value* n);
  // Of positive normal numbers, and of any positive ones (without `exponent`). Other numbers give some numbers.
  Split SplitExponent(Value* x);
  Split SplitAny(Value* x);

  // Whether numbers can be looked up in tables that registers hold: floats of AVX-512.
  bool HasLookup() const { return is_float_ && native_lanes_ == 16; }
  // The same of tables of eight: floats of AVX2.
  bool HasShortLookup() const { return is_float_ && native_lanes_ == 8; }
  // table[the lowest five bits of index], or four, or three.
  Value* Lookup(const double (&table)[32], Value* index);
  Value* Lookup(const double (&table)[16], Value* index);
  Value* Lookup(const double (&table)[8], Value* index);

  // About 1 / x, off by up to 2^-14 of it, or rounded where there is no instruction for that.
  Value* RoughReciprocal(Value* x);
  // sqrt(x) in two parts, of which the first is as rough. 0 where x is 0.
  struct Root {
    Value* high;
    Value* low;
  };
  Root RootInParts(Value* x);

  // 2^x of doubles, for results to be rounded to float.
  Value* Exp2ForFloat(Value* x);

  // `value` with its sign flipped where the lowest bit of `bits` is set.
  Value* NegateIfOdd(Value* value, Value* bits);
  // `value` with its sign flipped where the highest bit of `bits` is set.
  Value* XorSign(Value* value, Value* bits);

  Value* Rough(llvm::Intrinsic::ID id, Value* x);
  Value* Interleaved(Value* x, llvm::ArrayRef<double> coefficients);
  Value* Horner(Value* x, llvm::ArrayRef<double> coefficients);

  llvm::IRBuilder<>& b_;
  llvm::Type* type_;
  bool is_float_;
  int lanes_;  // 0: a scalar.
  int mantissa_bits_;
  int native_lanes_;
};

}  // namespace lazuli::codegen
