#include "tracer/meta_kernels.h"

#include <mutex>
#include <optional>
#include <string>

namespace lazuli::tracer {
namespace {

// The dispatcher tells of the last kernel that was registered for a key alone. An explicit instantiation may name private members.
template <class Tag, auto Member>
struct ExposeOf {
  friend constexpr auto Get(Tag) { return Member; }
};
struct Definition {
  friend constexpr auto Get(Definition);
};
struct Kernels {
  friend constexpr auto Get(Kernels);
};
struct Registrations {
  friend constexpr auto Get(Registrations);
};
template struct ExposeOf<Definition, &c10::OperatorHandle::operatorDef_>;
template struct ExposeOf<Kernels, &c10::impl::OperatorEntry::kernels_>;
template struct ExposeOf<Registrations, &c10::Dispatcher::guard_>;

// Where a kernel was registered is part of what describes it.
bool IsPython(const std::string& description) { return description.find(".py:") != std::string::npos; }

struct MetaKernel {
  bool any = false;                           // Whether there are kernels for meta tensors in particular.
  std::optional<c10::KernelFunction> in_cpp;  // The last one among them that is not Python's.
};

MetaKernel FindMetaKernel(const c10::OperatorHandle& op) {
  const std::lock_guard<std::mutex> no_registrations((c10::Dispatcher::singleton().*Get(Registrations()))->mutex);
  const auto& kernels = (op.*Get(Definition()))->op.*Get(Kernels());
  MetaKernel found;
  const auto of_key = kernels.find(c10::DispatchKey::Meta);
  if (of_key == kernels.end()) return found;
  for (const auto& kernel : of_key->second) {
    found.any = true;
    if (!kernel.kernel.isValid() || IsPython(kernel.debug)) continue;
    found.in_cpp = kernel.kernel;
    break;
  }
  return found;
}

// Kernels that are for all devices call others, any of which may be Python's.
bool RunsWithoutPython() {
  static const c10::OperatorHandle mul = c10::Dispatcher::singleton().findSchemaOrThrow("aten::mul", "Tensor");
  // The kernel handed out is noted down in the operator, by LibTorch, without a lock.
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  return !IsPython(mul.getComputedKernelForDispatchKey(c10::DispatchKey::Meta).debug());
}

}  // namespace

bool CallMetaKernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const MetaKernel kernel = FindMetaKernel(op);
  if (kernel.in_cpp.has_value()) {
    kernel.in_cpp->callBoxed(op, c10::DispatchKeySet(c10::DispatchKey::Meta), stack);
    return true;
  }
  if (kernel.any || !RunsWithoutPython()) return false;
  op.callBoxed(stack);
  return true;
}

}  // namespace lazuli::tracer
