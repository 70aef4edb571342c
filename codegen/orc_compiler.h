// LLVM modules to machine code in this process. The only file that knows ORC.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace llvm {
class LLVMContext;
class Module;
}  // namespace llvm

namespace lazuli::codegen {

enum class Isa : uint8_t { kSse4, kAvx2, kAvx512 };

// The widest that this CPU has.
Isa HostIsa();

// Machine code of one module; freed with the object.
class JitCode {
 public:
  virtual ~JitCode() = default;
  // Addresses, in the order in which the names were asked for.
  const std::vector<void*>& addresses() const { return addresses_; }

 protected:
  std::vector<void*> addresses_;
};

// Optimises, compiles and links `module`, using no instruction beyond `isa`. `functions` are defined in the module; functions it only
// declares are looked up through `resolve`. Thread-safe, for modules with contexts of their own.
absl::StatusOr<std::shared_ptr<const JitCode>> CompileModule(llvm::Module& module, Isa isa, const std::vector<std::string>& functions,
                                                             const std::function<void*(const std::string&)>& resolve);

// Optimised LLVM IR and assembly of `module`.
absl::StatusOr<std::string> ModuleText(llvm::Module& module, Isa isa);

}  // namespace lazuli::codegen
