#include "codegen/emit_llvm_poly.h"

#include "codegen/emit_llvm_erfc.h"
#include "codegen/emit_llvm_exp_log.h"
#include "codegen/emit_llvm_inverse_trig.h"
#include "codegen/emit_llvm_lookup.h"
#include "codegen/emit_llvm_pow.h"
#include "codegen/emit_llvm_wide.h"

namespace lazuli::codegen {

using llvm::Value;

Value* EmitPolynomial(llvm::IRBuilder<>& builder, const IsaInfo& isa, KOp op, Value* a, Value* b, const CallPerLane& call) {
  if (op == KOp::kPow) return EmitPow(builder, isa, a, b);
  if (Value* value = EmitByLookup(builder, isa, op, a)) return value;
  if (Value* value = EmitExpLog(builder, isa, op, a)) return value;
  if (Value* value = EmitTrig(builder, isa, op, a, call)) return value;
  if (Value* value = EmitInverseTrig(builder, isa, op, a)) return value;
  if (a->getType()->getScalarType()->isFloatTy()) return EmitWide(builder, isa, op, a, b);
  return op == KOp::kErfc ? EmitErfcOfDouble(builder, isa, a) : nullptr;
}

}  // namespace lazuli::codegen
