#include "tracer/own_operators.h"

#include <ATen/Context.h>
#include <ATen/SequenceNumber.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/Storage.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/log.h"
#include "runtime/mode_keys.h"
#include "tracer/above_autograd.h"
#include "tracer/captured_memory.h"
#include "tracer/dispatcher.h"
#include "tracer/eager_call.h"
#include "tracer/shape_inference.h"
#include "tracer/visit_tensors.h"

namespace lazuli::tracer {
namespace {

constexpr const char* kKeeps = "keeps its operands or results";
constexpr const char* kWrites = "writes operands in ways that its schema does not say, or with LibTorch's operators, which count versions";
constexpr const char* kForetells = "has a kernel for meta tensors that foretells other results";
constexpr const char* kSaysNothing = "has no kernel for meta tensors, defined in C++, that says what its results are";
constexpr const char* kDifferentiates = "computes gradients itself";
constexpr const char* kDraws = "draws random numbers";
constexpr const char* kFollowed = "has no kernel for autograd or autocast, which follow what it calls";

// So many clean runs, of which the first may have met an operand that the operator held before, and up to so many draws.
constexpr int kCleanRuns = 2, kMostDraws = 3;

bool HasPythonObject(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj() != nullptr; }

// By Python's references, of which the tensor itself is one; 0 without a Python object.
size_t PythonUses(const at::Tensor& tensor) {
  const c10::impl::PyObjectSlot* const slot = tensor.unsafeGetTensorImpl()->pyobj_slot();
  return HasPythonObject(tensor) ? slot->load_pyobj_interpreter()->refcnt(slot->load_pyobj()) : 0;
}

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
    // In `fresh`, in `holders` and by its Python object.
    const size_t here = HasPythonObject(tensor) ? 3 : 2;
    if (tensor.use_count() > here + CountIn(results, tensor) || PythonUses(tensor) > 1) return true;
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

// Who holds the tensors of a call, before and after it.
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
    bool may_be_written = false;
    uint32_t version = 0;
    std::vector<int64_t> sizes, strides;
    size_t uses = 0, storage_uses = 0, python_uses = 0;  // But for the arguments.
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
    c10::Storage storage = StorageUnder(tensor);
    operands_.push_back({std::move(tensor), std::move(storage)});
  }
  for (Held& operand : operands_) {
    operand.uses = operand.tensor.use_count() - CountIn(args, operand.tensor);
    operand.storage_uses = operand.storage ? operand.storage.use_count() : 0;
    operand.python_uses = PythonUses(operand.tensor);
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
    // A Python object that was made by the call holds it once.
    const size_t made = operand.python_uses == 0 && HasPythonObject(operand.tensor) ? 1 : 0;
    if (operand.tensor.use_count() > operand.uses + made + CountIn(results, operand.tensor)) return true;
    if (PythonUses(operand.tensor) > operand.python_uses + made) return true;
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
  explicit GeneratorStates(c10::Device device) : device_(device), states_(Read()) {}
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
    if (device_.is_cuda()) read(at::globalContext().defaultGenerator(device_));
    return states;
  }

  const c10::Device device_;
  const std::vector<at::Tensor> states_;
};

// What its operands and this thread's state say of a call.
struct Call {
  bool is_followed = false;  // Eager mode computes gradients or tangents from what the kernel calls, or casts for that.
  bool is_telling = false;   // There is an operand with elements, all are on the CPU or on GPUs.
  c10::Device device = c10::kCPU;
  runtime::OperatorLife::State state = runtime::OperatorLife::State::kPlain;
};

Call CallOf(const codegen::OpInfo& info, const torch::jit::Stack& stack) {
  using State = runtime::OperatorLife::State;
  const c10::DispatchKeySet excluded = c10::impl::tls_local_dispatch_key_set().excluded_;
  Call call;
  bool is_live = false, is_known = true;
  VisitOperands(info, stack, [&](const at::Tensor& tensor, bool /*writes*/) {
    const c10::DispatchKeySet keys = tensor.key_set() - excluded;
    const bool sees = keys.has_any(c10::autograd_dispatch_keyset);
    is_live = is_live || sees;
    call.is_followed = call.is_followed || keys.has_any(c10::autocast_dispatch_keyset) || (sees && ConcernsAutograd(tensor));
    call.is_telling = call.is_telling || tensor.sym_numel() != 0;
    is_known = is_known && (tensor.is_cpu() || tensor.is_cuda());
    if (tensor.is_cuda()) call.device = tensor.device();
  });
  call.is_telling = call.is_telling && is_known;
  call.state = c10::InferenceMode::is_enabled()        ? State::kInference
               : is_live && at::GradMode::is_enabled() ? State::kAutograd
                                                       : State::kPlain;
  return call;
}

std::atomic<int>& CleanRuns(runtime::OperatorLife* life, const Call& call, runtime::OperatorLife::State state) {
  return life->clean_runs[call.device.is_cuda() ? 1 : 0][static_cast<int>(state)];
}

// Whether enough is seen of it: in this state, or in one that shows more.
bool IsKnown(runtime::OperatorLife* life, const Call& call) {
  using State = runtime::OperatorLife::State;
  int runs = CleanRuns(life, call, State::kAutograd).load(std::memory_order_relaxed);
  if (call.state != State::kAutograd) runs += CleanRuns(life, call, State::kPlain).load(std::memory_order_relaxed);
  if (call.state == State::kInference) runs += CleanRuns(life, call, State::kInference).load(std::memory_order_relaxed);
  return runs >= kCleanRuns;
}

