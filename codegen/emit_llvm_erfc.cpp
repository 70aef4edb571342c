#include "codegen/emit_llvm_erfc.h"

#include <llvm/IR/Module.h>

#include "codegen/emit_llvm_poly_tables.h"
#include "codegen/emit_llvm_vector_math.h"

namespace lazuli::codegen {
namespace {

using llvm::Value;

constexpr double kHigh = 27.5;  // From here erfc is 0.
constexpr int kMantissaBits = 3;

// erfc(t) = exp(-t^2) g(t), both factors in two parts, so that only their product rounds.
class ErfcEmitter : public VectorMath {
 public:
  ErfcEmitter(llvm::IRBuilder<>& builder, const IsaInfo& isa, Value* x)
      : VectorMath(builder, x->getType(), isa), x_(x), table_(PolyTableFor(false)) {}

  Value* Run() {
    Value* magnitude = Abs(x_);
    Value* t = Select(b_.CreateFCmpOGT(magnitude, C(kHigh)), C(kHigh), magnitude);
    Value* n = nullptr;
    const Parts exp = ExpOfNegativeSquare(t, &n), scaled = ScaledErfc(t);
    Value* low = Fma(exp.high, scaled.low, Mul(exp.low, scaled.high));
    Value* result = ScaleWide(Fma(exp.high, scaled.high, low), n);
    return Select(Less(x_, 0), Sub(C(2), result), result);
  }

 private:
  struct Parts {
    Value* high;
    Value* low;
  };

  // exp(-t^2) / 2^n: 1 + r, whose rounding is known, and the rest of the series.
  Parts ExpOfNegativeSquare(Value* t, Value** n) {
    Value* square = Mul(t, t);
    Value* square_low = Fma(t, t, Neg(square));
    *n = NearestWhole(square, -kLog2E).n;
    Value* first = Fma(*n, C(-table_.ln2_high), Neg(square));  // Exact.
    Value* r = Fma(*n, C(-table_.ln2_low), first);
    Value* r_low = Sub(Fma(*n, C(-table_.ln2_low), Sub(first, r)), square_low);
    Value* high = Add(C(1), r);
    Value* lost = Add(Sub(C(1), high), r);
    Value* curve = Mul(Mul(r, r), Polynomial(r, table_.exp.drop_front(2)));
    Value* rest = Add(curve, Fma(r_low, Add(r, curve), r_low));  // exp(r) - 1 - r, and r_low exp(r).
    return {high, Add(lost, rest)};
  }

  Parts ScaledErfc(Value* t) {
    const int64_t first = int64_t{1023} << kMantissaBits;
    Value* interval = b_.CreateSub(b_.CreateLShr(Bits(Add(t, C(1))), I(mantissa_bits_ - kMantissaBits)), I(first));
    interval = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, interval, I(kScaledErfcIntervals - 1));  // NaNs are in the last one.
    Value* row = b_.CreateMul(interval, I(kScaledErfcColumns));
    Value* d = Sub(t, Load(row, 0));
    Value* p = Load(row, kScaledErfcColumns - 1);
    for (int i = kScaledErfcColumns - 2; i >= 3; --i) p = Fma(p, d, Load(row, i));
    Value* at_center = Load(row, 1);
    Value* rest = Fma(d, p, Load(row, 2));
    Value* high = Add(at_center, rest);
    return {high, Add(Sub(at_center, high), rest)};
  }

  Value* Load(Value* row, int column) {
    Value* pointer = b_.CreateGEP(b_.getDoubleTy(), Table(), b_.CreateAdd(row, I(column)));
    if (lanes_ == 0) return b_.CreateLoad(type_, pointer);
    return b_.CreateMaskedGather(type_, pointer, llvm::Align(8));
  }

  // All rows, once in a module.
  llvm::GlobalVariable* Table() {
    constexpr const char* kName = "lazuli_scaled_erfc";
    llvm::Module& module = *b_.GetInsertBlock()->getModule();
    if (llvm::GlobalVariable* made = module.getNamedGlobal(kName)) return made;
    auto* rows = llvm::ConstantDataArray::get(module.getContext(),
                                              llvm::ArrayRef<double>(&kScaledErfcRows[0][0], kScaledErfcIntervals * kScaledErfcColumns));
    return new llvm::GlobalVariable(module, rows->getType(), true, llvm::GlobalValue::PrivateLinkage, rows, kName);
  }

  Value* x_;
  const PolyTable& table_;
};

}  // namespace

Value* EmitErfcOfDouble(llvm::IRBuilder<>& builder, const IsaInfo& isa, Value* x) { return ErfcEmitter(builder, isa, x).Run(); }

}  // namespace lazuli::codegen
