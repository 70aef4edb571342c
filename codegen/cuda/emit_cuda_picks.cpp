// The part of CudaFunctionEmitter for elements of a row that are picked by their number: the class of a cross entropy. Of all a row's
// vectors one holds it; what the others do with it is nothing, so that there the comparisons and what follows from them are not computed.
#include "absl/strings/str_cat.h"
#include "codegen/cuda/emit_cuda_function.h"

namespace lazuli::codegen {
namespace {

bool IsZero(const KInst& inst) { return inst.op == KOp::kConst && inst.imm == 0; }

}  // namespace

// The operand that is compared with the coordinate along vectors, the same for a whole row; -1: this is no such comparison. Where rows are
// in registers the code is long as it is.
int CudaFunctionEmitter::PickedNumber(int i) const {
  if (!plan_.rows || plan_.iterations > 0 || plan_.lanes == 1 || plan_.has_scans) return -1;
  if (inst(i).op != KOp::kEq && inst(i).op != KOp::kNe) return -1;
  for (const int k : {0, 1}) {
    const KInst& index = inst(inst(i).in[k]);
    const int number = inst(i).in[1 - k];
    if (index.op == KOp::kIndex && index.imm == plan_.vector_dim && !plan_.HasLanes(number)) return number;
  }
  return -1;
}

// Whether some of `chosen` are picked in this vector; empty where none ever is.
std::string CudaFunctionEmitter::PickCondition(const std::vector<bool>& chosen) const {
  std::string condition;
  for (int i = 0; i < num_insts(); ++i) {
    const int number = chosen[i] ? PickedNumber(i) : -1;
    if (number < 0) continue;
    absl::StrAppend(&condition, condition.empty() ? "" : " || ", "holds<", plan_.lanes, ">(", Operand(number, false), ", i",
                    plan_.vector_dim, ")");
  }
  return condition;
}

// Of a sum that only picked elements change: nothing is added to others.
bool CudaFunctionEmitter::SumsPicked(int reduce) const {
  const KInst& at = inst(reduce);
  if (!picks_ || at.op != KOp::kReduceSum) return false;
  const KInst& term = inst(at.in[0]);
  return term.op == KOp::kSelect && inst(term.in[0]).op == KOp::kEq && PickedNumber(term.in[0]) >= 0 && IsZero(inst(term.in[2]));
}

}  // namespace lazuli::codegen
