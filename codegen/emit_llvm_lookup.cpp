#include "codegen/emit_llvm_lookup.h"

#include <llvm/IR/IntrinsicsX86.h>

#include <cmath>

#include "codegen/emit_llvm_poly_tables.h"
#include "codegen/emit_llvm_vector_math.h"

namespace lazuli::codegen {
namespace {

using llvm::Value;
using llvm::Intrinsic::ID;

constexpr int kLanes = 16;

// What a logarithm is of a quiet or signalling NaN (the NaN), 0 (-inf), -inf (NaN), inf (inf) and negative numbers (NaN), four bits each,
// as the instruction takes them; of 1 and positive numbers it is what was computed.
constexpr int kLogSpecials = 0x03530422;

// Of vectors of 16 floats.
class LookupEmitter : public VectorMath {
 public:
  LookupEmitter(llvm::IRBuilder<>& builder, const IsaInfo& isa, Value* x) : VectorMath(builder, x->getType(), isa), x_(x) {}

  Value* Log(const LogTable& table) {
    Value* m = Masked(llvm::Intrinsic::x86_avx512_mask_getmant_ps_512, x_, b_.getInt32(kMantissasFrom075));
    Value* n = Sub(Exponent(x_), Exponent(m));
    Value* index = b_.CreateLShr(Bits(m), I(mantissa_bits_ - 5));
    Value* r = Fma(m, Lookup(table.rows[0], index), C(-1));
    Value* head = Fma(n, C(table.unit_high), Lookup(table.rows[1], index));  // Exact.
    Value* curve = Polynomial(r, table.near);
    curve = table.factor_low == 0 ? Mul(Mul(r, r), curve) : Mul(r, Fma(r, curve, C(table.factor_low)));
    Value* rest = table.unit_low == 0 ? curve : Fma(n, C(table.unit_low), curve);
    Value* result = Add(head, Fma(r, C(table.factor_high), rest));
    llvm::Constant* specials = llvm::ConstantInt::get(IntType(), kLogSpecials);
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_fixupimm_ps_512, {},
                              {result, x_, specials, b_.getInt32(0), AllLanes(), b_.getInt32(kCurrentRounding)});
  }

  // erfc(t) = exp(-t^2) g(t) = 2^(n / 16) (1 + m) (value + u), where m and u are so small that their roundings hardly count.
  Value* Erfc() {
    const IntervalTable& table = kScaledErfcTable;
    Value* magnitude = Abs(x_);
    Value* remains = b_.CreateFCmpULT(magnitude, C(table.high));
    Value* t = Select(remains, magnitude, C(table.high));
    Whole n;
    Value* m = ExpOfNegativeSquare(t, &n);
    Value* power = Lookup(kExp2SixteenthRows[0], n.bits);
    Value* index = b_.CreateLShr(Bits(Add(t, C(table.offset))), I(table.shift));
    const auto row = [&](int i) { return Lookup(table.rows[i], index); };
    Value* d = Sub(t, row(0));
    Value* p = row(6);
    for (int i = 5; i >= 2; --i) p = Fma(p, d, row(i));
    Value* u = Mul(d, p);
    Value* value = row(1);
    Value* head = Mul(power, value);
    Value* lost = Fma(power, value, Neg(head));
    Value* rest = Fma(power, Fma(m, value, Fma(m, u, u)), lost);
    Value* result = ScaleWide(Add(head, rest), Mul(n.n, C(0x1p-4)), remains);  // By 2 to what that is rounded down.
    return Select(Less(x_, 0), Sub(C(2), result), result);
  }

 private:
  static constexpr int kMantissasFrom075 = 3;  // 0.75 <= m < 1.5, and NaN for negative numbers.
  static constexpr int kCurrentRounding = 4;

  // exp(-t^2) = 2^(n / 16) (1 + m), where the power is the rounded one.
  Value* ExpOfNegativeSquare(Value* t, Whole* n) {
    Value* square = Mul(t, t);
    Value* square_low = Fma(t, t, Neg(square));
    *n = NearestWhole(square, -16 * kLog2E);
    const PolyTable& table = PolyTableFor(true);
    Value* r = Fma(n->n, C(-table.ln2_high / 16), Neg(square));  // Exact.
    r = Fma(n->n, C(-table.ln2_low / 16), r);
    r = Add(r, Sub(Lookup(kExp2SixteenthRows[1], n->bits), square_low));
    return Fma(Mul(r, r), Polynomial(r, table.exp_16th), r);
  }

  Value* AllLanes() { return llvm::Constant::getAllOnesValue(b_.getInt16Ty()); }
  Value* Masked(ID id, Value* x, Value* immediate) {
    return b_.CreateIntrinsic(id, {}, {x, immediate, llvm::Constant::getNullValue(type_), AllLanes(), b_.getInt32(kCurrentRounding)});
  }
  // Of denormals too.
  Value* Exponent(Value* x) {
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_getexp_ps_512, {},
                              {x, llvm::Constant::getNullValue(type_), AllLanes(), b_.getInt32(kCurrentRounding)});
  }

  Value* x_;
};

const LogTable* LogTableOf(KOp op) {
  return op == KOp::kLog ? &kLogTable : op == KOp::kLog2 ? &kLog2Table : op == KOp::kLog10 ? &kLog10Table : nullptr;
}

}  // namespace

Value* EmitByLookup(llvm::IRBuilder<>& builder, const IsaInfo& isa, KOp op, Value* x) {
  const LogTable* log_table = LogTableOf(op);
  if (log_table == nullptr && op != KOp::kErfc) return nullptr;
  if (!x->getType()->getScalarType()->isFloatTy() || isa.vector_bytes != 64) return nullptr;
  return InVectorsOf(builder, kLanes, x, nullptr, [&](Value* part, Value* /*none*/) {
    LookupEmitter emitter(builder, isa, part);
    return log_table != nullptr ? emitter.Log(*log_table) : emitter.Erfc();
  });
}

}  // namespace lazuli::codegen
