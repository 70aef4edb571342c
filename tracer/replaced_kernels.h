// Operators of LibTorch's of which the program has put kernels of its own in place of LibTorch's (codegen/ir/replaced_kernels.h): they run
// eagerly, by these.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>

namespace lazuli::tracer {

// A kernel for the recorder's key: runs the operator at once, as a whole, on memory of its own.
void RunReplaced(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// Calls of `called` are recorded as `op`, which they are pieces of where that is replaced.
void NoteTwin(const std::string& op, const std::string& called);

// Whether this comes to pass while there are modes: the operator's kernels of ours go, from now on. `key` is that of a new kernel.
void NoteRegistered(const c10::OperatorName& name, std::optional<c10::DispatchKey> key);

}  // namespace lazuli::tracer
