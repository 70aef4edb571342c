// Unboxed kernels at the generic key, above autograd: a call that autograd has nothing to do with is recorded there and then, which saves a
// dispatch and autograd's own look at the arguments. All else goes on to autograd, and comes to the recorder's key.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <type_traits>
#include <utility>

#include "runtime/mode_keys.h"
#include "tracer/typed_kernel.h"
#include "tracer/visit_tensors.h"

namespace lazuli::tracer {

// The keys of dense tensors, with nothing (autocast, functorch, Python, a conjugate bit) between the program and the recorder but autograd.
constexpr c10::DispatchKeySet kPlainKeys =
    c10::DispatchKeySet({c10::DispatchKey::CPU, c10::DispatchKey::CUDA, c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutogradCUDA,
                         c10::DispatchKey::ADInplaceOrView}) |
    runtime::kModeKeys;

// The same as the thread's state has them, which sends calls that make tensors by way of BackendSelect.
constexpr c10::DispatchKeySet kPlainKeysOfCalls = kPlainKeys | c10::DispatchKeySet(c10::DispatchKey::BackendSelect);

inline bool AreWithin(c10::DispatchKeySet keys, c10::DispatchKeySet all) { return (keys.raw_repr() & ~all.raw_repr()) == 0; }

// Whether autograd would note something about `tensor` as an operand: for a gradient, or forward mode's tangent.
inline bool ConcernsAutograd(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->autograd_meta() == nullptr) return false;
  return (c10::GradMode::is_enabled() && impl->requires_grad()) || impl->_fw_grad(/*level=*/0, tensor).defined();
}

template <class... A>
bool ConcernAutograd(const A&... args) {
  bool concerns = false;
  (VisitTensors(args, [&](const at::Tensor& tensor) { concerns = concerns || ConcernsAutograd(tensor); }), ...);
  return concerns;
}

// Functional operators, and those that write their first argument and return it.
template <class Schema>
struct GoesPastAutograd;
template <class R, class... A>
struct GoesPastAutograd<R(A...)> : std::bool_constant<!std::is_reference_v<R>> {};
template <class... A>
struct GoesPastAutograd<at::Tensor&(at::Tensor&, A...)> : std::true_type {};

// `Kernel` is the operator's kernel at the recorder's key.
template <class Called, class Schema, class Kernel>
struct AboveAutogradKernel;
template <class Called, class R, class... A, class Kernel>
struct AboveAutogradKernel<Called, R(A...), Kernel> {
  static R Call(c10::DispatchKeySet keys, A... args) {
    if (!AreWithin(keys, kPlainKeys) || ConcernAutograd(args...)) {
      return Called::redispatch(KeysBelowGeneric(keys), std::forward<A>(args)...);
    }
    if constexpr (std::is_reference_v<R>) {
      R self = Kernel::Call(keys, std::forward<A>(args)...);
      // What the kernel between autograd and the recorder does.
      if (keys.has(c10::DispatchKey::ADInplaceOrView)) self.unsafeGetTensorImpl()->bump_version();
      return self;
    } else {
      return Kernel::Call(keys, std::forward<A>(args)...);
    }
  }
};

}  // namespace lazuli::tracer
