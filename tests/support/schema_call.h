// One call, made for real: its arguments on a stack, and all that can be seen of it afterwards.
#pragma once

#include <string>
#include <vector>

#include "tests/support/schema_case.h"
#include "tests/support/tensor_diff.h"

namespace lazuli::testing {

struct CallOutcome {
  std::string error;       // Type and message; empty when nothing was thrown.
  bool late = false;       // Thrown after the operator had returned.
  Tensors tensors;         // Results, what was computed from them, arguments. Empty after a late error.
  size_t num_results = 0;  // Of `tensors`, the operator's own.
  bool has_gradients = false;
  std::string rest;  // Results that are no tensors, and version counters of the arguments.
};

// The arguments over `storages`, which are used as they are; pending ones are made from copies.
torch::jit::Stack MakeStack(const CallPlan& plan, const Tensors& storages, int round);

// The call, then what a program might do next: use the results, write over the arguments. Work is settled at the end.
CallOutcome Call(const CallPlan& plan, const Tensors& storages, int round);

// The same with gradients: of a weighted sum of the results in every float argument.
CallOutcome CallBackward(const CallPlan& plan, const Tensors& storages, int round);

// The first difference, or "". Values of tensors with a true member of `unstable` are not looked at.
std::string DiffOutcomes(const CallOutcome& expected, const CallOutcome& actual, bool exact, const std::vector<bool>& unstable);

// Which tensors differ between two runs of the same call.
std::vector<bool> UnstableTensors(const CallOutcome& a, const CallOutcome& b);

// Memory of new CPU tensors is filled with this byte from now on.
void FillNewMemory(int byte);

}  // namespace lazuli::testing
