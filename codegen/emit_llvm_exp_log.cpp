#include "codegen/emit_llvm_exp_log.h"

#include <llvm/IR/Intrinsics.h>

#include "codegen/emit_llvm_poly_tables.h"
#include "codegen/emit_llvm_vector_math.h"

namespace lazuli::codegen {
namespace {

using llvm::Value;

constexpr double kCubic = 0x1p-27;  // Below, x + x^3 / 3 rounds to x, for doubles.

// Functions made of exp and log, in the type's own arithmetic: the same formulas for floats and doubles.
class ExpLogEmitter : public VectorMath {
 public:
  ExpLogEmitter(llvm::IRBuilder<>& builder, const IsaInfo& isa, Value* x)
      : VectorMath(builder, x->getType(), isa), x_(x), table_(PolyTableFor(x->getType()->getScalarType()->isFloatTy())) {}

  Value* Exp() {
    // A result that is rounded to 0 would take CPUs a hundred times as long as others, and masks are made of minus infinity.
    Value* remains = b_.CreateFCmpUGE(x_, C(table_.exp_low));
    // Above, the result is infinity; a NaN passes both comparisons.
    Value* high = C(table_.exp_high);
    Value* bounded = Select(b_.CreateFCmpOGT(x_, high), high, x_);
    Reduced reduced = ReduceByLn2(HasScale() ? bounded : Select(remains, bounded, C(0)));
    return ScaleWide(ExpReduced(reduced.r), reduced.n, remains);
  }

  // 2^r = exp(y) with y = r ln 2 in two parts.
  Value* Exp2() {
    Value* x = Clamp(x_, table_.exp2_low, table_.exp2_high);
    Value* n = Round(x);
    Value* r = Sub(x, n);
    return ScaleWide(Fma(r, Polynomial(r, table_.exp2), C(1)), n);
  }

  // expm1(r + n ln 2) = (s - 1 + s r) + s r^2 q(r), s = 2^n: r and the bracket are kept in two parts, so that only the last addition
  // rounds. s is halved, since 2^128 is no float.
  Value* Expm1() {
    Reduced reduced = ReduceByLn2(Clamp(x_, table_.expm1_low, table_.exp_high));
    Value* r = reduced.r;
    Value* q = Polynomial(r, table_.expm1);
    Value* half_s = ScaleWide(C(0.5), reduced.n);
    Value* offset = Sub(half_s, C(0.5));
    Value* high = Fma(half_s, r, offset);
    Value* low = Fma(half_s, r, Sub(offset, high));
    low = Add(low, Sub(Sub(half_s, offset), C(0.5)));  // What `offset` lost for large n.
    Value* tail = Fma(half_s, Fma(Mul(r, r), q, Fma(r, reduced.low, reduced.low)), low);
    // Tiny numbers are their own result; keeps -0 and denormals, whose halves would round.
    return Select(Less(Abs(x_), table_.linear), x_, Mul(Add(high, tail), C(2)));
  }

  // Odd polynomial below 1; above, 1 - 2 / (exp(2|x|) + 1), where the quotient is below 1/4 and so are its errors.
  Value* Tanh() {
    if (HasLookup()) return OddByIntervals(kTanhTable);
    Value* magnitude = Abs(x_);
    Value* z = Mul(x_, x_);
    Value* small = Fma(Mul(x_, z), Polynomial(z, table_.tanh), x_);
    Value* high = C(table_.tanh_high);
    Value* bounded = Select(b_.CreateFCmpOGT(magnitude, high), high, magnitude);
    Reduced reduced = ReduceByLn2(Add(bounded, bounded));
    // exp + 1 = (s + 1) + s r (1 + r / 2 + ...), s = 2^n.
    Value* s = PowerOf2(reduced.n);
    Value* above = Fma(Mul(s, reduced.r), Polynomial(reduced.r, table_.exp.drop_front(1)), Add(s, C(1)));
    Value* big = Sub(C(1), Div(C(2), above));
    return CopySign(Select(Less(magnitude, 1), small, big), x_);  // Keeps -0.
  }

