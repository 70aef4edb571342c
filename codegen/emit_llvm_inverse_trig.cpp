#include "codegen/emit_llvm_inverse_trig.h"

#include "codegen/emit_llvm_poly_tables.h"
#include "codegen/emit_llvm_vector_math.h"

namespace lazuli::codegen {
namespace {

using llvm::Value;

// pi / 2 in two parts.
constexpr double kHalfPi = 0x1.921fb6p+0, kHalfPiLow = -0x1.777a5cp-25;

class InverseTrigEmitter : public VectorMath {
 public:
  InverseTrigEmitter(llvm::IRBuilder<>& builder, const IsaInfo& isa, Value* x)
      : VectorMath(builder, x->getType(), isa), x_(x), table_(PolyTableFor(true)) {}

  Value* Asin() { return FromHalfPiIfLarge(ReduceSine()); }

  // pi / 2 - asin(x); above 1/2 what asin takes from pi / 2, or from pi.
  Value* Acos() {
    const Angle angle = ReduceSine();
    const auto base_of = [&](double half_pi) { return Select(angle.large, Select(Less(x_, 0), C(2 * half_pi), C(0)), C(half_pi)); };
    Value* sign = Bits(Select(angle.large, x_, Neg(x_)));
    Value* taken = XorSign(angle.high, sign);
    Value* base = base_of(kHalfPi);
    Value* sum = Add(base, taken);
    Value* lost = Add(Sub(base, sum), taken);
    Value* low = Add(Add(lost, base_of(kHalfPiLow)), XorSign(angle.low, sign));
    return Add(sum, Fma(XorSign(angle.cube, sign), angle.curve, low));
  }

  // pi / 2 - atan(1 / |x|) above 1.
  Value* Atan() {
    Value* magnitude = Abs(x_);
    Value* bounded = Select(b_.CreateFCmpOGT(magnitude, C(kLarge)), C(kLarge), magnitude);
    Value* large = b_.CreateFCmpOGT(magnitude, C(1));
    Value* inverse = RoughReciprocal(bounded);
    Value* low = Mul(inverse, Fma(Neg(bounded), inverse, C(1)));
    Value* u = Select(large, Add(inverse, low), magnitude);
    Value* u_lost = Add(Sub(inverse, u), low);
    Value* z = Mul(u, u);
    Value* cube = Mul(u, z);
    Value* cube_lost = Fma(u, z, Neg(cube));
    low = Fma(cube_lost, C(kAtanCurve), Select(large, Fma(u_lost, C(kAtanRestSlope), low), C(0)));
    return FromHalfPiIfLarge({large, Select(large, inverse, magnitude), low, cube, Polynomial(z, table_.atan)});
  }

 private:
  static constexpr double kLarge = 0x1p30;  // From here arctangents are pi / 2.
  // About the derivative of atan(u) - u, and (atan(u) - u) / u^3, where u is near 1: to make up for the rounding of u and of u^3.
  static constexpr double kAtanRestSlope = -0.47, kAtanCurve = -0.22;

  // high + low + cube curve. Where it is `large`, it is what is missing to pi / 2.
  struct Angle {
    Value* large;
    Value* high;
    Value* low;
    Value* cube;
    Value* curve;
  };

  // asin(|x|); above 1/2 2 asin(sqrt((1 - |x|) / 2)).
  Angle ReduceSine() {
    Value* magnitude = Abs(x_);
    Value* large = b_.CreateFCmpOGT(magnitude, C(0.5));
    Value* square = Fma(magnitude, C(-2), C(2));  // Of the sine's double. Exact.
    const Root root = RootInParts(square);
    Value* z = Select(large, Mul(square, C(0.25)), Mul(magnitude, magnitude));
    Value* u = Select(large, Add(root.high, root.low), magnitude);
    return {large, Select(large, root.high, magnitude), Select(large, root.low, C(0)), Mul(u, z), Polynomial(z, table_.asin)};
  }

  // With the sign of x; keeps -0 and denormals.
  Value* FromHalfPiIfLarge(const Angle& angle) {
    Value* difference = Sub(C(kHalfPi), angle.high);
    Value* lost = Sub(Sub(C(kHalfPi), difference), angle.high);
    Value* low = Select(angle.large, Sub(Add(lost, C(kHalfPiLow)), angle.low), angle.low);
    Value* rest = Fma(Select(angle.large, Neg(angle.cube), angle.cube), angle.curve, low);
    return CopySign(Add(Select(angle.large, difference, angle.high), rest), x_);
  }

  Value* x_;
  const PolyTable& table_;
};

}  // namespace

Value* EmitInverseTrig(llvm::IRBuilder<>& builder, const IsaInfo& isa, KOp op, Value* x) {
  if (!x->getType()->getScalarType()->isFloatTy()) return nullptr;
  switch (op) {
    case KOp::kAsin:
      return InverseTrigEmitter(builder, isa, x).Asin();
    case KOp::kAcos:
      return InverseTrigEmitter(builder, isa, x).Acos();
    case KOp::kAtan:
      return InverseTrigEmitter(builder, isa, x).Atan();
    default:
      return nullptr;
  }
}

}  // namespace lazuli::codegen
