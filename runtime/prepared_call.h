// An ATen call of a program, made ready: its arguments are built once, and only what changes from run to run is refreshed.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "runtime/executor.h"
#include "runtime/program_memory.h"

namespace lazuli::runtime {

class PreparedCall {
 public:
  // Builds the arguments of `call` over `memory`'s storages; both must outlive this.
  void Prepare(const AtenCall& call, ProgramMemory* memory);
  // The sizes that `call` holds have changed. Does nothing before Prepare.
  void Resize(ProgramMemory* memory);
  // This run's numbers and offsets, by slot.
  void Patch(absl::Span<const uint64_t> scalars, absl::Span<const int64_t> offsets);

  const AtenCall& call() const { return *call_; }
  const torch::jit::Stack& arguments() const { return arguments_; }
  // The arguments for a call that may change the lists among them.
  void CopyArguments(torch::jit::Stack* stack) const;

 private:
  struct ScalarPatch {
    int position;
    int32_t slot;
    c10::ScalarType type;
    bool as_tensor;
  };
  struct OffsetPatch {
    c10::TensorImpl* tensor;
    int32_t slot;
  };

  at::Tensor Window(const WindowSpec& window, ProgramMemory* memory);
  at::Tensor MakeWindow(const WindowSpec& window, ProgramMemory* memory);

  const AtenCall* call_ = nullptr;
  torch::jit::Stack arguments_;
  std::vector<ScalarPatch> scalars_;
  std::vector<OffsetPatch> offsets_;
  std::vector<int> lists_;  // Positions of tensor lists.
  absl::InlinedVector<std::pair<const WindowSpec*, at::Tensor>, 4> windows_;
  std::vector<std::pair<const WindowSpec*, const WindowSpec*>> equal_;  // Windows, and those of windows_ whose tensor stands for them.
};

}  // namespace lazuli::runtime
