#include "tracer/shape_inference.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include "absl/container/flat_hash_set.h"
#include "codegen/lower.h"
#include "runtime/mode_keys.h"
#include "tracer/lazy_tensor.h"
#include "tracer/shape_functions.h"

namespace lazuli::tracer {
namespace {

at::Tensor ToMeta(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  at::Tensor meta = at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  return meta;
}

c10::IValue ToMeta(const c10::IValue& value) {
  if (value.isTensor()) return ToMeta(value.toTensor());
  if (value.isDevice()) return c10::Device(c10::kMeta);
  if (value.isTensorList()) {
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(ToMeta(tensor));
    return tensors;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList()) {
      tensors.push_back(tensor.has_value() ? std::optional<at::Tensor>(ToMeta(*tensor)) : std::nullopt);
    }
    return tensors;
  }
  return value;
}

codegen::OutputMeta MetaOf(const at::Tensor& tensor) {
  codegen::OutputMeta meta;
  meta.defined = tensor.defined();
  if (!meta.defined) return meta;
  meta.dtype = tensor.scalar_type();
  meta.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  meta.strides.assign(tensor.strides().begin(), tensor.strides().end());
  int64_t last = 0;
  for (size_t d = 0; d < meta.sizes.size(); ++d) last += (meta.sizes[d] - 1) * meta.strides[d];
  meta.nbytes = tensor.numel() == 0 ? 0 : (last + 1) * static_cast<int64_t>(tensor.element_size());
  return meta;
}

// Several elements share a place (empty_strided with a stride of 0): no memory of a result's own.
bool OverlapsItself(const at::Tensor& tensor) { return tensor.defined() && at::has_internal_overlap(tensor) == at::MemOverlap::Yes; }

const c10::StorageImpl* StorageOf(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

bool SharesStorage(const c10::IValue& arg, const c10::StorageImpl* storage) {
  if (arg.isTensor()) return StorageOf(arg.toTensor()) == storage;
  if (!arg.isTensorList()) return false;
  for (const at::Tensor& tensor : arg.toTensorVector()) {
    if (StorageOf(tensor) == storage) return true;
  }
  return false;
}

// Kernels that insist on operands of one dtype while their Meta kernels take any.
bool NeedsOneDtype(const std::string& name) {
  static const auto* names =
      new absl::flat_hash_set<std::string>{"aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::_addmm_activation"};
  return names->contains(name);
}

bool HasOneDtype(c10::ArrayRef<c10::IValue> args) {
  std::optional<c10::ScalarType> dtype;
  for (const c10::IValue& arg : args) {
    if (!arg.isTensor() || !arg.toTensor().defined()) continue;
    if (dtype.has_value() && *dtype != arg.toTensor().scalar_type()) return false;
    dtype = arg.toTensor().scalar_type();
  }
  return true;
}

// In a Python process most Meta kernels are Python functions: slow, and they would wait for the interpreter's lock while others wait for
// the recorder's. Composite kernels call them.
bool HasPythonMeta(const codegen::OpInfo& info) {
  const auto is_python = [](const c10::OperatorHandle& handle) {
    return handle.getComputedKernelForDispatchKey(c10::DispatchKey::Meta).debug().find(".py:") != std::string::npos;
  };
  if (info.handle.hasKernelForDispatchKey(c10::DispatchKey::Meta)) return is_python(info.handle);
  return is_python(c10::Dispatcher::singleton().findSchemaOrThrow("aten::mul", "Tensor"));
}

// Whether `info`, an in-place operator, may write its functional form's `result` to `self`. Pointwise operators cast, by ATen's rule.
bool FitsInPlace(const codegen::OpInfo& info, const at::Tensor& self, const at::Tensor& result) {
  if (!self.sizes().equals(result.sizes()) || OverlapsItself(self)) return false;
  if (self.scalar_type() == result.scalar_type()) return true;
  return codegen::FindRowByName(info.name) != nullptr && c10::canCast(result.scalar_type(), self.scalar_type());
}

}  // namespace

std::optional<codegen::OutputMetas> InferShapes(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args) {
  if (NeedsOneDtype(info.name) && !HasOneDtype(args)) return std::nullopt;
  const ShapeFunction* function = FindShapeFunction(info.name);
  if (function == nullptr && (!info.has_meta || HasPythonMeta(info))) return std::nullopt;
  const runtime::AtenScope scope;
  torch::jit::Stack stack;
  for (const c10::IValue& arg : args) stack.push_back(ToMeta(arg));
  try {
    if (function == nullptr) {
      info.handle.callBoxed(&stack);
    } else {
      const at::Tensor self = stack[0].isTensor() ? stack[0].toTensor() : at::Tensor();
      const std::vector<at::Tensor> results = (*function)(stack);
      if (results.empty() || (info.returns_mutated_self && !FitsInPlace(info, self, results[0]))) return std::nullopt;
      stack.assign(results.begin(), results.end());
    }
  } catch (const std::exception&) {
    return std::nullopt;
  }
  codegen::OutputMetas outputs;
  if (info.returns_mutated_self) return outputs;
  for (const c10::IValue& result : stack) {
    if (OverlapsItself(result.toTensor())) return std::nullopt;
    outputs.push_back(MetaOf(result.toTensor()));
  }
  return outputs;
}

std::optional<codegen::OutputMetas> Observe(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args,
                                            c10::ArrayRef<c10::IValue> results) {
  codegen::OutputMetas outputs;
  if (info.returns_mutated_self) return outputs;
  for (const c10::IValue& result : results) {
    if (!result.isTensor()) return std::nullopt;
    const at::Tensor& tensor = result.toTensor();
    if (tensor.defined()) {
      const auto& impl = *tensor.unsafeGetTensorImpl();
      if (!tensor.device().is_cpu() || tensor.layout() != c10::kStrided || !IsPlainOrLazy(impl) || tensor.storage_offset() != 0 ||
          tensor.is_conj() || tensor.is_neg() || OverlapsItself(tensor)) {
        return std::nullopt;
      }
      for (const c10::IValue& arg : args) {
        if (SharesStorage(arg, StorageOf(tensor))) return std::nullopt;
      }
    }
    outputs.push_back(MetaOf(tensor));
  }
  return outputs;
}

}  // namespace lazuli::tracer
