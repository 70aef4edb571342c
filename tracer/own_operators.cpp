#include "tracer/own_operators.h"

#include <ATen/Context.h>
#include <ATen/SequenceNumber.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Storage.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/log.h"
#include "runtime/mode_keys.h"
#include "tracer/above_autograd.h"
#include "tracer/captured_memory.h"
#include "tracer/eager_call.h"
#include "tracer/shape_inference.h"
#include "tracer/visit_tensors.h"

namespace lazuli::tracer {
namespace {

constexpr const char* kKeeps = "keeps its operands or results";
constexpr const char* kWrites = "writes operands in ways that its schema does not say, or with LibTorch's operators, which count versions";
constexpr const char* kForetells = "has a kernel for meta tensors that foretells other results";
constexpr const char* kDifferentiates = "computes gradients itself";
constexpr const char* kDraws = "draws random numbers";
constexpr const char* kFollowed = "has no kernel for autograd or autocast, which follow what it calls";

bool HasPythonObject(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj() != nullptr; }

const c10::Storage& StorageUnder(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->unsafe_storage(); }

bool Holds(const std::vector<at::Tensor>& tensors, const at::Tensor& tensor) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const at::Tensor& item) { return item.is_same(tensor); });
}

// The tensors in `values`, each once.
std::vector<at::Tensor> TensorsIn(c10::ArrayRef<c10::IValue> values) {
  std::vector<at::Tensor> tensors;
  const auto add = [&tensors](const at::Tensor& tensor) {
    if (!Holds(tensors, tensor)) tensors.push_back(tensor);
  };
  for (const c10::IValue& value : values) VisitTensors(value, add);
  return tensors;
}

// How often `values` hold it.
size_t CountIn(c10::ArrayRef<c10::IValue> values, const at::Tensor& tensor) {
  size_t count = 0;
  for (const c10::IValue& value : values) VisitTensors(value, [&](const at::Tensor& item) { count += item.is_same(tensor) ? 1 : 0; });
  return count;
}

// Whether others than `results`, and `fresh`, their tensors that are no operands, hold one of these.
bool ResultsAreKept(c10::ArrayRef<c10::IValue> results, const std::vector<at::Tensor>& fresh) {
  // A view holds what it is one of.
  std::vector<at::Tensor> holders = fresh;
  for (const at::Tensor& tensor : fresh) {
    if (!tensor.is_view()) continue;
    const at::Tensor base(tensor._base());
    if (!Holds(holders, base)) holders.push_back(base);
  }
  return std::any_of(fresh.begin(), fresh.end(), [&](const at::Tensor& tensor) {
    const size_t here = 2;  // In `fresh` and in `holders`.
    if (!HasPythonObject(tensor) && tensor.use_count() > here + CountIn(results, tensor)) return true;
    const c10::Storage& storage = StorageUnder(tensor);
    const auto shares = [&](const at::Tensor& other) {
      return StorageUnder(other).unsafeGetStorageImpl() == storage.unsafeGetStorageImpl();
    };
    return storage && storage.use_count() > static_cast<size_t>(std::count_if(holders.begin(), holders.end(), shares));
  });
}

uint32_t VersionOf(const at::Tensor& tensor) {
  const auto& counter = tensor.unsafeGetTensorImpl()->version_counter();
  return counter.enabled() ? counter.current_version() : 0;
}

// Who holds the tensors of a call, before and after it. A tensor that got its Python object in between is held by that, too, and left out.
class HeldTensors {
 public:
  // `stack` ends with the arguments of `info`, of which lists become lists of its own.
  HeldTensors(const codegen::OpInfo& info, torch::jit::Stack* stack);
  // `stack` ends with its results. Whether more than these hold an argument, or a result, since then.
  bool AreKept(const torch::jit::Stack& stack) const;
  // Whether LibTorch's operators have written an operand, or its window is another one.
  bool AreWritten() const;

 private:
  struct Held {
    at::Tensor tensor;
    c10::Storage storage;
    bool has_python_object = false;
    bool may_be_written = false;
    uint32_t version = 0;
    std::vector<int64_t> sizes, strides;
    size_t uses = 0, storage_uses = 0;  // But for the arguments.
  };

