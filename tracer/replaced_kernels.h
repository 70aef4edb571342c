// Operators of LibTorch's of which the program has put kernels of its own in place of LibTorch's (codegen/ir/replaced_kernels.h): they run
// eagerly, by these.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>

namespace lazuli::tracer {

// Calls of `called` are recorded as `op`, its twin: one of the pieces that eager mode makes them of.
void NoteTwin(const std::string& op, const std::string& called);

// Whether a kernel that is registered at `key` may take the place of one of LibTorch's, by which what was recorded before is to be run.
bool MayReplace(const c10::OperatorName& name, std::optional<c10::DispatchKey> key);
// One was registered, while there are modes. Where it takes the place of one of LibTorch's, the operator's kernels of ours, and its twins',
// go, and stay away. Thread-safe.
void NoteRegistered(const c10::OperatorName& name, std::optional<c10::DispatchKey> key);
// Whether that has happened to a device's kernel of the operator `name`.
bool WasReplaced(const std::string& name);

}  // namespace lazuli::tracer
