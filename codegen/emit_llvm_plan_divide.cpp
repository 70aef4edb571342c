// Which divisions by a number that is uniform along the vector loop are done by its reciprocal: those in loops that do little else. Where
// there is enough to do while the divider works, a division is one instruction instead of about ten.
#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {
namespace {

constexpr int kMinVectorBytes = 64;      // Of AVX-512. Narrower vectors are divided as fast.
constexpr int64_t kMinVectors = 8;       // In a row, which pay for the reciprocal.
constexpr double kWorkPerDivision = 10;  // Vector operations that take as long as is gained.

class DivisionPlanner {
 public:
  explicit DivisionPlanner(LoopPlan* plan) : plan_(plan) {}

  void Run() {
    if (plan_->kernel.num_reduced == 0) return RunLoop([&](int i) { return plan_->live[i]; });
    if (!plan_->VectorIsReduced()) return;
    for (int pass = 0; pass < plan_->num_passes; ++pass) {
      RunLoop([&](int i) { return plan_->IsComputedIn(i, pass); });
    }
  }

 private:
  const KInst& inst(int i) const { return plan_->kernel.insts[i]; }
  int num_insts() const { return static_cast<int>(plan_->kernel.insts.size()); }

  bool MayMultiply(int i) const {
    const KInst& division = inst(i);
    return division.op == KOp::kDiv && c10::isFloatingType(division.type) && plan_->IsUniform(division.in[1]) &&
           !plan_->IsUniform(division.in[0]);
  }

  // `evaluates` says which instructions the loop does.
  template <class Evaluates>
  void RunLoop(Evaluates evaluates) {
    double work = 0;
    int divisions = 0;
    for (int i = 0; i < num_insts(); ++i) {
      if (!evaluates(i) || plan_->IsUniform(i)) continue;
      if (MayMultiply(i)) {
        ++divisions;
      } else if (!HasBuffer(inst(i).op)) {
        work += Weight(inst(i));
      }
    }
    if (work > kWorkPerDivision * divisions) return;
    for (int i = 0; i < num_insts(); ++i) {
      if (!evaluates(i) || !MayMultiply(i)) continue;
      plan_->by_reciprocal[i] = true;
      plan_->needs_reciprocal[inst(i).in[1]] = true;
    }
  }

  LoopPlan* plan_;
};

}  // namespace

void PlanDivisions(LoopPlan* plan, const IsaInfo& isa) {
  plan->by_reciprocal.assign(plan->kernel.insts.size(), false);
  plan->needs_reciprocal = plan->by_reciprocal;
  const int64_t row = plan->SizeHint(plan->vector_dim);
  if (isa.vector_bytes >= kMinVectorBytes && row >= kMinVectors * plan->lanes) DivisionPlanner(plan).Run();
}

}  // namespace lazuli::codegen
