#include "codegen/emit_aten.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "runtime/mode_keys.h"

namespace lazuli::codegen {
namespace {

bool IsTensorArg(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType) return true;
  return type.kind() == c10::TypeKind::OptionalType && type.containedTypes()[0]->kind() == c10::TypeKind::TensorType;
}

bool SameLayout(const at::Tensor& tensor, const TensorRef& ref) {
  return tensor.scalar_type() == ref.dtype && tensor.sizes() == c10::IntArrayRef(ref.sizes) &&
         tensor.strides() == c10::IntArrayRef(ref.strides) && tensor.storage_offset() == 0;
}

class Replay : public runtime::Program {
 public:
  explicit Replay(Trace trace) : trace_(std::move(trace)), dying_(trace_.ops.size()) {
    // Memory goes back after its last use, as it would in eager mode.
    std::vector<int> last(trace_.storages.size(), -1);
    for (size_t i = 0; i < trace_.ops.size(); ++i) {
      ForEachRef(trace_.ops[i], [&](const TensorRef& ref) { last[ref.storage] = static_cast<int>(i); });
    }
    for (size_t s = 0; s < last.size(); ++s) {
      const bool may_die = trace_.storages[s].is_input || !trace_.storages[s].live_out;
      if (last[s] >= 0 && may_die) dying_[static_cast<size_t>(last[s])].push_back(static_cast<StorageId>(s));
    }
  }

  int num_kernels() const override { return 0; }
  int num_aten_calls() const override { return static_cast<int>(trace_.ops.size()); }
  bool bit_exact() const override { return true; }

  runtime::RunResult Run(const runtime::RunArgs& args) override {
    runtime::AtenScope scope;
    storages_.assign(trace_.storages.size(), c10::Storage());
    for (size_t i = 0; i < trace_.storages.size(); ++i) {
      if (trace_.storages[i].is_input) {
        storages_[i] = c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::unsafe_reclaim_from_nonowning(args.storages[i]));
      }
    }
    runtime::RunResult result;
    torch::jit::Stack stack;
    for (size_t i = 0; i < trace_.ops.size(); ++i) {
      RunOp(trace_.ops[i], args, &stack, &result);
      stack.clear();
      for (const StorageId storage : dying_[i]) Release(static_cast<size_t>(storage), args);
    }
    HandOver(args);
    storages_.clear();
    return result;
  }

 private:
  template <class Fn>
  static void ForEachRef(const TraceOp& op, const Fn& fn) {
    for (const auto& arg : op.args) {
      for (const auto& ref : arg.tensors) {
        if (ref.defined()) fn(ref);
      }
    }
    for (const auto& ref : op.results) {
      if (ref.defined()) fn(ref);
    }
  }

  void Release(size_t storage, const runtime::RunArgs& args) {
    const auto held = c10::intrusive_ptr<c10::StorageImpl>::reclaim(storages_[storage].unsafeReleaseStorageImpl());
    if (!trace_.storages[storage].is_input || args.unshared.empty() || args.unshared[storage] == 0) return;
    // The caller and this, unless an operator has kept its operand.
    if (held.use_count() != 2 || held.weak_use_count() != 1) return;
    held->set_data_ptr_noswap(at::DataPtr(nullptr, trace_.storages[storage].device));
  }

  // A result that an earlier failure left without memory fails what reads it.
  bool Poisoned(const TraceOp& op) const {
    for (const auto& arg : op.args) {
      for (const auto& ref : arg.tensors) {
        if (ref.defined() && !storages_[ref.storage]) return true;
      }
    }
    return false;
  }

