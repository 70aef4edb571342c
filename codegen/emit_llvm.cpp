#include "codegen/emit_llvm.h"

#include "absl/strings/str_cat.h"
#include "codegen/emit_llvm_function.h"

namespace lazuli::codegen {
namespace {

// A split kernel: each pass over all splits, then its results put together; the kept-level stores come last, since a later pass may
// still read what they overwrite.
void EmitSplitPhases(const LoopPlan& plan, const ScratchLayout& scratch, const IsaInfo& isa, const std::string& precision,
                     const std::string& prefix, EmittedKernel* out) {
  bool kept_stores = false;
  std::vector<bool> has_reduce(plan.num_passes, false);
  for (size_t i = 0; i < plan.kernel.insts.size(); ++i) {
    const int index = static_cast<int>(i);
    const KOp op = plan.kernel.insts[i].op;
    if (IsReduce(op) && plan.live[i]) has_reduce[plan.stage[i] - 1] = true;
    if (op == KOp::kStore && !plan.IsFullStore(index)) kept_stores = true;
  }
  const double combine_ns = 2.0 * static_cast<double>(plan.kept_numel * plan.num_splits) / static_cast<double>(plan.num_units);
  for (int pass = 0; pass < plan.num_passes; ++pass) {
    const bool last = pass + 1 == plan.num_passes;
    std::string name = absl::StrCat(prefix, "_pass", pass);
    FunctionEmitter(*out->module, plan, scratch, isa, precision).EmitSplitPass(name, pass);
    out->phases.push_back({name, plan.num_units * plan.num_splits, plan.unit_ns / plan.num_passes});
    if (!has_reduce[pass]) continue;
    name = absl::StrCat(prefix, "_combine", pass);
    FunctionEmitter(*out->module, plan, scratch, isa, precision).EmitCombine(name, pass, last && kept_stores);
    out->phases.push_back({name, plan.num_units, combine_ns});
  }
  if (kept_stores && !has_reduce.back()) {
    const std::string name = absl::StrCat(prefix, "_finish");
    FunctionEmitter(*out->module, plan, scratch, isa, precision).EmitCombine(name, -1, true);
    out->phases.push_back({name, plan.num_units, combine_ns});
  }
}

}  // namespace

EmittedKernel EmitKernel(const KernelIR& kernel, const IsaInfo& isa, const std::string& precision, const std::string& prefix) {
  const LoopPlan plan = PlanLoops(kernel, isa);
  const ScratchLayout scratch = LayOutScratch(plan);
  EmittedKernel out;
  out.context = std::make_unique<llvm::LLVMContext>();
  out.module = std::make_unique<llvm::Module>(prefix, *out.context);
  out.scratch_bytes = scratch.bytes;
  if (plan.IsSplit()) {
    EmitSplitPhases(plan, scratch, isa, precision, prefix, &out);
  } else {
    FunctionEmitter(*out.module, plan, scratch, isa, precision).EmitWhole(prefix);
    out.phases.push_back({prefix, plan.num_units, plan.unit_ns});
  }
  return out;
}

}  // namespace lazuli::codegen
