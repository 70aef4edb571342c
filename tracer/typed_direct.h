// Unboxed kernels that record nothing: views, operators that are always eager, and allocations called from below autograd.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/counters.h"
#include "runtime/mode_keys.h"
#include "tracer/dispatcher.h"
#include "tracer/typed_kernel.h"

namespace lazuli::tracer {

// ---- Visiting the tensors among a schema's C++ arguments and results --------------------------------------------------------------------

template <class Visit>
void VisitTensors(const at::Tensor& value, const Visit& visit) {
  if (value.defined()) visit(value);
}
template <class Visit>
void VisitTensors(const std::optional<at::Tensor>& value, const Visit& visit) {
  if (value.has_value()) VisitTensors(*value, visit);
}
template <class Visit>
void VisitTensors(at::TensorList value, const Visit& visit) {
  for (const at::Tensor& tensor : value) VisitTensors(tensor, visit);
}
template <class Visit>
void VisitTensors(const std::vector<at::Tensor>& value, const Visit& visit) {
  VisitTensors(at::TensorList(value), visit);
}
template <class Visit, class... T>
void VisitTensors(const std::tuple<T...>& value, const Visit& visit) {
  std::apply([&visit](const auto&... items) { (VisitTensors(items, visit), ...); }, value);
}
template <class T>
struct HoldsNoTensor : std::disjunction<std::is_arithmetic<T>, std::is_enum<T>> {};
template <>
struct HoldsNoTensor<c10::SymInt> : std::true_type {};
template <>
struct HoldsNoTensor<at::Scalar> : std::true_type {};
template <>
struct HoldsNoTensor<at::Device> : std::true_type {};
template <>
struct HoldsNoTensor<at::IntArrayRef> : std::true_type {};
template <>
struct HoldsNoTensor<c10::SymIntArrayRef> : std::true_type {};
template <class T>
struct HoldsNoTensor<std::optional<T>> : HoldsNoTensor<T> {};
template <>
struct HoldsNoTensor<std::optional<at::Generator>> : std::true_type {};
template <class T, class Visit>
std::enable_if_t<HoldsNoTensor<T>::value> VisitTensors(const T&, const Visit&) {}

// ---- Kernels ----------------------------------------------------------------------------------------------------------------------------

// ATen's own view kernels compute a view, and never look at the data.
template <class Op, class Schema>
struct ViewKernel;
template <class Op, class R, class... A>
struct ViewKernel<Op, R(A...)> {
  static R Call(c10::DispatchKeySet keys, A... args) {
    const auto adopt = [](const at::Tensor& tensor) { Adopt(tensor.unsafeGetTensorImpl()); };
    // The base too: a write through the view leaves it pending.
    (VisitTensors(args, adopt), ...);
    runtime::Counters::Get().views_recorded.Add();
    if constexpr (std::is_reference_v<R>) {
      const MetadataScope metadata;
      return CallBelowRecorder<Op>(keys, std::forward<A>(args)...);
    } else {
      R views = [&] {
        const MetadataScope metadata;
        return CallBelowRecorder<Op>(keys, std::forward<A>(args)...);
      }();
      VisitTensors(views, adopt);
      return views;
    }
  }
};

// Runs at once, after a cut if some operand is pending.
template <class Op, class Schema>
struct EagerKernel;
template <class Op, class R, class... A>
struct EagerKernel<Op, R(A...)> {
  static R Call(c10::DispatchKeySet keys, A... args) {
    if (Recorder* recorder = Recorder::Current()) {
      const codegen::OpInfo& info = InfoOf<Op>();
      bool cut = false;
      int arg = 0;
      const auto visit = [&](const auto& value) {
        const bool writes = (info.mutated_args >> arg++ & 1) != 0;
        VisitTensors(value, [&](const at::Tensor& tensor) { cut |= recorder->NeedsCut(tensor, writes); });
      };
      (visit(args), ...);
      if (cut) {
        recorder->Flush(info.name);
        runtime::Counters::Get().CountEagerFallback(info.name);
      } else {
        static runtime::Counter& uncut = runtime::Counters::Get().EagerUncut(info.name);
        uncut.Add();
      }
    }
    return CallBelowRecorder<Op>(keys, std::forward<A>(args)...);
  }
};

// A kernel that runs above the recorder (sparse, quantized) writes what it allocates through pointers at once. It is called from below
// autograd, unlike the program.
inline bool IsBelowAutograd() {
  return c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutogradOther) && !c10::InferenceMode::is_enabled();
}

template <class Op, class Schema>
struct AllocationKernel;
template <class Op, class R, class... A>
struct AllocationKernel<Op, R(A...)> {
  static R Call(c10::DispatchKeySet keys, A... args) {
    if (IsBelowAutograd()) return CallBelowRecorder<Op>(keys, std::forward<A>(args)...);
    return TypedKernel<Op, R(A...)>::Call(keys, std::forward<A>(args)...);
  }
};

}  // namespace lazuli::tracer
