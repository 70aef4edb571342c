#include "tracer/out_ops.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "codegen/lower.h"
#include "codegen/out_variants.h"
#include "tracer/lazy_tensor.h"

namespace lazuli::tracer {
namespace {

using codegen::OpInfo;

const OpInfo* SearchTwin(const OpInfo& info) {
  if (codegen::NeedsMoreThanMemory(info.schema())) return nullptr;
  const OpInfo* twin = nullptr;
  const std::string& base = info.handle.operator_name().name;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name != base) continue;
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (!handle.has_value() || !codegen::IsOutVariantOf(info.schema(), handle->schema())) continue;
    if (twin != nullptr) return nullptr;
    twin = &codegen::GetOpInfo(*handle);
  }
  return twin == nullptr || twin->is_random || twin->mutated_args != 0 || twin->is_view ? nullptr : twin;
}

bool IsPlace(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return false;
  const at::Tensor& tensor = value.toTensor();
  const bool on_device = tensor.key_set().has(c10::DispatchKey::CPU) || tensor.key_set().has(c10::DispatchKey::CUDA);
  return IsPlainOrLazy(*tensor.unsafeGetTensorImpl()) && on_device && !tensor.is_conj() && !tensor.is_neg() && !tensor.has_names();
}

bool SameWindow(const at::Tensor& a, const at::Tensor& b) {
  return a.dtype() == b.dtype() && a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

// Tensors that `value` holds; false when it may hold some that we do not see.
bool Collect(const c10::IValue& value, std::vector<at::Tensor>* tensors) {
  if (value.isTensor()) {
    tensors->push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) tensors->push_back(tensor);
  } else {
    return value.isNone() || value.isScalar() || value.isIntList() || value.isDoubleList() || value.isBoolList() || value.isString() ||
           value.isDevice();
  }
  return true;
}

}  // namespace

const OpInfo* FindTwin(const OpInfo& info) {
  static std::mutex mutex;
  static auto* found = new absl::flat_hash_map<int32_t, const OpInfo*>;
  std::lock_guard<std::mutex> lock(mutex);
  const auto [it, inserted] = found->try_emplace(info.id, nullptr);
  if (inserted) it->second = SearchTwin(info);
  return it->second;
}

bool AreApart(const OpInfo& twin, c10::ArrayRef<c10::IValue> args, c10::ArrayRef<c10::IValue> places) {
  std::vector<at::Tensor> operands;
  for (const c10::IValue& arg : args) {
    if (!Collect(arg, &operands)) return false;
  }
  const bool grad = at::GradMode::is_enabled();
  for (const c10::IValue& place : places) {
    if (!IsPlace(place) || (grad && place.toTensor().requires_grad())) return false;
    for (const c10::IValue& other : places) {
      // Which of two results stays, eager decides.
      if (&other != &place && IsPlace(other) && StorageOf(other.toTensor()) == StorageOf(place.toTensor())) return false;
    }
    for (const at::Tensor& operand : operands) {
      if (!operand.defined()) continue;
      if (grad && operand.requires_grad()) return false;
      // Only numbers on the CPU may meet tensors of a GPU.
      if (operand.device() != place.toTensor().device() && !(operand.is_cpu() && operand.dim() == 0)) return false;
      if (StorageOf(operand) == StorageOf(place.toTensor()) && !SameWindow(operand, place.toTensor())) return false;
    }
  }
  return true;
}

bool Fit(const codegen::OutputMetas& metas, c10::ArrayRef<c10::IValue> places) {
  if (metas.size() != places.size()) return false;
  for (size_t i = 0; i < metas.size(); ++i) {
    const at::Tensor& place = places[i].toTensor();
    if (!metas[i].defined || metas[i].dtype != place.scalar_type() || place.sizes() != at::IntArrayRef(metas[i].sizes) ||
        place.strides() != at::IntArrayRef(metas[i].strides)) {
      return false;
    }
  }
  return true;
}

}  // namespace lazuli::tracer