  // exp(+-x) = 2^+-n (cosh(r) +- sinh(r)), x = n ln 2 + r. `flat` is what sinh or cosh of n ln 2 is, `slope` the other one. The largest of
  // the rest, slope r, is added so that what is lost is known. All of it is halved, since 2^128 is no float.
  Value* Sinh() {
    Hyperbolic h = ReduceHyperbolic();
    Value* result = SumHyperbolic(h, h.difference, h.sum);
    return CopySign(Select(Less(h.magnitude, table_.linear), h.magnitude, result), x_);
  }
  Value* Cosh() {
    Hyperbolic h = ReduceHyperbolic();
    return SumHyperbolic(h, h.sum, h.difference);
  }

  // Odd polynomial for small numbers; else 1 - exp(-g(|x|)) with g = -log(erfc).
  Value* Erf() {
    if (HasLookup()) return OddByIntervals(kErfTable);
    if (HasShortLookup()) return OddByIntervals(kShortErfTable);
    Value* magnitude = Abs(x_);
    Value* small = Fma(x_, Polynomial(Mul(x_, x_), table_.erf), x_);
    Value* t = Select(b_.CreateFCmpOGT(magnitude, C(table_.erf_high)), C(table_.erf_high), magnitude);
    t = Sub(t, C(table_.erfc_from));
    // g = t h + c, reduced by ln 2 before it is ever rounded as a whole.
    Value* h = Polynomial(t, table_.erfc);
    Value* n = NearestWhole(Fma(t, h, C(table_.erfc_0[0])), -kLog2E).n;
    Value* r = Fma(Neg(t), h, Fma(n, C(-table_.ln2_high), C(-table_.erfc_0[0])));
    Value* erfc = Scale(ExpReduced(Sub(Fma(n, C(-table_.ln2_low), r), C(table_.erfc_0[1]))), n);
    return Select(Less(magnitude, table_.erf_small), small, CopySign(Sub(C(1), erfc), x_));
  }

  Value* Log() {
    Split x = SplitAny(x_);
    Value* f = Sub(x.m, C(1));
    return LogSpecials(LogOfMantissa(f, C(0), x.n), x_, x_);
  }

  Value* Log2() { return LogTo({table_.log2_e_high, table_.log2_e_low}, {1, 0}); }

  Value* Log10() { return LogTo({table_.log10_e_high, table_.log10_e_low}, {table_.log10_2_high, table_.log10_2_low}); }

  Value* Log1p() { return Select(Less(Abs(x_), table_.linear), x_, Log1pOf({x_, C(0)}, C(0))); }

  // By log1p(|x| + sqrt(x^2 + 1) - 1), or log(2 |x|) where that is the same.
  Value* Asinh() {
    Value* magnitude = Abs(x_);
    Value* square = Mul(x_, x_);
    Rounded sum = Sum(square, C(1));
    Rounded root = Root({sum.value, Add(sum.lost, Fma(x_, x_, Neg(square)))});
    Value* above = Sub(root.value, C(1));
    Rounded y = Sum(magnitude, above);
    y = Sum(y.value, Add(y.lost, root.lost));  // The root may have lost more than one place of the sum.
    Value* result = Log1pOrLogOfTwice(magnitude, y);
    return CopySign(Select(Less(magnitude, kCubic), magnitude, result), x_);
  }

  // By log1p(u + sqrt(u^2 + 2 u)), u = x - 1, which is exact.
  Value* Acosh() {
    Value* u = Sub(x_, C(1));
    Value* square = Mul(u, u);
    Rounded sum = Sum(square, Add(u, u));
    Rounded root = Root({sum.value, Add(sum.lost, Fma(u, u, Neg(square)))});
    Rounded y = Sum(root.value, u);
    y.lost = Add(y.lost, root.lost);
    Value* result = Log1pOrLogOfTwice(x_, y);
    return Select(Less(x_, 1), C(kNan), result);
  }

  // log1p(2 |x| / (1 - |x|)) / 2
  Value* Atanh() {
    Value* magnitude = Abs(x_);
    Value* twice = Add(magnitude, magnitude);
    Value* rest = Sub(C(1), magnitude);
    Value* rest_lost = Sub(Sub(C(1), rest), magnitude);
    Value* y = Div(twice, rest);
    Value* lost = Div(Fma(Neg(y), rest_lost, Fma(Neg(y), rest, twice)), rest);
    Value* result = Mul(Log1pOf({y, lost}, C(0)), C(0.5));
    return CopySign(Select(Less(magnitude, kCubic), magnitude, result), x_);
  }

