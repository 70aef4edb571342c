// Runs trace ops through the dispatcher, one by one: eager replay, the fallback, and the oracle of tests.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <memory>

#include "codegen/ir/trace.h"
#include "runtime/default_dtype.h"
#include "runtime/program.h"

namespace lazuli::codegen {

// The IValue for run-time scalar `bits` of type `type` at an argument of schema type `arg_type`: a Scalar, a double, or, where the schema
// says Tensor, a wrapped 0-dim tensor.
c10::IValue ScalarIValue(c10::ScalarType type, uint64_t bits, const c10::Type& arg_type);

// A tensor over `storage` with `ref`'s window, `offset` elements in. Shares memory; has no autograd state.
at::Tensor MakeWindow(const TensorRef& ref, c10::Storage storage, int64_t offset);

// Makes `stack` hold `op`'s arguments. `window` gives the tensor for each operand.
template <class WindowFn>
void PushTraceArgs(const TraceOp& op, const uint64_t* scalars, const WindowFn& window, torch::jit::Stack* stack);

// Calls the operator with them: `stack` then holds its results.
template <class WindowFn>
void CallTraceOp(const TraceOp& op, const uint64_t* scalars, const WindowFn& window, torch::jit::Stack* stack);

// A program that replays `trace` op by op in program order, exactly as eager mode would have.
std::unique_ptr<runtime::Program> MakeReplay(Trace trace);

// ---- Implementation of the template -------------------------------------------------------------------------------------------------

// The IValue for an argument that holds tensors, following the schema's list type.
c10::IValue TensorListIValue(const std::vector<at::Tensor>& tensors, const c10::Type& type);

template <class WindowFn>
void PushTraceArgs(const TraceOp& op, const uint64_t* scalars, const WindowFn& window, torch::jit::Stack* stack) {
  const auto& arguments = op.info->schema().arguments();
  stack->clear();
  for (size_t i = 0; i < op.args.size(); ++i) {
    const TraceArg& arg = op.args[i];
    switch (arg.kind) {
      case TraceArg::Kind::kConst:
        stack->push_back(arg.value);
        break;
      case TraceArg::Kind::kScalar:
        stack->push_back(ScalarIValue(arg.scalar_type, scalars[arg.slot], *arguments[i].type()));
        break;
      case TraceArg::Kind::kTensor:
        stack->emplace_back(arg.tensors[0].defined() ? window(arg.tensors[0]) : at::Tensor());
        break;
      case TraceArg::Kind::kTensorList: {
        std::vector<at::Tensor> tensors;
        tensors.reserve(arg.tensors.size());
        for (const auto& ref : arg.tensors) tensors.push_back(ref.defined() ? window(ref) : at::Tensor());
        stack->push_back(TensorListIValue(tensors, *arguments[i].type()));
        break;
      }
    }
  }
}

template <class WindowFn>
void CallTraceOp(const TraceOp& op, const uint64_t* scalars, const WindowFn& window, torch::jit::Stack* stack) {
  PushTraceArgs(op, scalars, window, stack);
  const runtime::DefaultDtypeScope dtype(op.default_dtype);
  runtime::CheckNotGone(op.info->life, op.info->name);
  op.info->handle.callBoxed(stack);
}

}  // namespace lazuli::codegen