// Whether the results are what the Meta kernel has said.
bool AreAsForetold(const codegen::OutputMetas& metas, c10::ArrayRef<c10::IValue> results, c10::Device device) {
  if (metas.size() != results.size()) return false;
  for (size_t i = 0; i < metas.size(); ++i) {
    const at::Tensor result = results[i].toTensor();
    if (metas[i].defined != result.defined()) return false;
    if (!result.defined()) continue;
    if (result.layout() != c10::kStrided || result.device() != device || result.is_conj() || result.is_neg()) return false;
    if (result.scalar_type() != metas[i].dtype || result.sizes() != c10::IntArrayRef(metas[i].sizes) ||
        result.strides() != c10::IntArrayRef(metas[i].strides)) {
      return false;
    }
  }
  return true;
}

// What the kernel does, of which the schema says nothing; null: nothing was seen.
const char* Seen(const codegen::OpInfo& info, const HeldTensors& held, const GeneratorStates& generators, uint64_t nodes,
                 const torch::jit::Stack& stack) {
  if (held.AreKept(stack)) return kKeeps;
  if (held.AreWritten()) return kWrites;
  if (at::sequence_number::peek() != nodes) return kDifferentiates;
  const bool has_drawn = generators.HaveChanged();
  return has_drawn && info.life->draws.fetch_add(1) + 1 >= kMostDraws ? kDraws : nullptr;
}

void RunAndWatch(Recorder* recorder, const codegen::OpInfo& info, const Call& call, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  CutForEagerCall(recorder, info, *stack, Cut::kTransient, "ran to see what else it does");
  const auto args = torch::jit::last(*stack, static_cast<size_t>(info.num_args));
  const auto metas = info.returns_mutated_self ? std::nullopt : InferShapes(info, args, call.device);
  const HeldTensors held(info, stack);
  const GeneratorStates generators(call.device);
  runtime::OperatorLife& life = *info.life;
  const int draws = life.draws.load(std::memory_order_relaxed);
  const uint64_t nodes = at::sequence_number::peek();
  CallBelow(info, keys, stack);
  const auto results = torch::jit::last(*stack, static_cast<size_t>(info.num_returns));
  const char* why_eager = Seen(info, held, generators, nodes, *stack);
  if (why_eager == nullptr && !info.returns_mutated_self) {
    why_eager = !metas.has_value() ? kSaysNothing : AreAsForetold(*metas, results, call.device) ? nullptr : kForetells;
  }
  if (why_eager == nullptr) {
    const bool is_clean = call.is_telling && life.draws.load(std::memory_order_relaxed) == draws;
    if (is_clean) CleanRuns(&life, call, call.state).fetch_add(1, std::memory_order_relaxed);
  } else if (life.why_eager.exchange(why_eager) == nullptr && runtime::LogEnabled(runtime::LogCategory::kGraphBreaks)) {
    runtime::Log(runtime::LogCategory::kGraphBreaks, absl::StrCat(info.name, " ", why_eager, ": it is not recorded."));
  }
}

constexpr c10::DispatchKey kComposites[] = {c10::DispatchKey::CompositeImplicitAutograd, c10::DispatchKey::CompositeExplicitAutograd,
                                            c10::DispatchKey::CompositeExplicitAutogradNonFunctional};
constexpr c10::DispatchKey kDevices[] = {c10::DispatchKey::CPU, c10::DispatchKey::CUDA, c10::DispatchKey::Meta,
                                         c10::DispatchKey::XPU, c10::DispatchKey::MPS,  c10::DispatchKey::PrivateUse1};

// The kernel at the recorder's key of an operator that has a composite one: where the device has none of its own its pieces are recorded.
void BoxedOverComposite(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::DispatchKeySet below = KeysBelowRecorder(keys);
  if (op.hasKernelForDispatchKey(below.highestPriorityTypeId())) {
    RecordOrRun(codegen::GetOpInfo(op), keys, stack);
  } else {
    op.redispatchBoxed(below, stack);
  }
}

}  // namespace

void NoteOwnKernels(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  const auto has = [&](c10::DispatchKey key) { return op.hasKernelForDispatchKey(key); };
  if (name.name.rfind("aten::", 0) == 0 || !op.hasSchema() || !std::any_of(std::begin(kComposites), std::end(kComposites), has) ||
      !std::any_of(std::begin(kDevices), std::end(kDevices), has)) {
    return;
  }
  static std::mutex mutex;
  static auto* served = new std::set<std::string>;
  const std::string space = name.name.substr(0, name.name.find("::"));
  const std::string full = c10::toString(name);
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!served->insert(full).second) return;
  }
  // Kernels live as long as the process: they may run during exit. Registering this one comes here again.
  auto* library = new torch::Library(torch::Library::IMPL, space, runtime::kRecorderKey, __FILE__, __LINE__);
  library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&BoxedOverComposite>());
}

bool RunOwnOperator(Recorder* recorder, const codegen::OpInfo& info, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (IsBeingCaptured(keys)) return false;
  const Call call = CallOf(info, *stack);
  const char* const reason = call.is_followed ? kFollowed : info.life->why_eager.load(std::memory_order_relaxed);
  if (reason == nullptr) {
    if (IsKnown(info.life.get(), call)) return false;
    RunAndWatch(recorder, info, call, keys, stack);
    return true;
  }
  CutForEagerCall(recorder, info, *stack, Cut::kGraphBreak, reason);
  CallBelow(info, keys, stack);
  return true;
}

}  // namespace lazuli::tracer
