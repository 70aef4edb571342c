#include "tracer/eager_call.h"

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include <optional>

#include "runtime/counters.h"
#include "runtime/cuda_driver.h"
#include "tracer/captured_memory.h"
#include "tracer/composite.h"
#include "tracer/lazy_tensor.h"
#include "tracer/shared_storages.h"
#include "tracer/step_aside.h"

namespace lazuli::tracer {

using codegen::OpInfo;
using runtime::Counters;

namespace {

// Whether it lays its tensor over a Storage of the program's, who goes on holding it.
bool TakesStorage(const OpInfo& info) {
  static const OpInfo* const whole = codegen::FindOpInfo("aten::set_.source_Storage");
  static const OpInfo* const window = codegen::FindOpInfo("aten::set_.source_Storage_storage_offset");
  return &info == whole || &info == window;
}

// Whether this call makes a copy without content, as forward mode asks for one of an operand whose tangent is zero.
bool CopiesToMeta(const OpInfo& info, const torch::jit::Stack& stack) {
  static const OpInfo* const copy = codegen::FindOpInfo("aten::_to_copy");
  constexpr size_t kDevice = 3;
  if (&info != copy) return false;
  const c10::IValue& device = torch::jit::last(stack, static_cast<size_t>(info.num_args))[kDevice];
  return device.isDevice() && device.toDevice().is_meta();
}

}  // namespace

void AdoptTensors(const c10::IValue& value) {
  if (value.isTensor() || value.isTensorList()) VisitTensors(value, [](const at::Tensor& tensor) { Adopt(tensor.unsafeGetTensorImpl()); });
}

void CallBelow(const OpInfo& info, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  OperandsInUse operands(Recorder::Current());
  if (SeveralRecorders()) {
    VisitOperands(info, *stack, [&](const at::Tensor& tensor, bool writes) { operands.Add(tensor, writes); });
    operands.Settle();
  }
  const bool captured = IsBeingCaptured(keys);
  std::optional<runtime::AnyCaptures> any;
  if (captured) {
    any.emplace();
    RunWhatCameBeforeCapture();
    VisitOperands(info, *stack, [](const at::Tensor& tensor, bool /*writes*/) { NoteCaptured(tensor); });
  }
  c10::SmallVector<at::Tensor, 2> written;  // And perhaps not returned: batch norm's running statistics.
  const auto note = [&written](const at::Tensor& tensor, bool writes) {
    if (writes) written.push_back(tensor);
  };
  if (info.mutated_args != 0) VisitOperands(info, *stack, note);
  const c10::impl::ExcludeDispatchKeyGuard exclude(runtime::kModeKeys);
  const auto below = KeysBelowRecorder(keys);
  if (info.is_factory || below.empty()) {
    info.handle.callBoxed(stack);
  } else {
    info.handle.redispatchBoxed(below, stack);
  }
  if (captured || info.is_factory) {  // A factory's keys do not tell its device.
    const auto note_result = [captured](const at::Tensor& tensor) {
      if (captured || IsBeingCaptured(tensor.key_set())) NoteCaptured(tensor);
    };
    for (const c10::IValue& result : torch::jit::last(*stack, static_cast<size_t>(info.num_returns))) VisitTensors(result, note_result);
  }
  // Pointers are taken from these, too, while what is recorded reads or writes their memory.
  if (TakesStorage(info)) {
    Disown(stack->back().toTensor().unsafeGetTensorImpl());
  } else {
    for (const c10::IValue& result : torch::jit::last(*stack, static_cast<size_t>(info.num_returns))) AdoptTensors(result);
    for (const at::Tensor& tensor : written) Adopt(tensor.unsafeGetTensorImpl());
  }
}

void CutForEagerCall(Recorder* recorder, const OpInfo& info, const torch::jit::Stack& stack, Cut cut, const char* reason) {
  if (recorder == nullptr) return;
  NoteEagerWork();
  bool needs_cut = false;
  const auto visit = [&](const at::Tensor& tensor, bool writes) { needs_cut |= recorder->NeedsCut(tensor, writes); };
  if (!CopiesToMeta(info, stack) && (!VisitOperands(info, stack, visit) || needs_cut)) {
    recorder->Flush(info.name, cut);
    Counters::Get().CountEagerFallback(info.name, 1, reason);
  } else {
    Counters::Get().EagerUncut(info.name).Add();
  }
}

void RunEagerly(Recorder* recorder, const OpInfo& info, c10::DispatchKeySet keys, torch::jit::Stack* stack, Cut cut) {
  const bool observed = cut == Cut::kTransient;
  CutForEagerCall(recorder, info, *stack, cut, observed ? "ran once to learn the shapes of its results" : "cannot be recorded");
  CallBelow(info, keys, stack);
}

void BoxedEager(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  RunEagerly(Recorder::Current(), codegen::GetOpInfo(op), keys, stack);
}

}  // namespace lazuli::tracer
