#include "codegen/emit_llvm_wide.h"

#include "codegen/emit_llvm_exp_log.h"
#include "codegen/emit_llvm_poly_tables.h"
#include "codegen/emit_llvm_vector_math.h"

namespace lazuli::codegen {
namespace {

using llvm::Value;

constexpr double kPi = 3.14159265358979323846;

class WideEmitter : public VectorMath {
 public:
  WideEmitter(llvm::IRBuilder<>& builder, const IsaInfo& isa, llvm::Type* narrow)
      : VectorMath(builder, narrow->getWithNewType(builder.getDoubleTy()), isa), isa_(isa) {}

  // The angle's tangent or its cotangent is at most 1.
  Value* Atan2(Value* y, Value* x) {
    Value* ay = Abs(y);
    Value* ax = Abs(x);
    Value* above = b_.CreateFCmpOGT(ay, ax);
    Value* less = Select(above, ax, ay);
    Value* quotient = Div(less, Select(above, ay, ax));
    // Of two zeros or infinities; a NaN stays one.
    quotient = Select(b_.CreateFCmpOEQ(less, C(0)), C(0), quotient);
    quotient = Select(b_.CreateFCmpOEQ(less, C(kInfinity)), C(1), quotient);
    Value* angle = AtanQuotient(above, quotient);
    Value* negative = b_.CreateICmpSLT(Bits(x), I(0));
    angle = CopySign(Select(negative, Sub(C(kPi), angle), angle), y);
    return Select(b_.CreateFCmpUNO(x, y), C(kNan), angle);
  }

  // 1 - erf(x) near 0; further out exp(-g(|x|)), or what that leaves of 2.
  Value* Erfc(Value* x) {
    Value* magnitude = Abs(x);
    Value* near = Fma(Neg(x), Polynomial(Mul(x, x), kErfWide), C(1));
    Value* u = Sub(Select(b_.CreateFCmpOGT(magnitude, C(10.1)), C(10.1), magnitude), C(1));
    Value* g = Fma(u, Polynomial(u, kErfcWide), C(PolyTableFor(false).erfc_0[0]));
    Value* far = Exp2ForFloat(Mul(g, C(-1.4426950408889634)));
    far = Select(b_.CreateFCmpOLT(x, C(0)), Sub(C(2), far), far);
    return Select(b_.CreateFCmpOLT(magnitude, C(1)), near, far);
  }

  // By log1p, in double precision.
  Value* Asinh(Value* x) {
    Value* magnitude = Abs(x);
    Value* square = Mul(x, x);
    Value* root = Sqrt(Add(square, C(1)));
    Value* result = EmitExpLog(b_, isa_, KOp::kLog1p, Add(magnitude, Div(square, Add(root, C(1)))));
    return CopySign(Select(b_.CreateFCmpOEQ(magnitude, C(kInfinity)), magnitude, result), x);
  }
  Value* Acosh(Value* x) {
    Value* above = Sub(x, C(1));
    Value* result = EmitExpLog(b_, isa_, KOp::kLog1p, Add(above, Sqrt(Fma(above, above, Add(above, above)))));
    return Select(b_.CreateFCmpOLT(x, C(1)), C(kNan), result);
  }
  Value* Atanh(Value* x) {
    Value* magnitude = Abs(x);
    Value* ratio = Div(Add(magnitude, magnitude), Sub(C(1), magnitude));
    return CopySign(Mul(EmitExpLog(b_, isa_, KOp::kLog1p, ratio), C(0.5)), x);
  }

 private:
  Value* AtanQuotient(Value* above, Value* quotient) {
    Value* angle = Mul(quotient, Polynomial(Mul(quotient, quotient), kAtanWide));
    return Select(above, Sub(C(kPi / 2), angle), angle);
  }

  IsaInfo isa_;
};

}  // namespace

Value* EmitWide(llvm::IRBuilder<>& builder, const IsaInfo& isa, KOp op, Value* a, Value* b) {
  WideEmitter emitter(builder, isa, a->getType());
  const auto widen = [&](Value* value) { return builder.CreateFPExt(value, value->getType()->getWithNewType(builder.getDoubleTy())); };
  const auto narrow = [&](Value* value) { return builder.CreateFPTrunc(value, a->getType()); };
  switch (op) {
    case KOp::kErfc:
      return narrow(emitter.Erfc(widen(a)));
    case KOp::kAsinh:
      return narrow(emitter.Asinh(widen(a)));
    case KOp::kAcosh:
      return narrow(emitter.Acosh(widen(a)));
    case KOp::kAtanh:
      return narrow(emitter.Atanh(widen(a)));
    case KOp::kAtan2:
      return narrow(emitter.Atan2(widen(a), widen(b)));
    default:
      return nullptr;
  }
}

}  // namespace lazuli::codegen
