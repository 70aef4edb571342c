#include "codegen/emit_llvm_poly.h"

#include "codegen/emit_llvm_exp_log.h"
#include "codegen/emit_llvm_pow.h"
#include "codegen/emit_llvm_wide.h"

namespace lazuli::codegen {

using llvm::Value;

Value* EmitPolynomial(llvm::IRBuilder<>& builder, KOp op, Value* a, Value* b, const CallPerLane& call) {
  if (op == KOp::kPow) return EmitPow(builder, a, b);
  if (Value* value = EmitExpLog(builder, op, a)) return value;
  if (Value* value = EmitTrig(builder, op, a, call)) return value;
  return a->getType()->getScalarType()->isFloatTy() ? EmitWide(builder, op, a, b) : nullptr;
}

}  // namespace lazuli::codegen