 private:
  struct Reduced {
    Value* n;    // A whole number.
    Value* r;    // |r| <= ln(2) / 2,
    Value* low;  // and what its rounding lost.
  };
  struct Rounded {
    Value* value;
    Value* lost;  // By rounding it.
  };
  struct Hyperbolic {
    Value* magnitude;
    Reduced reduced;     // Of the magnitude.
    Rounded sum;         // (2^n + 2^-n) / 4
    Rounded difference;  // (2^n - 2^-n) / 4
  };
  struct TwoParts {
    double high, low;
  };

  // Without a division, and without computing what small and large numbers need both.
  template <class Table>
  Value* OddByIntervals(const Table& table) {
    Value* magnitude = Abs(x_);
    Value* bounded = Select(b_.CreateFCmpOGT(magnitude, C(table.high)), C(table.high), magnitude);
    Value* index = b_.CreateLShr(Bits(Add(bounded, C(table.offset))), I(table.shift));
    const auto row = [&](int i) { return Lookup(table.rows[i], index); };
    Value* d = Sub(bounded, row(0));  // Exact.
    Value* p = row(Table::kRows - 1);
    for (int i = Table::kRows - 2; i >= 2; --i) p = Fma(p, d, row(i));
    Value* value = row(1);
    Value* known = Select(b_.CreateFCmpOGT(value, d), value, d);
    return CopySign(Fma(d, p, known), x_);  // Keeps -0.
  }

  // log(1 + y) + extra ln 2. 1 + y = 2^n (1 + f) with f in two parts, the exact sum of a = y / 2^n and c = 2^-n - 1.
  Value* Log1pOf(const Rounded& y, Value* extra) {
    Value* sum = Add(y.value, C(1));
    Split split = SplitExponent(sum);
    Value* biased = b_.CreateSub(I(is_float_ ? 127 : 1023), split.exponent);  // Of 2^-n, which is as good as 0 at the largest n.
    biased = Select(b_.CreateICmpSGT(biased, I(0)), biased, I(0));
    Value* s = FromBits(b_.CreateShl(biased, I(mantissa_bits_)));
    Value* a = FromBits(b_.CreateSub(Bits(y.value), b_.CreateShl(split.exponent, I(mantissa_bits_))));
    Rounded f = Sum(a, Sub(s, C(1)));
    Value* low = Fma(y.lost, s, f.lost);
    low = Sub(low, Mul(low, f.value));  // log(1 + f + low) = log(1 + f) + low / (1 + f).
    return LogSpecials(LogOfMantissa(f.value, low, Add(split.n, extra)), sum, y.value);
  }

  // log(1 + y), or log(2 x) where x is so large that y is about 2 x, and its square may be infinite.
  Value* Log1pOrLogOfTwice(Value* x, const Rounded& y) {
    Value* large = b_.CreateFCmpOGE(x, C(0x1p54));
    return Log1pOf({Select(large, x, y.value), Select(large, C(0), y.lost)}, Select(large, C(1), C(0)));
  }

  Rounded Sum(Value* a, Value* b) {
    Value* sum = Add(a, b);
    Value* b_part = Sub(sum, a);
    Value* a_part = Sub(sum, b_part);
    return {sum, Add(Sub(a, a_part), Sub(b, b_part))};
  }

  Rounded Root(const Rounded& x) {
    Value* root = Sqrt(x.value);
    Value* lost = Mul(Add(Fma(Neg(root), root, x.value), x.lost), Div(C(0.5), root));
    return {root, Select(b_.CreateFCmpOEQ(root, C(0)), C(0), lost)};
  }

  Reduced ReduceByLn2(Value* x) {
    Value* n = NearestWhole(x, kLog2E).n;
    Value* first = Fma(n, C(-table_.ln2_high), x);  // Exact.
    Value* r = Fma(n, C(-table_.ln2_low), first);
    return {n, r, Fma(n, C(-table_.ln2_low), Sub(first, r))};
  }

  Hyperbolic ReduceHyperbolic() {
    Value* magnitude = Abs(x_);
    Value* bounded = Select(b_.CreateFCmpOGT(magnitude, C(table_.sinh_high)), C(table_.sinh_high), magnitude);
    Reduced reduced = ReduceByLn2(bounded);
    Value* up = PowerOf2(Sub(reduced.n, C(2)));
    Value* down = PowerOf2(Sub(C(-2), Clamp(reduced.n, 0, 60)));  // As good as 0 at 60.
    Value* sum = Add(up, down);
    Value* difference = Sub(up, down);
    return {magnitude, reduced, {sum, Add(Sub(up, sum), down)}, {difference, Sub(Sub(up, difference), down)}};
  }

