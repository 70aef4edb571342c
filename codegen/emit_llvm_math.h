// Transcendental functions of the CPU target: inlined polynomials where there are some (not in precision "strict"), else calls into SLEEF
// (exported by libtorch_cpu, the functions ATen itself calls) a whole vector at a time, or into libm per lane where SLEEF has nothing for
// the type and vector width.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <string>

#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {

class MathEmitter {
 public:
  MathEmitter(llvm::IRBuilder<>& builder, llvm::Module& module, const IsaInfo& isa, std::string precision)
      : builder_(builder), module_(module), isa_(isa), precision_(std::move(precision)) {}

  // `op` of `type` (Float or Double) applied to a scalar or to a vector of any length that is a power of two; `b` is null for unary ops.
  // A lane's result depends on that lane's operands only. `composite` is the instruction's imm.
  llvm::Value* Emit(KOp op, c10::ScalarType type, llvm::Value* a, llvm::Value* b, bool composite);

  // Whether `op` must go through Emit to equal ATen, though the machine has an instruction for it.
  bool NeedsLibrary(KOp op, bool composite) const { return op == KOp::kSqrt && precision_ == "strict" && !composite; }

  // Calls `scalar_name(a[i], b[i])` lane by lane.
  llvm::Value* CallPerLane(const std::string& scalar_name, llvm::Type* result_element, llvm::Value* a, llvm::Value* b);

 private:
  llvm::Value* EmitVml(const char* name, bool is_float, llvm::Value* a);
  llvm::Value* EmitPerLane(const std::string& name, bool is_float, llvm::Value* a, llvm::Value* b);
  llvm::Value* CallNative(const std::string& name, llvm::Value* a, llvm::Value* b);

  llvm::IRBuilder<>& builder_;
  llvm::Module& module_;
  IsaInfo isa_;
  std::string precision_;
};

// ptr(i64 bytes): memory that the calling thread may use until it asks again.
constexpr const char* kRowCacheFunction = "lazuli_row_cache";

// Address of a function that emitted code may call (SLEEF, libm, and the helpers defined here); null when there is none. Thread-safe.
void* ResolveKernelSymbol(const std::string& name);

}  // namespace lazuli::codegen
