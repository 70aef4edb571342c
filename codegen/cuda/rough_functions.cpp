#include "codegen/cuda/rough_functions.h"

#include <cstddef>
#include <vector>

#include "codegen/cuda/online_sums.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

// Whether a relative error of an operand is one of the result, or one of the operand's size.
bool PassesErrorsOn(KOp op) {
  switch (op) {
    case KOp::kAdd:
    case KOp::kSub:
    case KOp::kMul:
    case KOp::kDiv:
    case KOp::kFma:
    case KOp::kNeg:
    case KOp::kAbs:
    case KOp::kSelect:
    case KOp::kMin:
    case KOp::kMax:
    case KOp::kFmin:
    case KOp::kFmax:
      return true;
    default:
      return false;
  }
}

class RoughChooser {
 public:
  explicit RoughChooser(const CudaPlan& plan) : plan_(plan), insts_(plan.kernel.insts) {}

  std::vector<bool> Run() const {
    const std::vector<bool> may_be = WhatMayBeRough();
    std::vector<bool> rough(insts_.size(), false);
    std::vector<bool> made_of_rough(insts_.size(), false);
    for (size_t i = 0; i < insts_.size(); ++i) {
      const KInst& at = insts_[i];
      if (!plan_.live[i] || at.type != ScalarType::Float) continue;
      const bool passes = PassesErrorsOn(at.op) || at.op == KOp::kReduceSum;
      for (int k = 0; passes && k < KOpArity(at.op); ++k) made_of_rough[i] = made_of_rough[i] || made_of_rough[at.in[k]];
      const bool has_function = at.op == KOp::kExp || at.op == KOp::kTanh;
      rough[i] = may_be[i] && (has_function || (at.op == KOp::kDiv && made_of_rough[i]));
      made_of_rough[i] = made_of_rough[i] || (rough[i] && has_function);
    }
    return rough;
  }

 private:
  // Floats all of whose uses lose their last bits.
  std::vector<bool> WhatMayBeRough() const {
    std::vector<bool> may_be(insts_.size(), true);
    for (size_t i = insts_.size(); i-- > 0;) {
      const KInst& at = insts_[i];
      if (!plan_.live[i]) continue;
      for (int k = 0; k < KOpArity(at.op); ++k) {
        const auto of = static_cast<size_t>(at.in[k]);
        may_be[of] = may_be[of] && LosesBits(at, may_be[i], at.in[k]);
      }
    }
    return may_be;
  }

  // Whether `user`, which may itself be rough, loses the last bits of its operand `value`.
  bool LosesBits(const KInst& user, bool may_be_rough, int value) const {
    if (insts_[value].type != ScalarType::Float) return true;  // Nobody asks for it.
    if (user.op == KOp::kCast) return c10::isReducedFloatingType(user.type);
    if (user.op == KOp::kReduceSum) return may_be_rough || IsAtMostOne(value);
    return user.type == ScalarType::Float && may_be_rough && PassesErrorsOn(user.op);
  }

  // Whether it is the exponential of how far a number is below the largest. The smaller one is, the larger is its error, and the less does
  // it weigh in a sum.
  bool IsAtMostOne(int value) const { return MaximumAbove(insts_, value) >= 0; }

  const CudaPlan& plan_;
  const std::vector<KInst>& insts_;
};

}  // namespace

void ChooseRoughFunctions(CudaPlan* plan) { plan->rough = RoughChooser(*plan).Run(); }

}  // namespace lazuli::codegen
