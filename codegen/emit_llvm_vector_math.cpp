#include "codegen/emit_llvm_vector_math.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <cmath>
#include <limits>

namespace lazuli::codegen {

using llvm::Value;

// Coefficients from which on parts of a polynomial are evaluated side by side.
constexpr size_t kLongPolynomial = 8;

namespace {

// `count` of the numbers, as a vector of floats.
llvm::Constant* FloatVector(llvm::IRBuilder<>& builder, const double* numbers, int count) {
  llvm::SmallVector<llvm::Constant*, 16> floats;
  for (int i = 0; i < count; ++i) floats.push_back(llvm::ConstantFP::get(builder.getFloatTy(), numbers[i]));
  return llvm::ConstantVector::get(floats);
}

}  // namespace

Value* InVectorsOf(llvm::IRBuilder<>& builder, int lanes, Value* a, Value* b, llvm::function_ref<Value*(Value*, Value*)> compute) {
  auto* vector_type = llvm::dyn_cast<llvm::FixedVectorType>(a->getType());
  if (vector_type == nullptr) {
    Value* wide_b = b != nullptr ? builder.CreateVectorSplat(lanes, b) : nullptr;
    return builder.CreateExtractElement(compute(builder.CreateVectorSplat(lanes, a), wide_b), uint64_t{0});
  }
  const int all = static_cast<int>(vector_type->getNumElements());
  if (all == lanes) return compute(a, b);
  Value* result = nullptr;
  for (int start = 0; start < all; start += lanes) {
    llvm::SmallVector<int, 16> mask;
    for (int i = 0; i < lanes; ++i) mask.push_back(start + i % all);
    Value* part = compute(builder.CreateShuffleVector(a, mask), b != nullptr ? builder.CreateShuffleVector(b, mask) : nullptr);
    if (all < lanes) {
      mask.resize(all);
      return builder.CreateShuffleVector(part, mask);
    }
    if (result == nullptr) result = llvm::PoisonValue::get(llvm::FixedVectorType::get(part->getType()->getScalarType(), all));
    llvm::SmallVector<int, 32> widen(all, -1), blend;
    for (int i = 0; i < lanes; ++i) widen[i] = i;
    Value* wide = builder.CreateShuffleVector(part, widen);
    for (int i = 0; i < all; ++i) blend.push_back(i >= start && i < start + lanes ? all + i - start : i);
    result = builder.CreateShuffleVector(result, wide, blend);
  }
  return result;
}

VectorMath::VectorMath(llvm::IRBuilder<>& builder, llvm::Type* type, const IsaInfo& isa)
    : b_(builder),
      type_(type),
      is_float_(type->getScalarType()->isFloatTy()),
      mantissa_bits_(is_float_ ? 23 : 52),
      native_lanes_(isa.vector_bytes / (is_float_ ? 4 : 8)) {
  auto* vector_type = llvm::dyn_cast<llvm::FixedVectorType>(type_);
  lanes_ = vector_type != nullptr ? static_cast<int>(vector_type->getNumElements()) : 0;
}

Value* VectorMath::C(double value) const { return llvm::ConstantFP::get(type_, value); }
Value* VectorMath::I(int64_t value) const { return llvm::ConstantInt::get(IntType(), static_cast<uint64_t>(value)); }
llvm::Type* VectorMath::IntType() const { return type_->getWithNewType(b_.getIntNTy(is_float_ ? 32 : 64)); }

Value* VectorMath::Clamp(Value* x, double low, double high) {
  x = Select(b_.CreateFCmpOGT(x, C(high)), C(high), x);
  return Select(b_.CreateFCmpOLT(x, C(low)), C(low), x);
}

Value* VectorMath::Polynomial(Value* x, llvm::ArrayRef<double> coefficients) {
  if (coefficients.size() <= kLongPolynomial) return Horner(x, coefficients);
  // The first terms, whose roundings matter, come last.
  Value* rest = Interleaved(x, coefficients.drop_front(2));
  return Fma(Fma(rest, x, C(coefficients[1])), x, C(coefficients[0]));
}

Value* VectorMath::Interleaved(Value* x, llvm::ArrayRef<double> coefficients) {
  if (coefficients.size() <= kLongPolynomial) return Horner(x, coefficients);
  llvm::SmallVector<double, 16> even, odd;
  for (size_t i = 0; i < coefficients.size(); ++i) (i % 2 == 0 ? even : odd).push_back(coefficients[i]);
  Value* square = Mul(x, x);
  return Fma(x, Interleaved(square, odd), Interleaved(square, even));
}

Value* VectorMath::Horner(Value* x, llvm::ArrayRef<double> coefficients) {
  Value* result = C(coefficients.back());
  for (size_t i = coefficients.size() - 1; i-- > 0;) result = Fma(result, x, C(coefficients[i]));
  return result;
}

Value* VectorMath::PowerOf2(Value* n) {
  const double bias = is_float_ ? 127 : 1023;
  return FromBits(b_.CreateShl(Bits(Add(n, C(Shift() + bias))), I(mantissa_bits_)));
}

Value* VectorMath::Scale(Value* value, Value* n) { return Mul(value, PowerOf2(n)); }

Value* VectorMath::ScaleWide(Value* value, Value* n, Value* remains) {
  if (HasScale()) {
    const auto scale = is_float_ ? llvm::Intrinsic::x86_avx512_mask_scalef_ps_512 : llvm::Intrinsic::x86_avx512_mask_scalef_pd_512;
    llvm::Type* mask_type = b_.getIntNTy(lanes_);
    Value* mask = remains != nullptr ? b_.CreateBitCast(remains, mask_type) : llvm::Constant::getAllOnesValue(mask_type);
    return b_.CreateIntrinsic(scale, {}, {value, n, C(0), mask, b_.getInt32(4)});
  }
  if (remains != nullptr) return Select(remains, ScaleWide(value, n), C(0));
  // 2^n = 2^h 2^(n - h), h = n / 2 rounded down, made of the bits of n + 2 bias, which is positive.
  const double bias = is_float_ ? 127 : 1023;
  Value* bits = Bits(Add(n, C(Shift() + 2 * bias)));
  Value* half = b_.CreateAnd(b_.CreateShl(bits, I(mantissa_bits_ - 1)), Bits(C(std::numeric_limits<double>::infinity())));
  Value* rest = b_.CreateSub(b_.CreateShl(bits, I(mantissa_bits_)), half);
  return Mul(Mul(value, FromBits(half)), FromBits(rest));
}

VectorMath::Split VectorMath::SplitExponent(Value* x) {
  const int64_t offset = is_float_ ? 256 : 2048;  // Keeps exponents positive.
  const int64_t root_half = is_float_ ? 0x3F3504F3 : 0x3FE6A09E667F3BCD;
  Value* bits = Bits(x);
  Value* above = b_.CreateAdd(bits, I((offset / 2 << mantissa_bits_) - root_half));
  Value* biased = b_.CreateLShr(above, I(mantissa_bits_));
  Value* as_number = FromBits(b_.CreateOr(biased, Bits(C(std::ldexp(1.0, mantissa_bits_)))));
  Split split;
  split.n = Sub(as_number, C(std::ldexp(1.0, mantissa_bits_) + static_cast<double>(offset / 2)));
  split.exponent = b_.CreateSub(biased, I(offset / 2));
  split.m = FromBits(b_.CreateSub(bits, b_.CreateShl(split.exponent, I(mantissa_bits_))));
  return split;
}

VectorMath::Split VectorMath::SplitAny(Value* x) {
  Value* is_small = Less(x, PolyTableFor(is_float_).min_normal);
  Split split = SplitExponent(Select(is_small, Mul(x, PowerOf2(C(mantissa_bits_))), x));
  return {Select(is_small, Sub(split.n, C(mantissa_bits_)), split.n), nullptr, split.m};
}

Value* VectorMath::Lookup(const double (&table)[32], Value* index) {
  return InVectorsOf(b_, 16, index, nullptr, [&](Value* indices, Value* /*none*/) {
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpermi2var_ps_512, {},
                              {FloatVector(b_, table, 16), indices, FloatVector(b_, table + 16, 16)});
  });
}

