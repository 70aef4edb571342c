// Operators that run eagerly: at once, below the recorder, by the kernels that eager mode has for them.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/irange.h>

#include "codegen/ir/op_info.h"
#include "runtime/mode_keys.h"
#include "tracer/recorder.h"
#include "tracer/visit_tensors.h"

namespace lazuli::tracer {

// What is left of `keys` for the kernels below the recorder.
inline c10::DispatchKeySet KeysBelowRecorder(c10::DispatchKeySet keys) {
  return (keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, runtime::kRecorderKey)) - runtime::kModeKeys;
}

// The same for the kernels below the generic key, autograd among them.
inline c10::DispatchKeySet KeysBelowGeneric(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, runtime::kGenericKey);
}

// Whether the op may write its argument `i`: ones that are not LibTorch's do not always say so.
inline bool MayWrite(const codegen::OpInfo& info, size_t i) {
  return (info.mutated_args >> i & 1) != 0 || info.name.rfind("aten::", 0) != 0;
}

// Calls visit(tensor, whether the op may write it) for all of its operands on `stack`. False: there may be more of them.
template <class Visit>
bool VisitOperands(const codegen::OpInfo& info, const torch::jit::Stack& stack, const Visit& visit) {
  bool all = true;
  const auto args = torch::jit::last(stack, info.num_args);
  for (const auto i : c10::irange(args.size())) {
    const bool writes = MayWrite(info, i);
    all &= VisitTensors(args[i], [&](const at::Tensor& tensor) { visit(tensor, writes); });
  }
  return all;
}

// Makes the tensors in `value` settle their storage on access.
void AdoptTensors(const c10::IValue& value);

// Calls the op below the recorder. Keys that hold no backend (no tensor argument) are computed anew.
void CallBelow(const codegen::OpInfo& info, c10::DispatchKeySet keys, torch::jit::Stack* stack);

// Before `info` runs eagerly with the arguments on `stack`: cuts, as `cut` says, if its operands are pending; `reason` goes to the log.
void CutForEagerCall(Recorder* recorder, const codegen::OpInfo& info, const torch::jit::Stack& stack, Cut cut, const char* reason);

// Runs `info` eagerly with the arguments on `stack`, cutting first only when its operands are pending.
// `cut` as for Recorder::Flush.
void RunEagerly(Recorder* recorder, const codegen::OpInfo& info, c10::DispatchKeySet keys, torch::jit::Stack* stack,
                Cut cut = Cut::kGraphBreak);

// A kernel: the same, under the recorder of this thread.
void BoxedEager(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace lazuli::tracer
