// Operators' kernels for meta tensors, which say what sizes the results have.
//
// A Python process registers functions of its own in place of most of LibTorch's: slow ones, which would wait for the interpreter's lock
// while others wait for the recorder's. The dispatcher keeps what they took the place of, and that is what is called here.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace lazuli::tracer {

// Runs `op`'s kernel for meta tensors on `stack`. False, and nothing happened, where none is known that runs without Python. What the
// kernel throws goes on.
bool CallMetaKernel(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace lazuli::tracer
