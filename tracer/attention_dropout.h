// Attention with dropout on GPUs: its random numbers are taken at once, and drawn where the trace runs.
#pragma once

#include <ATen/core/stack.h>

#include <string>

#include "codegen/ir/op_info.h"
#include "tracer/recorder.h"

namespace lazuli::tracer {

// The call of one of LibTorch's attention kernels on `stack`, with a probability of dropout above 0, is recorded as the operator of ours
// that calls the same kernel with numbers that are taken from the generator now, so that its state and all that is drawn later are eager's.
// How many a kernel takes is known for this LibTorch, and believed once it was seen: the first call of each kernel runs eagerly. False,
// with `stack` as it was: any other call, or numbers cannot be taken.
bool RecordAttentionDropout(Recorder* recorder, const codegen::OpInfo& info, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// The operator of ours for LibTorch's `kernel` ("_scaled_dot_product_flash_attention"): its last two arguments say where the numbers begin.
std::string AttentionWithDropout(const char* kernel);

}  // namespace lazuli::tracer
