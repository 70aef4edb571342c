// The two dispatch keys that DeviceMode includes, named once, and the scope in which Lazuli itself calls ATen.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lazuli::runtime {

// Unused by LibTorch itself; sits right above Dense and below autograd. A later LibTorch may take it.
constexpr c10::DispatchKey kRecorderKey = c10::DispatchKey::FPGA;
// Above everything; for the few ops that BackendSelect would send past the recorder.
constexpr c10::DispatchKey kGenericKey = c10::DispatchKey::TESTING_ONLY_GenericMode;
constexpr c10::DispatchKeySet kModeKeys = c10::DispatchKeySet({kRecorderKey, kGenericKey});

// While it lives, ATen calls of this thread go straight to kernels: no recording, autograd, autocast, tracing or Python, whatever
// state the caller's thread is in.
class AtenScope {
 public:
  AtenScope() : guard_(Included(), Excluded()) {}

 private:
  static c10::DispatchKeySet Included() { return c10::DispatchKeySet(c10::DispatchKey::BackendSelect); }
  static c10::DispatchKeySet Excluded() {
    return kModeKeys | c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset | c10::python_ks |
           c10::DispatchKeySet({c10::DispatchKey::Tracer, c10::DispatchKey::Functionalize, c10::DispatchKey::PreDispatch});
  }
  c10::impl::ForceDispatchKeyGuard guard_;
  at::NoGradGuard no_grad_;
};

// Whether this thread is in an AtenScope.
inline bool InAtenScope() {
  return c10::impl::tls_is_dispatch_key_excluded(kRecorderKey) && !c10::impl::tls_is_dispatch_key_included(kRecorderKey);
}

// Whether torch.jit.trace follows what this thread calls.
inline bool IsTraced() { return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Tracer); }

}  // namespace lazuli::runtime
