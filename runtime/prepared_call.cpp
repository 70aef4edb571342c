#include "runtime/prepared_call.h"

#include <ATen/core/List.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <cstring>

namespace lazuli::runtime {
namespace {

at::Scalar ReadScalar(c10::ScalarType type, uint64_t bits) {
  if (type == c10::ScalarType::Bool) return bits != 0;
  if (type != c10::ScalarType::Double) return static_cast<int64_t>(bits);
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

at::Tensor WrappedNumber(const at::Scalar& number) {
  at::Tensor tensor = at::empty_strided({}, {}, at::TensorOptions().dtype(number.type()));
  tensor.fill_(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

}  // namespace

void PreparedCall::Prepare(const AtenCall& call, ProgramMemory* memory) {
  call_ = &call;
  for (size_t i = 0; i < call.args.size(); ++i) {
    const CallArg& arg = call.args[i];
    switch (arg.kind) {
      case CallArg::Kind::kConst:
        arguments_.push_back(arg.value);
        break;
      case CallArg::Kind::kTensor:
        arguments_.emplace_back(Window(arg.windows[0], memory));
        break;
      case CallArg::Kind::kTensorList: {
        c10::List<at::Tensor> list;
        for (const WindowSpec& window : arg.windows) list.push_back(Window(window, memory));
        lists_.push_back(static_cast<int>(i));
        arguments_.emplace_back(std::move(list));
        break;
      }
      case CallArg::Kind::kOptionalTensorList: {
        c10::List<std::optional<at::Tensor>> list;
        for (const WindowSpec& window : arg.windows) {
          list.push_back(window.memory == -1 ? std::nullopt : std::optional<at::Tensor>(Window(window, memory)));
        }
        lists_.push_back(static_cast<int>(i));
        arguments_.emplace_back(std::move(list));
        break;
      }
      case CallArg::Kind::kScalar:
      case CallArg::Kind::kScalarTensor:
        arguments_.emplace_back();
        scalars_.push_back({static_cast<int>(i), arg.slot, arg.scalar_type, arg.kind == CallArg::Kind::kScalarTensor});
        break;
    }
  }
}

void PreparedCall::Resize(ProgramMemory* memory) {
  if (std::any_of(equal_.begin(), equal_.end(), [](const auto& pair) { return !(*pair.first == *pair.second); })) {
    const AtenCall& call = *call_;
    *this = PreparedCall();
    return Prepare(call, memory);
  }
  for (const auto& [window, tensor] : windows_) tensor.unsafeGetTensorImpl()->set_sizes_and_strides(window->sizes, window->strides, 0);
  if (call_ == nullptr) return;
  for (size_t i = 0; i < call_->args.size(); ++i) {
    if (call_->args[i].kind == CallArg::Kind::kConst) arguments_[i] = call_->args[i].value;
  }
}

void PreparedCall::Patch(absl::Span<const uint64_t> scalars, absl::Span<const int64_t> offsets) {
  for (const OffsetPatch& patch : offsets_) patch.tensor->set_storage_offset(offsets[patch.slot]);
  for (const ScalarPatch& patch : scalars_) {
    const at::Scalar number = ReadScalar(patch.type, scalars[patch.slot]);
    arguments_[patch.position] = patch.as_tensor ? c10::IValue(WrappedNumber(number)) : c10::IValue(number);
  }
}

void PreparedCall::CopyArguments(torch::jit::Stack* stack) const {
  stack->assign(arguments_.begin(), arguments_.end());
  // Lists are shared, and some operators (_unsafe_masked_index) change the one they get.
  for (const int position : lists_) (*stack)[position] = (*stack)[position].toList().copy();
}

// Equal windows of one call are one tensor: kernels (attention) ask whether their operands are.
at::Tensor PreparedCall::Window(const WindowSpec& window, ProgramMemory* memory) {
  if (window.memory == WindowSpec::kNoContent) {
    return at::empty_strided(window.sizes, window.strides, at::TensorOptions(window.dtype).device(call_->device));
  }
  if (window.memory < 0) return at::Tensor();
  for (const auto& [spec, tensor] : windows_) {
    if (!(*spec == window)) continue;
    equal_.emplace_back(&window, spec);
    return tensor;
  }
  windows_.emplace_back(&window, MakeWindow(window, memory));
  return windows_.back().second;
}

at::Tensor PreparedCall::MakeWindow(const WindowSpec& window, ProgramMemory* memory) {
  const auto keys = c10::DispatchKeySet(c10::computeDispatchKey(window.dtype, c10::kStrided, memory->DeviceOf(window.memory)));
  at::Tensor tensor =
      at::detail::make_tensor<c10::TensorImpl>(memory->StorageOf(window.memory), keys, c10::scalarTypeToTypeMeta(window.dtype));
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(window.sizes, window.strides, 0);
  if (window.wrapped_number) impl->set_wrapped_number(true);
  if (window.offset_slot >= 0) offsets_.push_back({impl, window.offset_slot});
  return tensor;
}

}  // namespace lazuli::runtime
