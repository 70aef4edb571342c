// Operators that are not LibTorch's, with kernels for meta tensors, so that they may be recorded: what their schemas do not say.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "codegen/ir/op_info.h"
#include "tracer/recorder.h"

namespace lazuli::tracer {

// Runs the operator eagerly if it is one that must not be recorded, with the arguments on `stack`. False: it may be, and nothing was done.
//
// - The first two times it comes, on each kind of device, to see what else it does. One that keeps what it was called with (a cache, a log,
//   a queue), or goes on holding what it returned, would, in a trace, keep memory that the program uses again, and do so too late. One that
//   writes operands that its schema does not name, by LibTorch's operators, or draws random numbers without its tag, would do so too late;
//   one whose kernel for meta tensors foretells other results, that returns an operand, counts versions or computes gradients itself would
//   do something else. How large the results are of one whose kernel says nothing may depend on what is in the operands. They are never
//   recorded.
// - Where autograd or autocast follow what its kernel calls, since it has no kernel for them: recorded as one operator, it would have no
//   gradient.
bool RunOwnOperator(Recorder* recorder, const codegen::OpInfo& info, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// Kernels of `op` were registered, or there are some. Where it is not LibTorch's, and has both a composite kernel and one of a device,
// which takes its place there, so that it does in a mode, too: LibTorch would put the composite kernel in the place of the recorder's.
// Thread-safe.
void NoteOwnKernels(const c10::OperatorHandle& op);

}  // namespace lazuli::tracer
