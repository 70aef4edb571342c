// What is learnt, while the process lives, of operators that are not LibTorch's.
#pragma once

#include <c10/util/Exception.h>

#include <atomic>
#include <memory>
#include <string>

namespace lazuli::runtime {

struct OperatorLife {
  // Its library was unloaded (torch.library.Library, dlclose), perhaps while traces with it wait: its handle is dangling.
  std::atomic<bool> gone{false};
  // Whether it has run under a mode, and where its kernel could make a graph for gradients; and what it was then seen to do for which it is
  // never recorded. Null: nothing.
  std::atomic<bool> has_run{false};
  std::atomic<bool> has_run_with_autograd{false};
  std::atomic<const char*> why_eager{nullptr};
};
// Null for LibTorch's, which stay, and keep nothing.
using OperatorLifePtr = std::shared_ptr<OperatorLife>;

inline bool IsGone(const OperatorLifePtr& life) { return life != nullptr && life->gone.load(std::memory_order_acquire); }

// Before a call of the operator. Throws c10::Error.
inline void CheckNotGone(const OperatorLifePtr& life, const std::string& name) {
  TORCH_CHECK(!IsGone(life), "lazuli: ", name,
              " was recorded, but its library was unloaded before the trace ran. Call lazuli::sync() before you unload it.");
}

}  // namespace lazuli::runtime
