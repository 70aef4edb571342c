// Operators of libraries that may be unloaded (torch.library.Library, dlclose), while traces with them wait.
#pragma once

#include <c10/util/Exception.h>

#include <atomic>
#include <memory>
#include <string>

namespace lazuli::runtime {

// Whether the operator is deregistered: its handle is dangling. Null for LibTorch's, which stay.
using OperatorGone = std::shared_ptr<std::atomic<bool>>;

inline bool IsGone(const OperatorGone& gone) { return gone != nullptr && gone->load(std::memory_order_acquire); }

// Before a call of the operator. Throws c10::Error.
inline void CheckNotGone(const OperatorGone& gone, const std::string& name) {
  TORCH_CHECK(!IsGone(gone), "lazuli: ", name,
              " was recorded, but its library was unloaded before the trace ran. Call lazuli::sync() before you unload it.");
}

}  // namespace lazuli::runtime
