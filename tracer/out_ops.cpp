#include "tracer/out_ops.h"

#include <ATen/MemoryOverlap.h>
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
  if (codegen::NeedsMoreThanMemory(info.handle.schema())) return nullptr;
  const OpInfo* twin = nullptr;
  const std::string& base = info.handle.operator_name().name;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name != base) continue;
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (!handle.has_value() || !codegen::IsOutVariantOf(info.handle.schema(), handle->schema())) continue;
    if (twin != nullptr) return nullptr;
    twin = &codegen::GetOpInfo(*handle);
  }
  return twin == nullptr || twin->is_random || twin->mutated_args != 0 || twin->is_view ? nullptr : twin;
}

const OpInfo* FindTwin(const OpInfo& info) {
  static std::mutex mutex;
  static auto* found = new absl::flat_hash_map<int32_t, const OpInfo*>;
  std::lock_guard<std::mutex> lock(mutex);
  const auto [it, inserted] = found->try_emplace(info.id, nullptr);
  if (inserted) it->second = SearchTwin(info);
  return it->second;
}

bool IsPlace(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return false;
  const at::Tensor& tensor = value.toTensor();
  return IsPlainOrLazy(*tensor.unsafeGetTensorImpl()) && tensor.key_set().has(c10::DispatchKey::CPU) && !tensor.is_conj() &&
         !tensor.is_neg() && !tensor.has_names() && at::has_internal_overlap(tensor) != at::MemOverlap::Yes;
}

c10::StorageImpl* StorageOf(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() : nullptr;
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

bool MayRun(const OpInfo& twin, c10::ArrayRef<c10::IValue> args, c10::ArrayRef<c10::IValue> places) {
  std::vector<at::Tensor> operands;
  for (const c10::IValue& arg : args) {
    if (!Collect(arg, &operands)) return false;
  }
  // Eager lets pointwise operators read the window that they write.
  const bool may_share =
      codegen::FindRowByName(twin.name) != nullptr || twin.handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  const bool grad = at::GradMode::is_enabled();
  for (const c10::IValue& place : places) {
    if (!IsPlace(place) || (grad && place.toTensor().requires_grad())) return false;
    for (const at::Tensor& operand : operands) {
      if (!operand.defined()) continue;
      if (grad && operand.requires_grad()) return false;
      if (StorageOf(operand) == StorageOf(place.toTensor()) && !(may_share && SameWindow(operand, place.toTensor()))) return false;
    }
  }
  return true;
}

bool Fits(const c10::IValue& result, const at::Tensor& place) {
  if (!result.isTensor() || !result.toTensor().defined()) return false;
  const at::Tensor& tensor = result.toTensor();
  return tensor.layout() == c10::kStrided && tensor.dtype() == place.dtype() && tensor.sizes() == place.sizes() &&
         tensor.device() == place.device();
}

}  // namespace

bool RunAsFunctional(const OpInfo& info, torch::jit::Stack* stack, const std::function<void(const OpInfo&, torch::jit::Stack*)>& call) {
  const OpInfo* twin = info.is_out ? FindTwin(info) : nullptr;
  if (twin == nullptr || info.num_returns != twin->num_returns) return false;
  const auto args = torch::jit::last(*stack, info.num_args).slice(0, twin->num_args);
  const auto last = torch::jit::last(*stack, info.num_returns);
  const std::vector<c10::IValue> places(last.begin(), last.end());
  if (!MayRun(*twin, args, places)) return false;
  torch::jit::Stack results(args.begin(), args.end());
  call(*twin, &results);
  for (size_t i = 0; i < places.size(); ++i) {
    if (!Fits(results[i], places[i].toTensor())) return false;
  }
  static const OpInfo& copy = *codegen::FindOpInfo("aten::copy_");
  for (size_t i = 0; i < places.size(); ++i) {
    torch::jit::Stack copied{places[i], results[i], false};
    call(copy, &copied);
  }
  torch::jit::drop(*stack, info.num_args);
  stack->insert(stack->end(), places.begin(), places.end());
  return true;
}

}  // namespace lazuli::tracer