  bool IsMutated(const at::Tensor& tensor, c10::ArrayRef<c10::IValue> args) const {
    for (size_t i = 0; i < args.size(); ++i) {
      if ((info_.mutated_args >> i & 1) != 0 && CountIn(args.slice(i, 1), tensor) > 0) return true;
    }
    return false;
  }

  const codegen::OpInfo& info_;
  std::vector<Held> operands_;
};

HeldTensors::HeldTensors(const codegen::OpInfo& info, torch::jit::Stack* stack) : info_(info) {
  for (size_t i = stack->size() - static_cast<size_t>(info.num_args); i < stack->size(); ++i) {
    if ((*stack)[i].isList()) (*stack)[i] = (*stack)[i].toList().copy();
  }
  const auto args = torch::jit::last(*stack, static_cast<size_t>(info.num_args));
  for (at::Tensor& tensor : TensorsIn(args)) {
    const bool has_python_object = HasPythonObject(tensor);
    c10::Storage storage = StorageUnder(tensor);
    operands_.push_back({std::move(tensor), std::move(storage), has_python_object});
  }
  for (Held& operand : operands_) {
    operand.uses = operand.tensor.use_count() - CountIn(args, operand.tensor);
    operand.storage_uses = operand.storage ? operand.storage.use_count() : 0;
    operand.may_be_written = IsMutated(operand.tensor, args);
    operand.version = VersionOf(operand.tensor);
    operand.sizes = operand.tensor.sizes().vec();
    operand.strides = operand.tensor.strides().vec();
  }
}

bool HeldTensors::AreWritten() const {
  return std::any_of(operands_.begin(), operands_.end(), [](const Held& operand) {
    return VersionOf(operand.tensor) != operand.version || operand.tensor.sizes() != c10::IntArrayRef(operand.sizes) ||
           operand.tensor.strides() != c10::IntArrayRef(operand.strides);
  });
}

bool HeldTensors::AreKept(const torch::jit::Stack& stack) const {
  const auto results = torch::jit::last(stack, static_cast<size_t>(info_.num_returns));
  for (const Held& operand : operands_) {
    if (operand.storage && operand.storage.use_count() > operand.storage_uses) return true;
    // An operand as a result is one tensor of two holders, unless the schema says so.
    if (!operand.may_be_written && CountIn(results, operand.tensor) > 0) return true;
    const bool counts = operand.has_python_object == HasPythonObject(operand.tensor);
    if (counts && operand.tensor.use_count() > operand.uses + CountIn(results, operand.tensor)) return true;
  }
  std::vector<at::Tensor> fresh = TensorsIn(results);
  const auto is_operand = [this](const at::Tensor& tensor) {
    return std::any_of(operands_.begin(), operands_.end(), [&](const Held& operand) { return operand.tensor.is_same(tensor); });
  };
  fresh.erase(std::remove_if(fresh.begin(), fresh.end(), is_operand), fresh.end());
  return ResultsAreKept(results, fresh);
}

// The default generators of the CPU and of a call's device, before and after it.
class GeneratorStates {
 public:
  explicit GeneratorStates(c10::DispatchKeySet keys) : keys_(keys), states_(Read()) {}
  bool HaveChanged() const {
    const std::vector<at::Tensor> now = Read();
    return !std::equal(states_.begin(), states_.end(), now.begin(), now.end(), [](const at::Tensor& a, const at::Tensor& b) {
      return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
    });
  }

 private:
  std::vector<at::Tensor> Read() const {
    const runtime::AtenScope scope;
    std::vector<at::Tensor> states;
    const auto read = [&states](at::Generator generator) {
      std::lock_guard<std::mutex> lock(generator.mutex());
      states.push_back(generator.get_state());
    };
    read(at::globalContext().defaultGenerator(c10::kCPU));
    if (keys_.has_backend(c10::BackendComponent::CUDABit)) read(at::globalContext().defaultGenerator(c10::kCUDA));
    return states;
  }

  const c10::DispatchKeySet keys_;
  const std::vector<at::Tensor> states_;
};

// Whether autograd, live here, would see what the operator's kernel calls of these keys; and autocast.
bool IsSeenByAutograd(c10::DispatchKeySet keys) {
  return (keys - c10::impl::tls_local_dispatch_key_set().excluded_).has_any(c10::autograd_dispatch_keyset);
}
bool IsSeenByAutocast(c10::DispatchKeySet keys) {
  return (keys - c10::impl::tls_local_dispatch_key_set().excluded_).has_any(c10::autocast_dispatch_keyset);
}