  Value* SumHyperbolic(const Hyperbolic& h, const Rounded& flat_parts, const Rounded& slope_parts) {
    Value* flat = flat_parts.value;
    Value* slope = slope_parts.value;
    Value* r = h.reduced.r;
    Value* z = Mul(r, r);
    Value* head = Fma(slope, r, flat);
    Value* lost = Fma(slope, r, Sub(flat, head));
    lost = Add(flat_parts.lost, Fma(h.reduced.low, Fma(flat, r, slope), lost));
    Value* curve = Fma(flat, Polynomial(z, table_.cosh), Mul(Mul(slope, r), Polynomial(z, table_.sinh)));
    Value* half = Add(head, Fma(z, curve, lost));
    return Add(half, half);
  }

  Value* ExpReduced(Value* r) { return Polynomial(r, table_.exp); }

  // log(1 + f) + low + n ln 2 = n ln2_high + f + (n ln2_low + low - f^2 / 2 + f^3 p(f)).
  Value* LogOfMantissa(Value* f, Value* low, Value* n) {
    Value* rest = Fma(n, C(table_.ln2_low), low);
    Value* head = Mul(n, C(table_.ln2_high));
    Value* sum = Add(head, f);
    Value* lost = Add(Sub(head, sum), f);  // Exact: head is 0 or larger than f.
    Value* curve = Fma(f, Polynomial(f, table_.log), C(-0.5));
    return Add(sum, Fma(Mul(f, f), curve, Add(rest, lost)));
  }

  // log(x) * factor, where `unit` is log(2) * factor.
  Value* LogTo(TwoParts factor, TwoParts unit) {
    Split x = SplitAny(x_);
    Value* f = Sub(x.m, C(1));
    Value* square = Mul(f, f);
    Value* slope = Fma(f, Polynomial(f, table_.log), C(-0.5));
    Value* curve = Mul(square, slope);
    Value* curve_low = Fma(Fma(f, f, Neg(square)), slope, Fma(square, slope, Neg(curve)));
    Value* g = Mul(f, C(factor.high));
    Value* low = Fma(f, C(factor.low), Fma(f, C(factor.high), Neg(g)));
    low = Fma(curve_low, C(factor.high), low);
    Value* head = Mul(x.n, C(unit.high));
    Value* sum = Add(head, g);
    Value* lost = Add(Sub(head, sum), g);
    Value* tail = Fma(curve, C(factor.high), Fma(x.n, C(unit.low), Add(low, lost)));
    return LogSpecials(Add(sum, tail), x_, x_);
  }

  // `argument` decides: 0 -> -inf, negative -> NaN; infinity and NaN come out as `x` itself.
  Value* LogSpecials(Value* result, Value* argument, Value* x) {
    result = Select(b_.CreateFCmpOEQ(argument, C(0)), C(-kInfinity), result);
    result = Select(Less(argument, 0), C(kNan), result);
    return Select(b_.CreateFCmpUEQ(argument, C(kInfinity)), x, result);
  }

  Value* x_;
  const PolyTable& table_;
};

}  // namespace

Value* EmitExpLog(llvm::IRBuilder<>& builder, const IsaInfo& isa, KOp op, Value* x) {
  ExpLogEmitter emitter(builder, isa, x);
  const bool is_float = x->getType()->getScalarType()->isFloatTy();
  switch (op) {
    case KOp::kExp:
      return emitter.Exp();
    case KOp::kExp2:
      return emitter.Exp2();
    case KOp::kExpm1:
      return emitter.Expm1();
    case KOp::kTanh:
      return emitter.Tanh();
    case KOp::kSinh:
      return emitter.Sinh();
    case KOp::kCosh:
      return emitter.Cosh();
    case KOp::kErf:
      return emitter.Erf();
    case KOp::kLog:
      return emitter.Log();
    case KOp::kLog2:
      return emitter.Log2();
    case KOp::kLog10:
      return emitter.Log10();
    case KOp::kLog1p:
      return emitter.Log1p();
    case KOp::kAsinh:
      return is_float ? nullptr : emitter.Asinh();
    case KOp::kAcosh:
      return is_float ? nullptr : emitter.Acosh();
    case KOp::kAtanh:
      return is_float ? nullptr : emitter.Atanh();
    default:
      return nullptr;
  }
}

}  // namespace lazuli::codegen
