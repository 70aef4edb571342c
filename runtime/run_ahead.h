// Which steps of a program for a GPU may run while its trace is still recorded, and how what they overwrite is taken back.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/executor.h"
#include "runtime/program.h"
#include "runtime/step_args.h"

namespace lazuli::runtime {

// Steps run in order, each when it is known what it and those before it take of the trace; one that overwrites inputs not before that is
// recorded, and none from the first one on that overwrites more than can be saved.
class AheadSteps {
 public:
  explicit AheadSteps(const ProgramSpec& spec);

  // So many steps may run ahead; 0 where the options want none.
  size_t size() const;
  // The same where they want all.
  size_t most() const { return needs_.size(); }
  // With so many operators of the trace all of them can, whatever is known beforehand.
  size_t LastAt() const { return last_at_; }
  // `count` steps from `first` on need so many operators of the trace, by what is known of it. 0: they can run.
  size_t NeededBy(size_t first, size_t count, const PartialArgs& args) const;

 private:
  const ProgramSpec& spec_;
  bool on_gpu_ = false;           // Some steps are.
  std::vector<StepNeeds> needs_;  // By step.
  size_t last_at_ = 0;
};

// Small memories as they were before they were overwritten.
class SavedMemory {
 public:
  struct Piece {
    void* memory = nullptr;
    size_t nbytes = 0;
  };

  // Saves `pieces`, but for those that were saved before: on a GPU in the order of the thread's current stream of `device`, and many of
  // them by one launch. Throws c10::Error, also where there is no memory for it.
  void Save(std::vector<Piece> pieces, c10::Device device);
  // Writes all of it back, in the same order, and forgets it.
  void Restore();
  void Forget();

 private:
  struct Saved {
    Piece piece;
    void* copy = nullptr;
    c10::Device device = c10::kCPU;
  };
  std::vector<Saved> saved_;
  std::vector<at::DataPtr> copies_;  // That hold them.
};

}  // namespace lazuli::runtime
