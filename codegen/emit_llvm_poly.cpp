#include "codegen/emit_llvm_poly.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <initializer_list>
#include <limits>

namespace lazuli::codegen {
namespace {

using llvm::Type;
using llvm::Value;

// Coefficients below are Remez fits of the named remainder on the named interval, lowest power first; their relative error in the final
// result is below 2^-27.

constexpr float kLog2E = 1.44269504f;
// ln 2 in two parts: n * kLn2High is exact for |n| < 2^9.
constexpr float kLn2High = 0.693145751953f;
constexpr float kLn2Low = 1.42860677e-06f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Emitter {
 public:
  Emitter(llvm::IRBuilder<>& builder, Value* x) : b_(builder), x_(x), type_(x->getType()) {
    auto* vector_type = llvm::dyn_cast<llvm::FixedVectorType>(type_);
    lanes_ = vector_type != nullptr ? static_cast<int>(vector_type->getNumElements()) : 0;
  }

  Value* Exp() {
    // Beyond these the result is 0 or infinity; a NaN passes both comparisons.
    Value* x = Clamp(x_, -104.0f, 89.0f);
    Reduced reduced = ReduceByLn2(x);
    return Scale(ExpReduced(reduced.r), reduced.n, /*wide=*/true);
  }

  // expm1(r + n ln 2) = (s - 1 + s r) + s r^2 q(r), s = 2^n: the bracket is kept in two parts, so that only the last addition rounds.
  // s is halved, since 2^128 is no float.
  Value* Expm1() {
    Value* x = Clamp(x_, -18.0f, 89.0f);
    Reduced reduced = ReduceByLn2(x);
    Value* r = reduced.r;
    Value* q = Horner(r, {0.5f, 0.166666657f, 0.0416662954f, 0.00833349768f, 0.00139447395f, 0.00019790337f});
    Value* half_s = Scale(C(0.5f), reduced.n, /*wide=*/true);
    Value* offset = b_.CreateFSub(half_s, C(0.5f));
    Value* high = Fma(half_s, r, offset);
    Value* low = Fma(half_s, r, b_.CreateFSub(offset, high));
    low = b_.CreateFAdd(low, b_.CreateFSub(b_.CreateFSub(half_s, offset), C(0.5f)));  // What `offset` lost for large n.
    Value* tail = Fma(half_s, b_.CreateFMul(b_.CreateFMul(r, r), q), low);
    Value* result = b_.CreateFMul(b_.CreateFAdd(high, tail), C(2));
    // Where x + x^2 / 2 rounds to x; keeps -0 and denormals, whose halves would round.
    return b_.CreateSelect(b_.CreateFCmpOLT(Abs(x_), C(5e-8f)), x_, result);
  }

  // Odd polynomial below 1; above, 1 - 2 / (exp(2|x|) + 1), where the quotient is below 1/4 and so are its errors.
  Value* Tanh() {
    Value* magnitude = Abs(x_);
    Value* z = b_.CreateFMul(x_, x_);
    Value* p = Horner(
        z, {-0.333333284f, 0.133331731f, -0.0539504848f, 0.021773085f, -0.00856776908f, 0.00304372446f, -0.000818317931f, 0.00011547155f});
    Value* small = Fma(b_.CreateFMul(x_, z), p, x_);
    Value* bounded = b_.CreateSelect(b_.CreateFCmpOGT(magnitude, C(9.02f)), C(9.02f), magnitude);
    Reduced reduced = ReduceByLn2(b_.CreateFAdd(bounded, bounded));
    Value* exp = Scale(ExpReduced(reduced.r), reduced.n, /*wide=*/false);
    Value* big = b_.CreateFSub(C(1), b_.CreateFDiv(C(2), b_.CreateFAdd(exp, C(1))));
    return b_.CreateSelect(b_.CreateFCmpOLT(magnitude, C(1)), small, CopySign(big, x_));
  }

  // Odd polynomial below 1; above, 1 - exp(-g(|x|)) with g = -log(erfc).
  Value* Erf() {
    Value* magnitude = Abs(x_);
    Value* p = Horner(b_.CreateFMul(x_, x_),
                      {0.128379166f, -0.376126289f, 0.112836182f, -0.026855126f, 0.00519073382f, -0.000803076138f, 7.92035935e-05f});
    Value* small = Fma(x_, p, x_);
    Value* t = b_.CreateSelect(b_.CreateFCmpOGT(magnitude, C(4)), C(4), magnitude);
    // g = t h + c, reduced by ln 2 before it is ever rounded as a whole.
    constexpr float kC = -0.000188034464f;
    Value* h = Horner(t, {1.12957835f, 0.633220136f, 0.108418196f, -0.025207933f, 0.00420440733f, -0.000441296841f, 2.16825338e-05f});
    Value* n = b_.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, b_.CreateFMul(Fma(t, h, C(kC)), C(-kLog2E)));
    Value* r = Fma(b_.CreateFNeg(t), h, b_.CreateFMul(n, C(-kLn2High)));
    Reduced reduced{n, b_.CreateFSub(Fma(n, C(-kLn2Low), r), C(kC))};
    Value* erfc = Scale(ExpReduced(reduced.r), reduced.n, /*wide=*/false);
    Value* big = CopySign(b_.CreateFSub(C(1), erfc), x_);
    return b_.CreateSelect(b_.CreateFCmpOLT(magnitude, C(1)), small, big);
  }

