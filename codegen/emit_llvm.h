// A kernel as an LLVM module.
#pragma once

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <memory>
#include <string>
#include <vector>

#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {

// One function of the module, run over its units before the next function starts.
struct KernelPhase {
  // void(void** buffers, uint64_t* scalars, int64_t* symbols, int64_t unit_begin, int64_t unit_end, void* scratch)
  std::string function;
  UnitCount units;
  double unit_ns = 0;  // Estimated.
};

struct EmittedKernel {
  std::unique_ptr<llvm::LLVMContext> context;  // Before the module, which must die first.
  std::unique_ptr<llvm::Module> module;
  std::vector<KernelPhase> phases;
  ScratchSize scratch;
};

// `kernel` must verify and have no kept dimension of size 0. Function names start with `prefix`.
EmittedKernel EmitKernel(const KernelIR& kernel, const IsaInfo& isa, const std::string& precision, const std::string& prefix);

}  // namespace lazuli::codegen
