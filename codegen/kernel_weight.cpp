#include "codegen/kernel_weight.h"

namespace lazuli::codegen {

bool IsTranscendental(KOp op) {
  return (op >= KOp::kExp && op <= KOp::kLgamma) || op == KOp::kPow || op == KOp::kAtan2 || op == KOp::kHypot;
}

double Weight(const KInst& inst) {
  if (IsTranscendental(inst.op)) return 24;
  switch (inst.op) {
    case KOp::kConst:
    case KOp::kScalar:
      return 0;
    case KOp::kDiv:
    case KOp::kSqrt:
      return 8;
    case KOp::kMod:
      return 30;
    case KOp::kCast:
      return 3;
    case KOp::kScanSum:
    case KOp::kScanProd:
      return 4;
    default:
      return 1;
  }
}

}  // namespace lazuli::codegen
