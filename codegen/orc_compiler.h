// LLVM modules to machine code, as relocatable objects.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace llvm {
class LLVMContext;
class Module;
}  // namespace llvm

namespace lazuli::codegen {

enum class Isa : uint8_t { kSse4, kAvx2, kAvx512 };

// The widest that this CPU has.
Isa HostIsa();

// "sapphirerapids".
std::string HostCpuName();

// Optimises and compiles `module`, using no instruction beyond `isa`, into a relocatable object. Thread-safe, for modules with contexts of
// their own.
absl::StatusOr<std::string> CompileObject(llvm::Module& module, Isa isa);

// Optimised LLVM IR and assembly of `module`.
absl::StatusOr<std::string> ModuleText(llvm::Module& module, Isa isa);

}  // namespace lazuli::codegen