  Value* Log() {
    // Denormals are scaled up first.
    Value* is_small = b_.CreateFCmpOLT(x_, C(1.17549435e-38f));
    Value* x = b_.CreateSelect(is_small, b_.CreateFMul(x_, C(8388608.0f)), x_);
    Value* e = Exponent(x);
    Value* m = Mantissa(x, e);
    Value* n = b_.CreateSIToFP(e, type_);
    n = b_.CreateSelect(is_small, b_.CreateFSub(n, C(23)), n);
    Value* f = b_.CreateFSub(m, C(1));
    return LogSpecials(LogOfMantissa(f, C(0), n), x_, x_);
  }

  // 1 + x = 2^n (1 + f) with f in two parts, the exact sum of a = x / 2^n and c = 2^-n - 1.
  Value* Log1p() {
    Value* e = Exponent(b_.CreateFAdd(x_, C(1)));
    Value* biased = b_.CreateSub(I(127), e);  // Of 2^-n, which is as good as 0 at the largest n.
    biased = b_.CreateSelect(b_.CreateICmpSGT(biased, I(0)), biased, I(0));
    Value* s = b_.CreateBitCast(b_.CreateShl(biased, I(23)), type_);
    Value* a = Mantissa(x_, e);
    Value* c = b_.CreateFSub(s, C(1));
    Value* f = b_.CreateFAdd(a, c);
    Value* a_part = b_.CreateFSub(f, c);
    Value* c_part = b_.CreateFSub(f, a_part);
    Value* low = b_.CreateFAdd(b_.CreateFSub(a, a_part), b_.CreateFSub(c, c_part));
    low = b_.CreateFSub(low, b_.CreateFMul(low, f));  // log(1 + f + low) = log(1 + f) + low / (1 + f).
    Value* result = LogSpecials(LogOfMantissa(f, low, b_.CreateSIToFP(e, type_)), b_.CreateFAdd(x_, C(1)), x_);
    return b_.CreateSelect(b_.CreateFCmpOLT(Abs(x_), C(5e-8f)), x_, result);
  }

 private:
  struct Reduced {
    Value* n;  // A whole number, as float.
    Value* r;  // |r| <= ln(2) / 2.
  };

