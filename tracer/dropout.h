// Dropout on GPUs: its mask is drawn at once, and the product with it is recorded.
#pragma once

#include <ATen/core/stack.h>

#include "codegen/ir/op_info.h"
#include "tracer/recorder.h"

namespace lazuli::tracer {

// The call of aten::native_dropout on `stack`, with an input on a GPU, becomes a mask and aten::native_dropout_backward, which multiplies
// with a mask and a number as the forward kernel does, or two products where that would lie otherwise than the forward kernel's result. The
// mask comes from LibTorch's own kernel, run on memory without content that lies like the input's, so that it and the generator's state are
// eager's. False, with `stack` as it was: any other call.
bool RecordDropout(Recorder* recorder, const codegen::OpInfo& info, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace lazuli::tracer
