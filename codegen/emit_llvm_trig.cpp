#include "codegen/emit_llvm_trig.h"

#include "absl/strings/str_cat.h"
#include "codegen/emit_llvm_poly_tables.h"
#include "codegen/emit_llvm_rare.h"
#include "codegen/emit_llvm_vector_math.h"

namespace lazuli::codegen {
namespace {

using llvm::Value;

// pi / 2 in two parts.
constexpr double kHalfPi[] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54};
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;

// Floats, in double arithmetic. A float that is not 0 keeps 2^-30 away from the multiples of pi / 2, so that what two parts of it leave is
// accurate for every argument that is not rare: n is exact, and so is the first fused multiply-add.
class WideTrig : public VectorMath {
 public:
  WideTrig(llvm::IRBuilder<>& builder, Value* x)
      : VectorMath(builder, x->getType()->getWithNewType(builder.getDoubleTy())), x_(builder.CreateFPExt(x, type_)) {}

  Value* IsRare() { return b_.CreateFCmpOGT(Abs(x_), C(0x1p45)); }

  // sin(x) = +-sin(x - n pi), negative for odd n.
  Value* Sin() {
    Whole whole = NearestWhole(x_, kTwoOverPi / 2);
    return NegateIfOdd(SinReduced(Reduce(whole.n, 2)), whole.bits);
  }

  // cos(x) = -+sin(x - (n + 1/2) pi).
  Value* Cos() {
    Whole whole = WholeOfShifted(Add(Fma(x_, C(kTwoOverPi / 2), C(-0.5)), C(Shift())));
    return Neg(NegateIfOdd(SinReduced(Reduce(Add(whole.n, C(0.5)), 2)), whole.bits));
  }

  // tan(x) = tan(r) for even n, -1 / tan(r) for odd n, r = x - n pi / 2.
  Value* Tan() {
    Whole whole = NearestWhole(x_, kTwoOverPi);
    Value* r = Reduce(whole.n, 1);
    Value* tangent = Mul(r, Polynomial(Mul(r, r), kTanWide));
    Value* odd = b_.CreateICmpNE(b_.CreateAnd(whole.bits, I(1)), I(0));
    return Select(odd, Div(C(-1), tangent), tangent);
  }

 private:
  // x - n * halves * pi / 2.
  Value* Reduce(Value* n, double halves) {
    Value* minus = Neg(n);
    return Fma(minus, C(halves * kHalfPi[1]), Fma(minus, C(halves * kHalfPi[0]), x_));
  }

  Value* SinReduced(Value* r) { return Mul(r, Polynomial(Mul(r, r), kSinWide)); }

  Value* x_;
};

// In the type's own arithmetic, with a remainder r - lost of two parts.
class NarrowTrig : public VectorMath {
 public:
  NarrowTrig(llvm::IRBuilder<>& builder, const IsaInfo& isa, Value* x)
      : VectorMath(builder, x->getType(), isa), x_(x), table_(PolyTableFor(is_float_)) {
    Reduce();
  }

  Value* IsRare() { return b_.CreateFCmpOGT(Abs(x_), C(table_.trig_high)); }
  Value* Sin() { return Quadrant(bits_); }
  Value* Cos() { return Quadrant(b_.CreateAdd(bits_, I(1))); }

  // tan(r - lost), or -1 / of it, which is in two parts then.
  Value* Tan() {
    Value* z = Mul(r_, r_);
    Value* cube = Mul(r_, z);
    Value* curve = Polynomial(z, table_.tan);
    Value* tangent = Fma(cube, curve, r_);
    Value* z_lost = Mul(Fma(r_, r_, Neg(z)), Mul(r_, C(kTanSlope)));
    Value* rest = Fma(cube, curve, Fma(Neg(lost_), Fma(tangent, tangent, C(1)), z_lost));
    Value* high = Add(r_, rest);  // Keeps -0.
    Value* low = Add(Sub(r_, high), rest);
    Value* inverse = RoughReciprocal(high);
    Value* error = Fma(Neg(low), inverse, Fma(Neg(high), inverse, C(1)));
    return Select(IsOdd(bits_), Neg(Fma(inverse, error, inverse)), high);
  }

 private:
  // About the derivative of tan(r) / r by r^2 where it is steep, to make up for the rounding of that.
  static constexpr double kTanSlope = 0.55;

  // r = x - n pi / 2. The difference from the product with the first part is exact, since its last place is no smaller than that of the
  // smaller of the two; so is the product with the second part, whose last place is below that of the difference, and so what is lost in
  // subtracting it.
  void Reduce() {
    Whole whole = NearestWhole(x_, kTwoOverPi);
    Value* first = Fma(Neg(whole.n), C(table_.half_pi[0]), x_);
    r_ = Fma(Neg(whole.n), C(table_.half_pi[1]), first);
    lost_ = Fma(whole.n, C(table_.half_pi[1]), Sub(r_, first));
    lost_ = Fma(whole.n, C(table_.half_pi[2]), lost_);
    Value* product = Mul(r_, lost_);
    z_ = Fma(r_, r_, Neg(Add(product, product)));
    bits_ = whole.bits;
  }

  Value* IsOdd(Value* bits) { return b_.CreateICmpNE(b_.CreateAnd(bits, I(1)), I(0)); }

  // sin(r - lost + k pi / 2), k being what `bits` ends in.
  Value* Quadrant(Value* bits) {
    Value* sine = Sub(r_, Fma(Mul(r_, z_), Polynomial(z_, table_.sin), lost_));  // Keeps -0.
    return XorSign(Select(IsOdd(bits), Polynomial(z_, table_.cos), sine), b_.CreateShl(bits, I(is_float_ ? 30 : 62)));
  }

  Value* x_;
  const PolyTable& table_;
  Value* r_;
  Value* lost_;
  Value* z_;  // (r - lost)^2.
  Value* bits_;
};

Value* EmitWideTrig(llvm::IRBuilder<>& builder, KOp op, Value* x, const char* name, const CallPerLane& call) {
  WideTrig trig(builder, x);
  Value* wide = op == KOp::kSin ? trig.Sin() : op == KOp::kCos ? trig.Cos() : trig.Tan();
  return EmitRare(builder, trig.IsRare(), builder.CreateFPTrunc(wide, x->getType()), name, x, [&](llvm::IRBuilder<>& inner, Value* rare) {
    Value* result = call(inner, name, inner.CreateFPExt(rare, wide->getType()));
    return inner.CreateFPTrunc(result, rare->getType());
  });
}

}  // namespace

Value* EmitTrig(llvm::IRBuilder<>& builder, const IsaInfo& isa, KOp op, Value* x, const CallPerLane& call) {
  const bool is_float = x->getType()->getScalarType()->isFloatTy();
  const bool tangent = op == KOp::kTan && is_float;
  if (op != KOp::kSin && op != KOp::kCos && !tangent) return nullptr;
  const char* name = op == KOp::kSin ? "sin" : op == KOp::kCos ? "cos" : "tan";
  NarrowTrig trig(builder, isa, x);
  Value* common = op == KOp::kSin ? trig.Sin() : op == KOp::kCos ? trig.Cos() : trig.Tan();
  return EmitRare(builder, trig.IsRare(), common, absl::StrCat("far_", name).c_str(), x, [&](llvm::IRBuilder<>& inner, Value* rare) {
    return is_float ? EmitWideTrig(inner, op, rare, name, call) : call(inner, name, rare);
  });
}

}  // namespace lazuli::codegen
