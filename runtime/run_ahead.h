// Which steps of a program for a GPU may run while its trace is still recorded, and how what they overwrite is taken back.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/executor.h"
#include "runtime/program.h"

namespace lazuli::runtime {

// Steps run in order, each when the trace has all operators that it or one before it needs; none from the first one on that overwrites more
// than can be saved.
class AheadSteps {
 public:
  explicit AheadSteps(const ProgramSpec& spec);

  // So many operators are needed to run more than the first `done` steps; Program::kNever: that is all, or the options want none.
  size_t NextAt(size_t done) const;
  // The same for the last of them; 0 where there is none.
  size_t LastAt() const { return needed_.empty() ? 0 : needed_.back(); }
  // So many steps, whole batches, can run with `num_ops` operators.
  size_t NumberFor(size_t num_ops) const;

 private:
  bool on_gpu_ = false;         // Some steps are.
  std::vector<size_t> needed_;  // By step: operators that it, its batch and all before it need.
};

// Small memories as they were before they were overwritten.
class SavedMemory {
 public:
  // Saves `nbytes` from `memory` on, unless that was done before: on a GPU in the order of the thread's current stream of `device`. Throws
  // c10::Error, also where there is no memory for it.
  void Save(void* memory, size_t nbytes, c10::Device device);
  // Writes all of it back, in the same order, and forgets it.
  void Restore();
  void Forget() { saved_.clear(); }

 private:
  struct Saved {
    void* memory = nullptr;
    size_t nbytes = 0;
    at::DataPtr copy;
  };
  std::vector<Saved> saved_;
};

}  // namespace lazuli::runtime
