// Kernels at the mode's two dispatch keys. The only place that throws to LibTorch.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "codegen/ir/op_info.h"
#include "tracer/eager_call.h"
#include "tracer/recorder.h"

namespace lazuli::tracer {

// Registers a kernel for every operator that LibTorch has, once a process: typed ones for typed_ops.def, the boxed recorder or view
// kernel for the rest; composite operators decompose by themselves.
void RegisterKernels();

// Records `info` with the arguments on `stack`, replacing them by lazy results, or runs it eagerly.
void RecordOrRun(const codegen::OpInfo& info, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// The same for a call of scalar overload `called`, which is recorded as its tensor overload `info`. Run eagerly it is `called` itself,
// whose composite kernel dispatches anew: there may be keys (ZeroTensor) that only the tensor overload heeds.
void RecordTwinOrRun(const codegen::OpInfo& info, const codegen::OpInfo& called, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// The op was recorded up to its outputs' metadata, which nobody knows: runs it eagerly, having undone the recording, and remembers what
// came out under `key`.
void RunAndObserve(Recorder* recorder, const codegen::OpInfo& info, std::vector<codegen::Word> key, c10::DispatchKeySet keys,
                   torch::jit::Stack* stack);

// A kernel: on a GPU the operator's composite kernel, though it has one of its own there (_foreach operators), so that its pieces are
// recorded, and fused again.
void BoxedPieces(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace lazuli::tracer
