#include "codegen/emit_llvm.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "codegen/emit_llvm_function.h"

namespace lazuli::codegen {
namespace {

// A split kernel: each pass over all splits, then its results put together; the kept-level stores come last, since a later pass may
// still read what they overwrite.
void EmitSplitPhases(const LoopPlan& plan, const IsaInfo& isa, const std::string& precision, const std::string& prefix,
                     EmittedKernel* out) {
  bool kept_stores = false;
  std::vector<bool> has_reduce(plan.num_passes, false);
  for (size_t i = 0; i < plan.kernel.insts.size(); ++i) {
    const int index = static_cast<int>(i);
    const KOp op = plan.kernel.insts[i].op;
    if (IsReduce(op) && plan.live[i]) has_reduce[plan.stage[i] - 1] = true;
    if (op == KOp::kStore && !plan.IsFullStore(index)) kept_stores = true;
  }
  const UnitCount units = plan.Units();
  UnitCount splits = units;
  splits.outer.coefficient *= plan.num_splits;
  const double combine_ns =
      2.0 * static_cast<double>(plan.Hint(plan.kept_numel) * plan.num_splits) / static_cast<double>(std::max<int64_t>(1, plan.UnitsHint()));
  for (int pass = 0; pass < plan.num_passes; ++pass) {
    const bool last = pass + 1 == plan.num_passes;
    std::string name = absl::StrCat(prefix, "_pass", pass);
    FunctionEmitter(*out->module, plan, isa, precision).EmitSplitPass(name, pass);
    out->phases.push_back({name, splits, plan.unit_ns / plan.num_passes});
    if (!has_reduce[pass]) continue;
    name = absl::StrCat(prefix, "_combine", pass);
    FunctionEmitter(*out->module, plan, isa, precision).EmitCombine(name, pass, last && kept_stores);
    out->phases.push_back({name, units, combine_ns});
  }
  if (kept_stores && !has_reduce.back()) {
    const std::string name = absl::StrCat(prefix, "_finish");
    FunctionEmitter(*out->module, plan, isa, precision).EmitCombine(name, -1, true);
    out->phases.push_back({name, units, combine_ns});
  }
}

}  // namespace

EmittedKernel EmitKernel(const KernelIR& kernel, const IsaInfo& isa, const std::string& precision, const std::string& prefix) {
  const LoopPlan plan = PlanLoops(kernel, isa);
  EmittedKernel out;
  out.context = std::make_unique<llvm::LLVMContext>();
  out.module = std::make_unique<llvm::Module>(prefix, *out.context);
  out.scratch = ScratchOf(plan);
  if (plan.IsSplit()) {
    EmitSplitPhases(plan, isa, precision, prefix, &out);
  } else {
    FunctionEmitter(*out.module, plan, isa, precision).EmitWhole(prefix);
    out.phases.push_back({prefix, plan.Units(), plan.unit_ns});
  }
  return out;
}

}  // namespace lazuli::codegen
