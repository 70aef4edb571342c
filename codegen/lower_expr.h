// Operators and functions on Expr, so that op.def's formulas read like the arithmetic they stand for.
#pragma once

#include "codegen/lower.h"

namespace lazuli::codegen {

inline Expr Unary(KOp op, Expr a) { return a.emitter->Add(op, a.type(), {a.id, -1, -1}); }
inline Expr Binary(KOp op, Expr a, Expr b) { return a.emitter->Add(op, a.type(), {a.id, b.id, -1}); }
inline Expr Compare(KOp op, Expr a, Expr b) { return a.emitter->Add(op, c10::ScalarType::Bool, {a.id, b.id, -1}); }
inline Expr Like(Expr a, double value) { return a.emitter->Const(a.type(), value); }

inline Expr operator+(Expr a, Expr b) { return Binary(KOp::kAdd, a, b); }
inline Expr operator-(Expr a, Expr b) { return Binary(KOp::kSub, a, b); }
inline Expr operator*(Expr a, Expr b) { return Binary(a.type() == c10::ScalarType::Bool ? KOp::kAnd : KOp::kMul, a, b); }
inline Expr operator/(Expr a, Expr b) { return Binary(KOp::kDiv, a, b); }
inline Expr operator+(Expr a, double b) { return a + Like(a, b); }
inline Expr operator-(Expr a, double b) { return a - Like(a, b); }
inline Expr operator*(Expr a, double b) { return a * Like(a, b); }
inline Expr operator/(Expr a, double b) { return a / Like(a, b); }
inline Expr operator+(double a, Expr b) { return Like(b, a) + b; }
inline Expr operator-(double a, Expr b) { return Like(b, a) - b; }
inline Expr operator*(double a, Expr b) { return Like(b, a) * b; }
inline Expr operator/(double a, Expr b) { return Like(b, a) / b; }
inline Expr operator-(Expr a) { return Unary(KOp::kNeg, a); }
inline Expr operator&(Expr a, Expr b) { return Binary(KOp::kAnd, a, b); }
inline Expr operator|(Expr a, Expr b) { return Binary(KOp::kOr, a, b); }
inline Expr operator^(Expr a, Expr b) { return Binary(KOp::kXor, a, b); }
inline Expr operator==(Expr a, Expr b) { return Compare(KOp::kEq, a, b); }
inline Expr operator!=(Expr a, Expr b) { return Compare(KOp::kNe, a, b); }
inline Expr operator<(Expr a, Expr b) { return Compare(KOp::kLt, a, b); }
inline Expr operator<=(Expr a, Expr b) { return Compare(KOp::kLe, a, b); }
inline Expr operator>(Expr a, Expr b) { return Compare(KOp::kGt, a, b); }
inline Expr operator>=(Expr a, Expr b) { return Compare(KOp::kGe, a, b); }
inline Expr operator<(Expr a, double b) { return a < Like(a, b); }
inline Expr operator>(Expr a, double b) { return a > Like(a, b); }
inline Expr operator<(double a, Expr b) { return Like(b, a) < b; }

inline Expr Abs(Expr a) { return Unary(KOp::kAbs, a); }
inline Expr Not(Expr a) { return Unary(KOp::kNot, a); }
inline Expr Sqrt(Expr a) { return Unary(KOp::kSqrt, a); }
inline Expr Floor(Expr a) { return Unary(KOp::kFloor, a); }
inline Expr Ceil(Expr a) { return Unary(KOp::kCeil, a); }
inline Expr Trunc(Expr a) { return Unary(KOp::kTrunc, a); }
inline Expr Round(Expr a) { return Unary(KOp::kRound, a); }
inline Expr Exp(Expr a) { return Unary(KOp::kExp, a); }
inline Expr Exp2(Expr a) { return Unary(KOp::kExp2, a); }
inline Expr Expm1(Expr a) { return Unary(KOp::kExpm1, a); }
inline Expr Log(Expr a) { return Unary(KOp::kLog, a); }
inline Expr Log1p(Expr a) { return Unary(KOp::kLog1p, a); }
inline Expr Log2(Expr a) { return Unary(KOp::kLog2, a); }
inline Expr Log10(Expr a) { return Unary(KOp::kLog10, a); }
inline Expr Sin(Expr a) { return Unary(KOp::kSin, a); }
inline Expr Cos(Expr a) { return Unary(KOp::kCos, a); }
inline Expr Tan(Expr a) { return Unary(KOp::kTan, a); }
inline Expr Asin(Expr a) { return Unary(KOp::kAsin, a); }
inline Expr Acos(Expr a) { return Unary(KOp::kAcos, a); }
inline Expr Atan(Expr a) { return Unary(KOp::kAtan, a); }
inline Expr Sinh(Expr a) { return Unary(KOp::kSinh, a); }
inline Expr Cosh(Expr a) { return Unary(KOp::kCosh, a); }
inline Expr Tanh(Expr a) { return Unary(KOp::kTanh, a); }
inline Expr Asinh(Expr a) { return Unary(KOp::kAsinh, a); }
inline Expr Acosh(Expr a) { return Unary(KOp::kAcosh, a); }
inline Expr Atanh(Expr a) { return Unary(KOp::kAtanh, a); }
inline Expr Erfinv(Expr a) { return Unary(KOp::kErfinv, a); }
inline Expr Lgamma(Expr a) { return Unary(KOp::kLgamma, a); }
inline Expr Erf(Expr a) { return Unary(KOp::kErf, a); }
inline Expr Erfc(Expr a) { return Unary(KOp::kErfc, a); }
inline Expr Pow(Expr a, Expr b) { return Binary(KOp::kPow, a, b); }
inline Expr Hypot(Expr a, Expr b) { return Binary(KOp::kHypot, a, b); }
inline Expr Fmod(Expr a, Expr b) { return Binary(KOp::kMod, a, b); }
inline Expr ShiftLeft(Expr a, Expr b) { return Binary(KOp::kShl, a, b); }
inline Expr ShiftRight(Expr a, Expr b) { return Binary(KOp::kShr, a, b); }
inline Expr Atan2(Expr a, Expr b) { return Binary(KOp::kAtan2, a, b); }
inline Expr Min(Expr a, Expr b) { return Binary(KOp::kMin, a, b); }
inline Expr Max(Expr a, Expr b) { return Binary(KOp::kMax, a, b); }
inline Expr Fmin(Expr a, Expr b) { return Binary(KOp::kFmin, a, b); }
inline Expr Fmax(Expr a, Expr b) { return Binary(KOp::kFmax, a, b); }
inline Expr Bits(Expr a) { return a.emitter->Add(KOp::kBits, c10::ScalarType::Int, {a.id, -1, -1}); }
inline Expr IsNan(Expr a) { return a.emitter->Add(KOp::kIsNan, c10::ScalarType::Bool, {a.id, -1, -1}); }
inline Expr Select(Expr c, Expr a, Expr b) { return a.emitter->Add(KOp::kSelect, a.type(), {c.id, a.id, b.id}); }
inline Expr ToBool(Expr a) { return a.emitter->Cast(a, c10::ScalarType::Bool); }
inline Expr Reciprocal(Expr a) { return 1.0 / a; }
inline Expr Sigmoid(Expr a) { return 1.0 / (1.0 + Exp(-a)); }

// a * b + c; one rounding where ATen's vectorised code uses a fused multiply-add.
inline Expr Fma(Expr a, Expr b, Expr c) {
  if (!c10::isFloatingType(a.type())) return a * b + c;
  return a.emitter->Add(KOp::kFma, a.type(), {a.id, b.id, c.id});
}

inline Expr Sum(Expr a) { return Unary(KOp::kReduceSum, a); }
inline Expr Prod(Expr a) { return Unary(KOp::kReduceProd, a); }
inline Expr Scan(KOp op, Expr a, ScanDirection direction) {
  return a.emitter->Add(op, a.type(), {a.id, -1, -1}, direction == ScanDirection::kFromEnd ? kFromEnd : 0);
}
inline Expr ReduceMax(Expr a) { return Unary(KOp::kReduceMax, a); }
inline Expr ReduceMin(Expr a) { return Unary(KOp::kReduceMin, a); }
inline Expr Any(Expr a) { return Unary(KOp::kReduceAny, a); }
inline Expr All(Expr a) { return Unary(KOp::kReduceAll, a); }

}  // namespace lazuli::codegen