// Whether eager mode computes gradients or tangents of the operator from what its kernel calls, or casts for that.
bool IsFollowed(const codegen::OpInfo& info, const torch::jit::Stack& stack) {
  bool followed = false;
  VisitOperands(info, stack, [&](const at::Tensor& tensor, bool /*writes*/) {
    followed = followed || IsSeenByAutocast(tensor.key_set()) || (ConcernsAutograd(tensor) && IsSeenByAutograd(tensor.key_set()));
  });
  return followed;
}

// Whether the kernel may make a graph of tensors of its own, and compute gradients.
bool HasAutograd(const codegen::OpInfo& info, const torch::jit::Stack& stack) {
  bool has = false;
  VisitOperands(info, stack, [&](const at::Tensor& tensor, bool /*writes*/) { has = has || IsSeenByAutograd(tensor.key_set()); });
  return has && at::GradMode::is_enabled();
}

bool HasBeenSeen(const codegen::OpInfo& info, const torch::jit::Stack& stack) {
  const runtime::OperatorLife& life = *info.life;
  if (life.has_run_with_autograd.load(std::memory_order_acquire)) return true;
  return !HasAutograd(info, stack) && life.has_run.load(std::memory_order_acquire);
}

// Whether the results are what the Meta kernel has said.
bool AreAsForetold(const codegen::OutputMetas& metas, c10::ArrayRef<c10::IValue> results) {
  if (metas.size() != results.size()) return false;
  for (size_t i = 0; i < metas.size(); ++i) {
    const at::Tensor result = results[i].toTensor();
    if (metas[i].defined != result.defined()) return false;
    if (!result.defined()) continue;
    if (result.layout() != c10::kStrided || result.scalar_type() != metas[i].dtype || result.sizes() != c10::IntArrayRef(metas[i].sizes) ||
        result.strides() != c10::IntArrayRef(metas[i].strides)) {
      return false;
    }
  }
  return true;
}

void RunAndWatch(Recorder* recorder, const codegen::OpInfo& info, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  CutForEagerCall(recorder, info, *stack, Cut::kTransient, "ran once to see what else it does");
  const auto args = torch::jit::last(*stack, static_cast<size_t>(info.num_args));
  const auto metas = info.returns_mutated_self
                         ? std::nullopt
                         : InferShapes(info, args, keys.has_backend(c10::BackendComponent::CUDABit) ? c10::kCUDA : c10::kCPU);
  const HeldTensors held(info, stack);
  const GeneratorStates generators(keys);
  const bool with_autograd = HasAutograd(info, *stack);
  const uint64_t nodes = at::sequence_number::peek();
  CallBelow(info, keys, stack);
  const auto results = torch::jit::last(*stack, static_cast<size_t>(info.num_returns));
  const char* const why_eager = held.AreKept(*stack)                                   ? kKeeps
                                : held.AreWritten()                                    ? kWrites
                                : generators.HaveChanged()                             ? kDraws
                                : at::sequence_number::peek() != nodes                 ? kDifferentiates
                                : metas.has_value() && !AreAsForetold(*metas, results) ? kForetells
                                                                                       : nullptr;
  runtime::OperatorLife& life = *info.life;
  if (why_eager != nullptr && life.why_eager.exchange(why_eager) == nullptr && runtime::LogEnabled(runtime::LogCategory::kGraphBreaks)) {
    runtime::Log(runtime::LogCategory::kGraphBreaks, absl::StrCat(info.name, " ", why_eager, ": it is not recorded."));
  }
  (with_autograd ? life.has_run_with_autograd : life.has_run).store(true, std::memory_order_release);
}

}  // namespace

bool RunOwnOperator(Recorder* recorder, const codegen::OpInfo& info, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (IsBeingCaptured(keys)) return false;
  const char* reason = kFollowed;
  if (!IsFollowed(info, *stack)) {
    if (!HasBeenSeen(info, *stack)) {
      RunAndWatch(recorder, info, keys, stack);
      return true;
    }
    reason = info.life->why_eager.load(std::memory_order_relaxed);
  }
  if (reason == nullptr) return false;
  CutForEagerCall(recorder, info, *stack, Cut::kGraphBreak, reason);
  CallBelow(info, keys, stack);
  return true;
}

}  // namespace lazuli::tracer
