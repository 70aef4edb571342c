// Dropout on GPUs: its random numbers are taken at once, and drawn where the trace runs.
#pragma once

#include <ATen/core/stack.h>

#include "codegen/ir/op_info.h"
#include "tracer/recorder.h"

namespace lazuli::tracer {

// The call of aten::native_dropout on `stack`, with an input on a GPU, becomes lazuli::_dropout_mask, whose numbers are taken from the
// generator now, so that its state and all that is drawn later are eager's; and aten::native_dropout_backward, which multiplies with a mask
// and a number as the forward kernel does, or two products where that would lie otherwise than the forward kernel's result. Where numbers
// cannot be taken, the mask is LibTorch's own kernel's, run at once on memory without content that lies like the input's. False, with
// `stack` as it was: any other call.
bool RecordDropout(Recorder* recorder, const codegen::OpInfo& info, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace lazuli::tracer