  void RunOp(const TraceOp& op, const runtime::RunArgs& args, torch::jit::Stack* stack, runtime::RunResult* result) {
    if (result->error != nullptr && Poisoned(op)) return;
    try {
      // Equal windows of one call are one tensor: kernels (attention) ask whether their operands are.
      absl::InlinedVector<std::pair<const TensorRef*, at::Tensor>, 4> windows;
      CallTraceOp(
          op, args.scalars.data(),
          [&](const TensorRef& ref) {
            for (const auto& [known, tensor] : windows) {
              if (*known == ref) return tensor;
            }
            windows.emplace_back(&ref, MakeWindow(ref, storages_[ref.storage], ref.offset_slot < 0 ? 0 : args.offsets[ref.offset_slot]));
            return windows.back().second;
          },
          stack);
      for (size_t i = 0; i < op.results.size(); ++i) {
        if (op.results[i].defined()) Keep(op, op.results[i], (*stack)[i].toTensor());
      }
    } catch (...) {
      if (result->error == nullptr) {
        result->error = std::current_exception();
        result->failed_op = op.info->name;
        result->failed_index = op.index;
      }
    }
  }

  // Takes over a result's memory, or copies it when it shares memory with something else or came out in another layout.
  void Keep(const TraceOp& op, const TensorRef& ref, const at::Tensor& tensor) {
    TORCH_INTERNAL_ASSERT(tensor.sizes() == c10::IntArrayRef(ref.sizes) && tensor.scalar_type() == ref.dtype, "a result of ", op.info->name,
                          " is ", tensor.scalar_type(), tensor.sizes(), ", recorded as ", ref.dtype, c10::IntArrayRef(ref.sizes));
    const bool shared =
        tensor.storage().use_count() != 1 || tensor.storage().nbytes() < static_cast<size_t>(trace_.storages[ref.storage].nbytes);
    if (!shared && SameLayout(tensor, ref)) {
      storages_[ref.storage] = tensor.storage();
      return;
    }
    at::Tensor copy = at::empty_strided(ref.sizes, ref.strides, tensor.options());
    copy.copy_(tensor);
    storages_[ref.storage] = copy.storage();
  }

  void HandOver(const runtime::RunArgs& args) {
    for (size_t i = 0; i < trace_.storages.size(); ++i) {
      if (trace_.storages[i].live_out && storages_[i]) {
        args.outputs[i] = storages_[i].set_data_ptr(at::DataPtr(nullptr, trace_.storages[i].device));
      }
    }
  }

  const Trace trace_;
  std::vector<std::vector<StorageId>> dying_;  // By op: storages that it is the last one to use, and nobody after the run.
  std::vector<c10::Storage> storages_;         // Only while running.
};

}  // namespace

c10::IValue ScalarIValue(c10::ScalarType type, uint64_t bits, const c10::Type& arg_type) {
  at::Scalar scalar;
  if (type == c10::ScalarType::Double) {
    double value;
    std::memcpy(&value, &bits, sizeof(value));
    scalar = value;
  } else if (type == c10::ScalarType::Bool) {
    scalar = bits != 0;
  } else {
    scalar = static_cast<int64_t>(bits);
  }
  if (IsTensorArg(arg_type)) return at::native::wrapped_scalar_tensor(scalar);
  return scalar;
}

at::Tensor MakeWindow(const TensorRef& ref, c10::Storage storage, int64_t offset) {
  const auto keys = c10::DispatchKeySet(c10::computeDispatchKey(ref.dtype, c10::kStrided, storage.device()));
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, c10::scalarTypeToTypeMeta(ref.dtype));
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(ref.sizes, ref.strides, offset);
  if (ref.wrapped_number) impl->set_wrapped_number(true);
  return tensor;
}

c10::IValue TensorListIValue(const std::vector<at::Tensor>& tensors, const c10::Type& type) {
  const c10::Type* list = &type;
  if (list->kind() == c10::TypeKind::OptionalType) list = list->containedTypes()[0].get();
  if (list->containedTypes()[0]->kind() != c10::TypeKind::OptionalType) return tensors;
  c10::List<std::optional<at::Tensor>> optional_tensors;
  for (const auto& tensor : tensors) {
    optional_tensors.push_back(tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt);
  }
  return optional_tensors;
}

std::unique_ptr<runtime::Program> MakeReplay(Trace trace) { return std::make_unique<Replay>(std::move(trace)); }

}  // namespace lazuli::codegen
