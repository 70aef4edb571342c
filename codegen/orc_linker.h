// Relocatable objects to functions in this process. The only file that knows ORC's sessions and JITLink. Needs no target of LLVM's, so that
// a process that finds all its objects made never pays for one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lazuli::codegen {

// Machine code of one object; freed with this.
class JitCode {
 public:
  virtual ~JitCode() = default;
  // Addresses, in the order in which the names were asked for.
  const std::vector<void*>& addresses() const { return addresses_; }

 protected:
  std::vector<void*> addresses_;
};

// Links `object`, which defines `functions`; what it only refers to is looked up through `resolve`. Names of different objects never
// clash. Thread-safe.
absl::StatusOr<std::shared_ptr<const JitCode>> LinkObject(const std::string& object, const std::vector<std::string>& functions,
                                                          const std::function<void*(const std::string&)>& resolve);

}  // namespace lazuli::codegen
