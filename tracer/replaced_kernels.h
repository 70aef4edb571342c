// Operators of LibTorch's of which the program has put kernels of its own in place of LibTorch's (codegen/ir/replaced_kernels.h): they run
// eagerly, by these.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>

namespace lazuli::tracer {

// Calls of `called` are recorded as `op`, its twin: one of the pieces that eager mode makes them of.
void NoteTwin(const std::string& op, const std::string& called);

// A kernel was registered at `key` while there are modes. Where it takes the place of one of LibTorch's, the operator's kernels of ours,
// and its twins', go. Thread-safe.
void NoteRegistered(const c10::OperatorName& name, std::optional<c10::DispatchKey> key);

}  // namespace lazuli::tracer