  Value* C(float value) const { return llvm::ConstantFP::get(type_, value); }
  Value* I(int32_t value) const { return llvm::ConstantInt::get(IntType(), static_cast<uint32_t>(value)); }
  Type* IntType() const { return type_->getWithNewType(b_.getInt32Ty()); }
  Value* Fma(Value* a, Value* b, Value* c) { return b_.CreateIntrinsic(llvm::Intrinsic::fma, {type_}, {a, b, c}); }
  Value* Abs(Value* value) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, value); }
  Value* CopySign(Value* magnitude, Value* sign) { return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, magnitude, sign); }

  Value* Clamp(Value* x, float low, float high) {
    x = b_.CreateSelect(b_.CreateFCmpOGT(x, C(high)), C(high), x);
    return b_.CreateSelect(b_.CreateFCmpOLT(x, C(low)), C(low), x);
  }

  Value* Horner(Value* x, std::initializer_list<float> coefficients) {
    Value* result = nullptr;
    for (const float* c = coefficients.end(); c != coefficients.begin();) {
      --c;
      result = result == nullptr ? C(*c) : Fma(result, x, C(*c));
    }
    return result;
  }

  Reduced ReduceByLn2(Value* x) {
    Value* n = b_.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, b_.CreateFMul(x, C(kLog2E)));
    return {n, Fma(n, C(-kLn2Low), Fma(n, C(-kLn2High), x))};
  }

  // exp(r) = 1 + r (1 + r q(r)) on |r| <= ln(2) / 2.
  Value* ExpReduced(Value* r) { return Horner(r, {1.0f, 1.0f, 0.49999994f, 0.166665196f, 0.041668389f, 0.00836877339f, 0.00138147012f}); }

  // value * 2^n, rounded once. Not wide: -126 <= n <= 127.
  Value* Scale(Value* value, Value* n, bool wide) {
    if (lanes_ == 16) {
      return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {}, {value, n, value, b_.getInt16(0xFFFF), b_.getInt32(4)});
    }
    // A NaN has no integer; what comes out then is multiplied with that NaN.
    Value* whole = b_.CreateFreeze(b_.CreateFPToSI(n, IntType()));
    if (!wide) return b_.CreateFMul(value, PowerOf2(whole));
    Value* half = b_.CreateAShr(whole, I(1));
    return b_.CreateFMul(b_.CreateFMul(value, PowerOf2(half)), PowerOf2(b_.CreateSub(whole, half)));
  }

  Value* PowerOf2(Value* n) { return b_.CreateBitCast(b_.CreateShl(b_.CreateAdd(n, I(127)), I(23)), type_); }

  // n for which x / 2^n lies in [sqrt(1/2), sqrt(2)).
  Value* Exponent(Value* x) {
    Value* bits = b_.CreateBitCast(x, IntType());
    return b_.CreateAShr(b_.CreateSub(bits, I(0x3F3504F3)), I(23));
  }
  Value* Mantissa(Value* x, Value* exponent) {
    Value* bits = b_.CreateBitCast(x, IntType());
    return b_.CreateBitCast(b_.CreateSub(bits, b_.CreateShl(exponent, I(23))), type_);
  }

  // log(1 + f) + low + n ln 2 = n ln2_high + f + (n ln2_low + low - f^2 / 2 + f^3 p(f)).
  Value* LogOfMantissa(Value* f, Value* low, Value* n) {
    Value* p = Horner(f, {0.333333105f, -0.249999866f, 0.20002225f, -0.166692585f, 0.142186388f, -0.123841822f, 0.118731625f, -0.117910817f,
                          0.069162555f});
    Value* square = b_.CreateFMul(f, f);
    Value* rest = Fma(n, C(kLn2Low), low);
    Value* head = b_.CreateFMul(n, C(kLn2High));
    Value* sum = b_.CreateFAdd(head, f);
    Value* lost = b_.CreateFAdd(b_.CreateFSub(head, sum), f);  // Exact: head is 0 or larger than f.
    Value* tail = Fma(square, Fma(f, p, C(-0.5f)), b_.CreateFAdd(rest, lost));
    return b_.CreateFAdd(sum, tail);
  }

  // `argument` decides: 0 -> -inf, negative -> NaN; infinity and NaN come out as `x` itself.
  Value* LogSpecials(Value* result, Value* argument, Value* x) {
    result = b_.CreateSelect(b_.CreateFCmpOEQ(argument, C(0)), C(-kInfinity), result);
    result = b_.CreateSelect(b_.CreateFCmpOLT(argument, C(0)), C(std::numeric_limits<float>::quiet_NaN()), result);
    return b_.CreateSelect(b_.CreateFCmpUEQ(argument, C(kInfinity)), x, result);
  }

  llvm::IRBuilder<>& b_;
  Value* x_;
  Type* type_;
  int lanes_ = 0;
};

}  // namespace

Value* EmitPolynomial(llvm::IRBuilder<>& builder, KOp op, Value* x) {
  Emitter emitter(builder, x);
  switch (op) {
    case KOp::kExp:
      return emitter.Exp();
    case KOp::kExpm1:
      return emitter.Expm1();
    case KOp::kTanh:
      return emitter.Tanh();
    case KOp::kErf:
      return emitter.Erf();
    case KOp::kLog:
      return emitter.Log();
    case KOp::kLog1p:
      return emitter.Log1p();
    default:
      return nullptr;
  }
}

}  // namespace lazuli::codegen
