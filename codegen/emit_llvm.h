// A kernel as an LLVM module.
#pragma once

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <memory>
#include <string>
#include <vector>

#include "codegen/emit_llvm_function.h"
#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {

// One function of the module, run over its units before the next function starts.
struct KernelPhase {
  enum class Kind : uint8_t { kWhole, kSplitPass, kCombine };

  // void(void** buffers, uint64_t* scalars, int64_t* symbols, int64_t unit_begin, int64_t unit_end, void* scratch)
  std::string function;
  UnitCount units;
  double unit_ns = 0;  // Estimated.
  Kind kind = Kind::kWhole;
  int pass = -1;  // -1 in a kCombine that only stores.
  bool stores = false;
  int min_threads = 1;  // With fewer, one thread is as fast.
};

// What there is to know of a kernel's functions without emitting them: enough to run code that was emitted before.
struct PlannedKernel {
  LoopPlan plan;
  ScratchSize scratch;
  std::vector<KernelPhase> phases;
};

// `kernel` must verify and have no kept dimension of size 0. Function names start with `prefix`.
PlannedKernel PlanKernel(const KernelIR& kernel, const IsaInfo& isa, const std::string& prefix, const Schedule& schedule = {});

struct EmittedKernel {
  std::unique_ptr<llvm::LLVMContext> context;  // Before the module, which must die first.
  std::unique_ptr<llvm::Module> module;
};

// The functions of all phases.
EmittedKernel EmitKernel(const PlannedKernel& planned, const IsaInfo& isa, const std::string& precision);

}  // namespace lazuli::codegen
