#include "codegen/emit_llvm_pow.h"

#include "codegen/emit_llvm_poly_tables.h"
#include "codegen/emit_llvm_vector_math.h"

namespace lazuli::codegen {
namespace {

using llvm::Value;

// |x|^y of floats, in double arithmetic.
class WidePow : public VectorMath {
 public:
  WidePow(llvm::IRBuilder<>& builder, llvm::Type* narrow)
      : VectorMath(builder, narrow->getWithNewType(builder.getDoubleTy())), narrow_(narrow) {}

  // 2^(y log2 |x|). The exponent is below 2^8 where the result is a float, so that 2^-41 is enough for the logarithm.
  Value* Emit(Value* x, Value* y) {
    Value* magnitude = Abs(b_.CreateFPExt(x, type_));
    Split split = SplitExponent(magnitude);
    Value* f = Sub(split.m, C(1));
    Value* log = Fma(f, Polynomial(f, kLog2Wide), split.n);
    log = Select(b_.CreateFCmpOEQ(magnitude, C(0)), C(-kInfinity), log);
    log = Select(Less(magnitude, kInfinity), log, magnitude);
    return b_.CreateFPTrunc(Exp2ForFloat(Mul(b_.CreateFPExt(y, type_), log)), narrow_);
  }

 private:
  llvm::Type* narrow_;
};

// |x|^y of doubles. The logarithm has two parts, accurate to 2^-65 together, since the exponent may be 2^10.
class DoublePow : public VectorMath {
 public:
  DoublePow(llvm::IRBuilder<>& builder, const IsaInfo& isa, llvm::Type* type) : VectorMath(builder, type, isa) {}

  Value* Emit(Value* x, Value* y) {
    Value* magnitude = Abs(x);
    Pair log = Log2(magnitude);
    Value* is_zero = b_.CreateFCmpOEQ(magnitude, C(0));
    Value* is_finite = Less(magnitude, kInfinity);
    log.high = Select(is_finite, Select(is_zero, C(-kInfinity), log.high), magnitude);
    Pair exponent = Product(y, log.high);
    exponent.low = Fma(y, log.low, exponent.low);
    return Exp2(exponent);
  }

 private:
  struct Pair {
    Value* high;
    Value* low;  // At most an ulp of `high`, or so.
  };

  // Exactly a * b.
  Pair Product(Value* a, Value* b) {
    Value* high = Mul(a, b);
    return {high, Fma(a, b, Neg(high))};
  }
  Pair Product(const Pair& a, const Pair& b) {
    Pair product = Product(a.high, b.high);
    product.low = Fma(a.high, b.low, Fma(a.low, b.high, product.low));
    return product;
  }
  // a is 0 or larger than b.
  Pair Sum(Value* a, Value* b) {
    Value* high = Add(a, b);
    return {high, Add(Sub(a, high), b)};
  }
  Pair Sum(Value* a, const Pair& b) {
    Pair sum = Sum(a, b.high);
    sum.low = Add(sum.low, b.low);
    return sum;
  }

  // log2(2^n m) = n + log2((1 + s) / (1 - s)) = n + s (c0 + z (c1 + z q(z))), z = s^2, s = (m - 1) / (m + 1).
  Pair Log2(Value* x) {
    Split split = SplitAny(x);
    Pair s = Ratio(split.m);
    Pair z = Product(s.high, s.high);
    z.low = Fma(Add(s.high, s.high), s.low, z.low);
    Pair inner = Sum(C(0x1.ec709dc3a03fdp-1), {Mul(z.high, Polynomial(z.high, kLog2Double)), C(0x1.d27f05548af0cp-55)});  // 2 / (3 ln 2).
    Pair outer = Product(z, inner);
    outer.low = Add(outer.low, C(0x1.777d0ffda0d24p-55));
    return Sum(split.n, Product(s, Sum(C(0x1.71547652b82fep+1), outer)));  // 2 / ln 2.
  }

  // (m - 1) / (m + 1).
  Pair Ratio(Value* m) {
    Value* above = Sub(m, C(1));
    Value* below = Add(m, C(1));
    Value* below_low = Sub(m, Sub(below, C(1)));
    Value* reciprocal = Div(C(1), below);
    Value* high = Mul(above, reciprocal);
    Value* rest = Fma(Neg(high), below_low, Fma(Neg(high), below, above));
    return {high, Mul(rest, reciprocal)};
  }

  // 2^(k + f) = 2^k exp(f ln 2).
  Value* Exp2(const Pair& x) {
    const PolyTable& table = PolyTableFor(false);
    Value* bounded = Clamp(x.high, table.exp2_low, table.exp2_high);
    Value* k = NearestWhole(bounded, 1).n;
    Value* f = Sub(bounded, k);
    Value* low = Select(b_.CreateFCmpOEQ(bounded, x.high), x.low, C(0));
    Pair r = Product(f, C(table.ln2_rounded));
    r = Sum(r.high, Fma(f, C(table.ln2_rest), Fma(low, C(table.ln2_rounded), r.low)));
    Value* tail = Fma(Mul(r.high, r.high), Polynomial(r.high, table.exp.drop_front(2)), r.low);
    return ScaleWide(Add(C(1), Add(r.high, tail)), k);
  }
};

// What C says of the result when some number's magnitude has the power `result`.
class PowRules : public VectorMath {
 public:
  PowRules(llvm::IRBuilder<>& builder, llvm::Type* type) : VectorMath(builder, type) {}

  Value* Apply(Value* result, Value* x, Value* y) {
    Value* whole = b_.CreateFCmpOEQ(Trunc(y), y);
    Value* half = Mul(y, C(0.5));
    Value* odd = b_.CreateAnd(whole, b_.CreateFCmpUNE(Trunc(half), half));
    result = Select(odd, CopySign(result, x), result);
    Value* negative = b_.CreateAnd(Less(x, 0), b_.CreateFCmpOGT(x, C(-kInfinity)));
    result = Select(b_.CreateAnd(negative, b_.CreateNot(whole)), C(kNan), result);
    Value* undecided = b_.CreateAnd(b_.CreateFCmpOEQ(Abs(x), C(1)), b_.CreateFCmpOEQ(Abs(y), C(kInfinity)));
    Value* one = b_.CreateOr(b_.CreateFCmpOEQ(x, C(1)), b_.CreateFCmpOEQ(y, C(0)));
    return Select(b_.CreateOr(one, undecided), C(1), result);
  }
};

}  // namespace

Value* EmitPow(llvm::IRBuilder<>& builder, const IsaInfo& isa, Value* x, Value* y) {
  llvm::Type* type = x->getType();
  const bool is_float = type->getScalarType()->isFloatTy();
  Value* result = is_float ? WidePow(builder, type).Emit(x, y) : DoublePow(builder, isa, type).Emit(x, y);
  return PowRules(builder, type).Apply(result, x, y);
}

}  // namespace lazuli::codegen
