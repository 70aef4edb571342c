// What is learnt, while the process lives, of operators that are not LibTorch's.
#pragma once

#include <c10/util/Exception.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace lazuli::runtime {

struct OperatorLife {
  // Its library was unloaded (torch.library.Library, dlclose), perhaps while traces with it wait: its handle is dangling.
  std::atomic<bool> gone{false};

  // How an operator was called, as far as it decides what can be seen of its kernel: where autograd is not live, in inference mode, whose
  // tensors count no versions, and where the kernel could make a graph for gradients.
  enum class State : uint8_t { kPlain, kInference, kAutograd };
  // Runs that were watched and showed nothing for which it must not be recorded, by whether they were for a GPU, and state.
  std::atomic<int> clean_runs[2][3] = {};
  std::atomic<int> draws{0};  // Runs in which a generator's state changed, maybe by other threads.
  // What it was seen to do for which it is never recorded; null: nothing.
  std::atomic<const char*> why_eager{nullptr};
};
// Null for LibTorch's and ours, which stay, and are known.
using OperatorLifePtr = std::shared_ptr<OperatorLife>;

inline bool IsGone(const OperatorLifePtr& life) { return life != nullptr && life->gone.load(std::memory_order_acquire); }

// Before a call of the operator. Throws c10::Error.
inline void CheckNotGone(const OperatorLifePtr& life, const std::string& name) {
  TORCH_CHECK(!IsGone(life), "lazuli: ", name,
              " was recorded, but its library was unloaded before the trace ran. Call lazuli::sync() before you unload it.");
}

}  // namespace lazuli::runtime
