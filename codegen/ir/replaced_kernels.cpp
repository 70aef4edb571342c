#include "codegen/ir/replaced_kernels.h"

#include <ATen/Context.h>

#include <initializer_list>
#include <string>

namespace lazuli::codegen {
namespace {

using c10::DispatchKey;

// What the dispatcher says of kernels of LibTorch's begins with: "registered at /pytorch/". Empty where that cannot be told.
const std::string& WhereLibTorchWas() {
  static const auto* where = [] {
    const std::string schema = c10::Dispatcher::singleton().findSchemaOrThrow("aten::add", "Tensor").debug();
    const size_t end = schema.rfind("build/aten/src/ATen/");
    return new std::string(end == std::string::npos ? "" : schema.substr(0, end));
  }();
  return *where;
}

bool IsReplaced(const c10::OperatorHandle& op, std::initializer_list<DispatchKey> keys) {
  const std::string& where = WhereLibTorchWas();
  if (where.empty() || op.operator_name().name.rfind("aten::", 0) != 0) return false;
  for (const DispatchKey key : keys) {
    if (!op.hasComputedKernelForDispatchKey(key)) continue;
    if (op.getComputedKernelForDispatchKey(key).debug().rfind(where, 0) != 0) return true;
  }
  return false;
}

}  // namespace

bool IsKernelReplaced(const c10::OperatorHandle& op) {
  return IsReplaced(op, {DispatchKey::CPU}) || (at::hasCUDA() && IsReplaced(op, {DispatchKey::CUDA}));
}

bool IsAutogradReplaced(const c10::OperatorHandle& op) {
  return IsReplaced(op, {DispatchKey::AutogradCPU, DispatchKey::ADInplaceOrView, DispatchKey::BackendSelect}) ||
         (at::hasCUDA() && IsReplaced(op, {DispatchKey::AutogradCUDA}));
}

}  // namespace lazuli::codegen
