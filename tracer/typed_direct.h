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
#include "tracer/above_autograd.h"
#include "tracer/direct_views.h"
#include "tracer/dispatcher.h"
#include "tracer/read_number.h"
#include "tracer/typed_kernel.h"
#include "tracer/visit_tensors.h"

namespace lazuli::tracer {

// ---- Kernels ----------------------------------------------------------------------------------------------------------------------------

// A view is made here, or by ATen's own kernel, which never looks at the data.
template <class Op, class Schema>
struct ViewKernel;
template <class Op, class R, class... A>
struct ViewKernel<Op, R(A...)> {
  static R Call(c10::DispatchKeySet keys, A... args) {
    ViewAdoption adoption;
    (VisitTensors(args, [&](const at::Tensor& tensor) { adoption.Base(tensor); }), ...);
    runtime::Counters::Get().views_recorded.Add();
    if constexpr (std::is_reference_v<R>) {
      const MetadataScope metadata;
      return CallBelowRecorder<Op>(keys, std::forward<A>(args)...);
    } else {
      if constexpr (std::is_same_v<R, at::Tensor>) {
        ViewWindow window;
        if (StartFrom(First(args...), &window) && FindWindow(static_cast<const Op*>(nullptr), &window, args...)) {
          at::Tensor view = MakeView(First(args...), window);
          adoption.View(view);
          return view;
        }
      }
      R views = [&] {
        const MetadataScope metadata;
        return CallBelowRecorder<Op>(keys, std::forward<A>(args)...);
      }();
      VisitTensors(views, [&](const at::Tensor& view) { adoption.View(view); });
      return views;
    }
  }

 private:
  template <class... Rest>
  static const at::Tensor& First(const at::Tensor& self, const Rest&...) {
    return self;
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
      NoteUnrecorded(info);
      bool cut = false;
      VisitOperands<Op>([&](const at::Tensor& tensor, bool writes) { cut |= recorder->NeedsCut(tensor, writes); }, args...);
      if (cut) {
        recorder->Flush(info.name);
        runtime::Counters::Get().CountEagerFallback(info.name);
      } else {
        static runtime::Counter& uncut = runtime::Counters::Get().EagerUncut(info.name);
        uncut.Add();
      }
    }
    if constexpr (std::is_same_v<Op, at::_ops::_local_scalar_dense>) {
      // Another recorder may be about to write it.
      if (!SeveralRecorders()) {
        if (const std::optional<at::Scalar> number = ReadNumber(args...)) return *number;
      }
    }
    R result = RunBelowRecorder<Op>(keys, std::forward<A>(args)...);
    VisitTensors(result, [](const at::Tensor& tensor) { Adopt(tensor.unsafeGetTensorImpl()); });
    return result;
  }
};

// Kernels that run above the recorder are called from below autograd, as LibTorch's own front end calls what makes tensors.
inline bool IsBelowAutograd() {
  return c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutogradOther) && !c10::InferenceMode::is_enabled();
}

// What makes tensors of numbers alone, for the program to fill or of values; BackendSelect would send it past the recorder.
template <class Op, class Schema>
struct FactoryKernel;
template <class Op, class R, class... A>
struct FactoryKernel<Op, R(A...)> {
  static R Call(c10::DispatchKeySet keys, A... args) {
    // A kernel that runs above the recorder (sparse, quantized) writes what it allocates through pointers at once.
    if (InfoOf<Op>().is_allocation && IsBelowAutograd()) return CallBelowRecorder<Op>(keys, std::forward<A>(args)...);
    // Python's modes, tracing and functionalization are between the program and the recorder.
    if (!AreWithin(keys, kPlainKeysOfCalls)) {
      return Op::redispatch(KeysBelowGeneric(keys), std::forward<A>(args)...);
    }
    R result = TypedKernel<Op, R(A...)>::Call(keys, std::forward<A>(args)...);
    // ATen's kernels write what they allocate in place, which counts where nobody has seen to it that it does not.
    const bool counts = !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::ADInplaceOrView) && !c10::InferenceMode::is_enabled();
    if (!InfoOf<Op>().is_allocation && counts && result._version() == 0) result.unsafeGetTensorImpl()->bump_version();
    return result;
  }
};

}  // namespace lazuli::tracer