Value* VectorMath::Lookup(const double (&table)[16], Value* index) {
  return InVectorsOf(b_, 16, index, nullptr, [&](Value* indices, Value* /*none*/) {
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {}, {FloatVector(b_, table, 16), indices});
  });
}

Value* VectorMath::Lookup(const double (&table)[8], Value* index) {
  return InVectorsOf(b_, 8, index, nullptr, [&](Value* indices, Value* /*none*/) {
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx2_permps, {}, {FloatVector(b_, table, 8), indices});
  });
}

Value* VectorMath::Rough(llvm::Intrinsic::ID id, Value* x) {
  return InVectorsOf(b_, 16, x, nullptr, [&](Value* part, Value* /*none*/) {
    return b_.CreateIntrinsic(id, {}, {part, llvm::Constant::getNullValue(part->getType()), b_.getInt16(-1)});
  });
}

Value* VectorMath::RoughReciprocal(Value* x) { return HasLookup() ? Rough(llvm::Intrinsic::x86_avx512_rcp14_ps_512, x) : Div(C(1), x); }

VectorMath::Root VectorMath::RootInParts(Value* x) {
  Value* root = HasLookup() ? nullptr : Sqrt(x);
  Value* inverse = HasLookup() ? Rough(llvm::Intrinsic::x86_avx512_rsqrt14_ps_512, x) : Div(C(1), root);
  inverse = Select(b_.CreateFCmpOEQ(x, C(0)), C(0), inverse);
  if (root == nullptr) root = Mul(x, inverse);
  return {root, Mul(Fma(Neg(root), root, x), Mul(inverse, C(0.5)))};
}

Value* VectorMath::Exp2ForFloat(Value* x) {
  x = Clamp(x, -200, 200);
  Whole whole = NearestWhole(x, 1);
  return Scale(Polynomial(Sub(x, whole.n), kExp2Wide), whole.n);
}

Value* VectorMath::NegateIfOdd(Value* value, Value* bits) {
  return FromBits(b_.CreateXor(Bits(value), b_.CreateShl(bits, I(is_float_ ? 31 : 63))));
}

Value* VectorMath::XorSign(Value* value, Value* bits) { return FromBits(b_.CreateXor(Bits(value), b_.CreateAnd(bits, Bits(C(-0.0))))); }

}  // namespace lazuli::codegen
