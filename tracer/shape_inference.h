// Output metadata of an op without running it: its Meta kernel, a shape function, or what was observed when it ran.
#pragma once

#include <ATen/core/stack.h>

#include <optional>

#include "codegen/ir/op_info.h"
#include "codegen/ir/trace_log.h"

namespace lazuli::tracer {

// Runs `info`'s Meta kernel, or its shape function (shape_functions.h), on stand-ins for `args`, for results on `device`. None when there
// is neither or it throws: eager execution then gives either the shapes or the error, in its own words.
std::optional<codegen::OutputMetas> InferShapes(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args,
                                                c10::Device device = c10::kCPU);

// Whether the operator's kernel is known to take operands of these dtypes: from its row in op.def, from a shape function that knows,
// because they are float or double, or because it did before. Kernels reject dtypes that Meta kernels accept, and only running tells which.
bool TakesDtypes(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args, const codegen::OutputMetas& outputs,
                 c10::Device device = c10::kCPU);

// `info` ran on operands of the dtypes of `args` and returned `results`.
void RememberDtypes(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args, c10::ArrayRef<c10::IValue> results,
                    c10::Device device = c10::kCPU);

// The metadata of results that ran eagerly; none when they are not fresh dense tensors on `device`, or numbers on the CPU (an alias of an
// argument).
std::optional<codegen::OutputMetas> Observe(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args,
                                            c10::ArrayRef<c10::IValue> results, c10::Device device = c10::kCPU);

// `info` gave results of this metadata on `device`. Where its shape function, made after the CPU's kernels, would have said the same, it is
// asked from now on for operands of these dtypes there, too.
void NoteForetold(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args, const codegen::OutputMetas& observed, c10::Device device);

// `info` gave results that Observe cannot describe, whatever InferShapes would have said (a solver's conjugate, which is one by a bit):
// from now on it says nothing of operands of these dtypes and choices.
void NoteUnforeseen(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args, c10::Device device);

}  // namespace lazuli::tracer
