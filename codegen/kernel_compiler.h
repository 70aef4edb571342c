// Compiles a KernelIR to machine code for this CPU. Hides LLVM: no LLVM type leaves codegen's .cpp files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "codegen/kernel_ir.h"

namespace lazuli::codegen {

// A kernel ready to run. Immutable and thread-safe; keeps its code alive.
class CompiledKernel {
 public:
  virtual ~CompiledKernel() = default;
  // Runs the whole domain, splitting it with at::parallel_for where that pays. `buffers`: one pointer per KernelIR::buffers entry,
  // offsets applied; `scalars`: KernelIR::num_scalars 64-bit slots; `symbols`: a value for each of KernelIR::symbols.
  virtual void Run(void* const* buffers, const uint64_t* scalars, const int64_t* symbols = nullptr) const = 0;
};

struct KernelTarget {
  std::string isa;        // "avx512", "avx2" or "sse4": the widest to use, capped by the CPU's own.
  std::string precision;  // "eager", "strict" or "fast".
};

// Compiles, or returns the kernel compiled before for the same canonical form and target. Thread-safe.
// `compiled` (may be null) tells whether machine code was made by this call.
absl::StatusOr<std::shared_ptr<const CompiledKernel>> CompileKernel(const KernelIR& kernel, const KernelTarget& target, bool* compiled);

// LLVM IR and assembly of a kernel, for LAZULI_DUMP and LAZULI_LOGS=output_code.
absl::StatusOr<std::string> KernelLlvmIr(const KernelIR& kernel, const KernelTarget& target);

}  // namespace lazuli::codegen
