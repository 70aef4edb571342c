#include "codegen/emit_llvm.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lazuli::codegen {
namespace {

// A split kernel: each pass over all splits, then its results put together; the kept-level stores come last, since a later pass may
// still read what they overwrite.
std::vector<KernelPhase> SplitPhases(const LoopPlan& plan, const std::string& prefix) {
  using Kind = KernelPhase::Kind;
  bool kept_stores = false;
  std::vector<bool> has_reduce(plan.num_passes, false);
  for (size_t i = 0; i < plan.kernel.insts.size(); ++i) {
    const int index = static_cast<int>(i);
    const KOp op = plan.kernel.insts[i].op;
    if (IsReduce(op) && plan.live[i]) has_reduce[plan.stage[i] - 1] = true;
    if (HasEffect(op) && !plan.IsFullStore(index)) kept_stores = true;
  }
  const UnitCount units = plan.Units();
  UnitCount splits = units;
  splits.outer.coefficient *= plan.num_splits;
  const double combine_ns =
      2.0 * static_cast<double>(plan.Hint(plan.kept_numel) * plan.num_splits) / static_cast<double>(std::max<int64_t>(1, plan.UnitsHint()));
  std::vector<KernelPhase> phases;
  for (int pass = 0; pass < plan.num_passes; ++pass) {
    const bool last = pass + 1 == plan.num_passes;
    phases.push_back({absl::StrCat(prefix, "_pass", pass), splits, plan.unit_ns / plan.num_passes, Kind::kSplitPass, pass});
    if (!has_reduce[pass]) continue;
    phases.push_back({absl::StrCat(prefix, "_combine", pass), units, combine_ns, Kind::kCombine, pass, last && kept_stores});
  }
  if (kept_stores && !has_reduce.back()) {
    phases.push_back({absl::StrCat(prefix, "_finish"), units, combine_ns, Kind::kCombine, -1, true});
  }
  return phases;
}

}  // namespace

PlannedKernel PlanKernel(const KernelIR& kernel, const IsaInfo& isa, const std::string& prefix, const Schedule& schedule) {
  PlannedKernel planned;
  planned.plan = PlanLoops(kernel, isa, schedule);
  planned.scratch = ScratchOf(planned.plan);
  if (planned.plan.IsSplit()) {
    planned.phases = SplitPhases(planned.plan, prefix);
  } else {
    planned.phases.push_back({prefix, planned.plan.Units(), planned.plan.unit_ns});
    planned.phases.back().min_threads = planned.plan.min_threads;
  }
  return planned;
}

EmittedKernel EmitKernel(const PlannedKernel& planned, const IsaInfo& isa, const std::string& precision) {
  EmittedKernel out;
  out.context = std::make_unique<llvm::LLVMContext>();
  out.module = std::make_unique<llvm::Module>(planned.phases.front().function, *out.context);
  for (const KernelPhase& phase : planned.phases) {
    FunctionEmitter emitter(*out.module, planned.plan, isa, precision);
    switch (phase.kind) {
      case KernelPhase::Kind::kWhole:
        emitter.EmitWhole(phase.function);
        break;
      case KernelPhase::Kind::kSplitPass:
        emitter.EmitSplitPass(phase.function, phase.pass);
        break;
      case KernelPhase::Kind::kCombine:
        emitter.EmitCombine(phase.function, phase.pass, phase.stores);
        break;
    }
  }
  return out;
}

}  // namespace lazuli::codegen
