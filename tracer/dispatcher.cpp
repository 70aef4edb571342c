#include "tracer/dispatcher.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/enum_tag.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/irange.h>
#include <torch/library.h>

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "codegen/ir/grad_mode.h"
#include "codegen/ir/replaced_kernels.h"
#include "codegen/lower.h"
#include "runtime/counters.h"
#include "runtime/device.h"
#include "runtime/mode_keys.h"
#include "tracer/attention_dropout.h"
#include "tracer/captured_memory.h"
#include "tracer/composite.h"
#include "tracer/determinism.h"
#include "tracer/dropout.h"
#include "tracer/lazy_signs.h"
#include "tracer/lazy_tensor.h"
#include "tracer/out_ops.h"
#include "tracer/own_operators.h"
#include "tracer/random_numbers.h"
#include "tracer/redirected_calls.h"
#include "tracer/replaced_kernels.h"
#include "tracer/shape_inference.h"
#include "tracer/shared_storages.h"
#include "tracer/step_aside.h"
#include "tracer/typed_kernel.h"
#include "tracer/visit_tensors.h"

namespace lazuli::tracer {
namespace {

using codegen::OpInfo;
using runtime::Counters;

bool IsLayoutType(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::OptionalType) return IsLayoutType(*type.containedTypes()[0]);
  return type.kind() == c10::TypeKind::LayoutType;
}

// Adds one boxed argument to the recording, following its schema type where the value alone is ambiguous.
bool AddBoxed(OpRecording* recording, const c10::IValue& value, const c10::Type& type) {
  if (IsLayoutType(type) && value.isInt() && static_cast<c10::Layout>(value.toInt()) != c10::kStrided) return false;
  if (value.isTensor()) return recording->AddTensor(value.toTensor());
  if (value.isNone()) {
    recording->AddNone();
  } else if (value.isTensorList()) {
    return recording->AddTensorList(value.toTensorVector());
  } else if (value.isOptionalTensorList()) {
    std::vector<at::Tensor> tensors;
    for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList()) tensors.push_back(tensor.value_or(at::Tensor()));
    return recording->AddTensorList(tensors);
  } else if (value.isBool()) {
    recording->AddBool(value.toBool());
  } else if (IsNumberType(type) && value.isScalar()) {
    return recording->AddScalar(value.toScalar());
  } else if (value.isInt()) {
    recording->AddInt(value.toInt());
  } else if (value.isSymInt()) {
    const auto number = value.toSymInt().maybe_as_int();
    if (!number.has_value()) return false;
    recording->AddInt(*number);
  } else if (value.isDouble()) {
    recording->AddDouble(value.toDouble());
  } else if (value.isIntList()) {
    recording->AddIntList(value.toIntVector());
  } else if (value.isSymIntList()) {
    std::vector<int64_t> ints;
    for (const c10::SymInt& item : value.toSymIntVector()) {
      if (!item.maybe_as_int().has_value()) return false;
      ints.push_back(*item.maybe_as_int());
    }
    recording->AddIntList(ints);
  } else if (value.isDoubleList()) {
    recording->AddDoubleList(value.toDoubleVector());
  } else if (value.isBoolList()) {
    const auto list = value.toBoolList();
    c10::SmallVector<bool, 8> flags;
    for (const bool flag : list) flags.push_back(flag);
    recording->AddBoolList(flags.data(), flags.size());
  } else if (value.isString()) {
    recording->AddString(value.toStringView());
  } else if (value.isDevice()) {
    return recording->AddDevice(value.toDevice());
  } else {
    return false;
  }
  return true;
}

enum class Outcome { kRecorded, kUnknownShape, kRunsAtOnce, kMayRefuse, kNotRecordable };

// The program expects the error of an allocation that can only fail where it asked for it, and may go on with less.
bool FitMemory(const codegen::OutputMetas& outputs, c10::Device device) {
  return std::all_of(outputs.begin(), outputs.end(), [device](const codegen::OutputMeta& meta) {
    const int64_t all = runtime::MemoryOf(meta.on_cpu ? c10::kCPU : device);
    return all == 0 || meta.nbytes <= all;
  });
}

// With `places`: only when the results are what those are.
Outcome TryRecord(Recorder* recorder, const OpInfo& info, torch::jit::Stack* stack, std::vector<codegen::Word>* key,
                  const std::vector<c10::IValue>* places = nullptr) {
  OpRecording recording(recorder, info);
  const auto args = torch::jit::last(*stack, info.num_args);
  const auto& arguments = info.schema().arguments();
  for (const auto i : c10::irange(info.num_args)) {
    if (!AddBoxed(&recording, args[i], *arguments[i].real_type())) return Outcome::kNotRecordable;
  }
  if (!recording.IsOnOneDevice() || !recording.OverlapsAreSafe()) return Outcome::kNotRecordable;
  if (recording.MayRefuse()) return Outcome::kMayRefuse;
  const codegen::OutputMetas* metas = recording.Known();
  if (metas == nullptr) {
    auto inferred = InferShapes(info, args, recording.device());
    if (!inferred.has_value() || !TakesDtypes(info, args, *inferred, recording.device())) {
      *key = recording.ShapeKey();
      return Outcome::kUnknownShape;
    }
    if (!FitMemory(*inferred, recording.device())) return Outcome::kNotRecordable;
    metas = recording.Learn(*std::move(inferred));
  }
  if (places != nullptr && !Fit(*metas, *places)) return Outcome::kNotRecordable;
  if (!recording.NumbersFit()) return Outcome::kNotRecordable;
  if (recording.RunsAtOnce()) return Outcome::kRunsAtOnce;
  if (!recording.Commit()) return Outcome::kNotRecordable;
  if (info.returns_mutated_self) {
    at::Tensor self = args[0].toTensor();
    torch::jit::drop(*stack, info.num_args);
    stack->emplace_back(std::move(self));
    return Outcome::kRecorded;
  }
  torch::jit::drop(*stack, info.num_args);
  for (const auto i : c10::irange(static_cast<size_t>(info.num_returns))) {
    const codegen::OutputMeta& meta = (*metas)[i];
    if (meta.is_number) {
      stack->emplace_back(meta.sizes[0]);
    } else {
      stack->emplace_back(recording.Result(i));
    }
  }
  return Outcome::kRecorded;
}

bool AreNumbers(c10::ArrayRef<c10::IValue> args) {
  const auto is_tensor = [](const c10::IValue& arg) { return arg.isTensor() && arg.toTensor().defined(); };
  return std::any_of(args.begin(), args.end(), is_tensor) &&
         std::all_of(args.begin(), args.end(), [&](const c10::IValue& arg) { return !is_tensor(arg) || arg.toTensor().dim() == 0; });
}

void RunNumbers(const OpInfo& info, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  Counters::Get().cpu_scalar_ops.Add();
  CallBelow(info, keys, stack);
}

void BoxedRecord(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const OpInfo& info = codegen::GetOpInfo(op);
  if (StepsAside(info, [&] { return AreNumbers(torch::jit::last(*stack, info.num_args)); })) {
    CallBelow(info, keys, stack);
  } else {
    RecordOrRun(info, keys, stack);
  }
}

void BoxedComposite(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const OpInfo& info = codegen::GetOpInfo(op);
  const bool recorded = Recorder::Current() != nullptr && RecordsPieces(info) && RecordPieces(info, KeysBelowRecorder(keys), stack);
  if (!recorded) BoxedRecord(op, keys, stack);
}

// A view is metadata over the same storage: ATen's own view kernels compute it, and never look at the data.
void BoxedView(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const size_t num_returns = op.schema().returns().size();
  ViewAdoption adoption;
  for (const c10::IValue& value : torch::jit::last(*stack, op.schema().arguments().size())) {
    VisitTensors(value, [&](const at::Tensor& tensor) { adoption.Base(tensor); });
  }
  {
    const MetadataScope metadata;
    const c10::impl::ExcludeDispatchKeyGuard exclude(runtime::kModeKeys);
    op.redispatchBoxed(KeysBelowRecorder(keys), stack);
  }
  Counters::Get().views_recorded.Add();
  for (const c10::IValue& value : torch::jit::last(*stack, num_returns)) {
    VisitTensors(value, [&](const at::Tensor& view) { adoption.View(view); });
  }
}

// Goes on from the generic key: to autograd, composite kernels and the recorder.
void CallBelowGeneric(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  op.redispatchBoxed(KeysBelowGeneric(keys), stack);
}

// set_data and its like make one tensor share another's storage by copying metadata: both must settle on access from then on.
void BoxedSharing(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  for (const c10::IValue& value : torch::jit::last(*stack, op.schema().arguments().size())) AdoptTensors(value);
  CallBelowGeneric(op, keys, stack);
}

// Whether the composite out= kernel `info` leaves the sizes of its results alone.
bool ResultsFit(const OpInfo& info, c10::ArrayRef<c10::IValue> args) {
  const OpInfo* twin = FindTwin(info);
  if (twin == nullptr || info.num_returns != twin->num_returns) return false;
  const auto places = args.slice(twin->num_args);
  if (!AreApart(*twin, args.slice(0, twin->num_args), places)) return false;
  OpInfo composite = *twin;
  composite.has_meta = true;
  const auto metas = InferShapes(composite, args.slice(0, twin->num_args), places[0].toTensor().device());
  return metas.has_value() && Fit(*metas, places);
}

// Composite out= kernels run above the recorder and resize their result past the dispatcher: it must have its memory, unless it fits.
void BoxedOut(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const OpInfo& info = codegen::GetOpInfo(op);
  const auto args = torch::jit::last(*stack, info.num_args);
  for (const auto i : c10::irange(static_cast<size_t>(info.num_args))) {
    if ((info.mutated_args >> i & 1) == 0 || !args[i].isTensor() || !args[i].toTensor().defined()) continue;
    c10::StorageImpl* storage = args[i].toTensor().unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
    if (storage == nullptr || !IsPending(*storage)) continue;
    if (ResultsFit(info, args)) break;
    Settle(storage);
    Counters::Get().CountEagerFallback(info.name, 1, "may resize its result");
  }
  CallBelowGeneric(op, keys, stack);
}

bool IsCompositeOut(const c10::OperatorHandle& op) {
  return op.hasSchema() && op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) && codegen::GetOpInfo(op).is_out;
}

bool HasCaptured(const OpInfo& info, const torch::jit::Stack& stack) {
  bool captured = false;
  VisitOperands(info, stack, [&](const at::Tensor& tensor, bool /*writes*/) {
    c10::StorageImpl* const storage = StorageOf(tensor);
    captured = captured || (storage != nullptr && IsCaptured(storage));
  });
  return captured;
}

// kNone: a composite kernel serves every key, ours too. kPass: the composite kernel is below ours, which it falls through to. kPieces: so
// it is, but a GPU has a kernel of its own there.
enum class KernelKind { kNone, kPass, kPieces, kRecord, kComposite, kView };

bool HasScalarOverloadOfTensorOp(const c10::OperatorName& name) {
  return name.overload_name == "Scalar" && c10::Dispatcher::singleton().findOp({name.name, "Tensor"}).has_value();
}

// Functional by their schema, views by their kernel.
bool IsHiddenView(const std::string& name) {
  static const auto* names = new absl::flat_hash_set<std::string>{"aten::_unsafe_view", "aten::unsafe_split",
                                                                  "aten::unsafe_split_with_sizes", "aten::unsafe_chunk", "aten::lift"};
  return names->contains(name);
}

KernelKind KindOf(const c10::OperatorHandle& op) {
  // A composite out= kernel resizes its result past the dispatcher.
  if (op.hasSchema() && codegen::GetOpInfo(op).is_out && !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    return KernelKind::kRecord;
  }
  // An op with a kernel for the CPU beside its composite one (mish_backward) runs the former in eager mode.
  const bool own_kernel = op.hasSchema() && op.hasKernelForDispatchKey(c10::DispatchKey::CPU) && codegen::GetOpInfo(op).recordable;
  if (!op.hasSchema() || (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) && !own_kernel)) return KernelKind::kNone;
  const OpInfo& info = codegen::GetOpInfo(op);
  const bool is_nested = info.name.rfind("aten::_nested_view_from_", 0) == 0;  // Takes its buffer's memory past the dispatcher.
  if (!is_nested && (info.is_view || info.reads_metadata_only || IsHiddenView(op.operator_name().name))) return KernelKind::kView;
  if (op.hasTag(at::Tag::inplace_view) && !info.recordable && info.name.rfind("aten::resize", 0) != 0 &&
      info.name.rfind("aten::set_", 0) != 0) {
    return KernelKind::kView;
  }
  const bool has_cpu = op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
  const bool composite = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
                         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
  if (has_cpu || !composite) return KernelKind::kRecord;
  // Decomposes by itself, into ops that are recorded one by one.
  if (!info.recordable || info.writes_lists || HasScalarOverloadOfTensorOp(op.operator_name())) {
    const bool on_gpu =
        op.hasKernelForDispatchKey(c10::DispatchKey::CUDA) && op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
    return on_gpu && !info.is_random ? KernelKind::kPieces : KernelKind::kPass;
  }
  return IsComposite(info) ? KernelKind::kComposite : KernelKind::kRecord;
}

// BackendSelect sends a factory (linspace, kaiser_window) past the recorder's key to a kernel that may reach for memory past the
// dispatcher.
bool IsFactoryPastRecorder(const c10::OperatorHandle& op) {
  const OpInfo& info = codegen::GetOpInfo(op);
  return info.is_factory && info.recordable && !info.is_allocation && op.hasKernelForDispatchKey(c10::DispatchKey::BackendSelect) &&
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) && codegen::FindRowByName(info.name) == nullptr;
}

}  // namespace

// Sizes and strides of the tensors that the operator writes.
static std::vector<std::vector<int64_t>> LayoutsOfWritten(const OpInfo& info, c10::ArrayRef<c10::IValue> args) {
  std::vector<std::vector<int64_t>> layouts;
  const auto add = [&layouts](const at::Tensor& tensor) {
    layouts.push_back(tensor.sizes().vec());
    layouts.push_back(tensor.strides().vec());
  };
  for (const auto i : c10::irange(args.size())) {
    if ((info.mutated_args >> i & 1) == 0) continue;
    VisitTensors(args[i], add);
  }
  return layouts;
}

void RunAndObserve(Recorder* recorder, const OpInfo& info, std::vector<codegen::Word> key, c10::DispatchKeySet keys,
                   torch::jit::Stack* stack) {
  // In a full graph a piece that cuts would be an error, which the whole, observed once, is not.
  if (!recorder->scopes().InFullGraph() && MayRecordPieces(info) && RecordPieces(info, KeysBelowRecorder(keys), stack)) return;
  const auto last = torch::jit::last(*stack, info.num_args);
  const std::vector<c10::IValue> args(last.begin(), last.end());
  const bool comes_back = CannotBeObserved(key) || info.handle.hasTag(at::Tag::dynamic_output_shape);
  const auto layouts = LayoutsOfWritten(info, args);
  RunEagerly(recorder, info, keys, stack, comes_back ? Cut::kGraphBreak : Cut::kTransient);
  const auto results = torch::jit::last(*stack, info.num_returns);
  const c10::Device device = runtime::DeviceOf(codegen::OpDeviceOf(key[0]));
  RememberDtypes(info, args, results, device);
  auto observed = Observe(info, args, results, device);
  // Some resize what they write (addbmm_ of a number), which no trace does.
  if (!observed.has_value() || LayoutsOfWritten(info, args) != layouts) {
    if (!observed.has_value()) NoteUnforeseen(info, args, device);
    RememberShapes(std::move(key), nullptr);
    return;
  }
  Counters::Get().observations.Add();
  NoteForetold(info, args, *observed, device);
  RememberShapes(std::move(key), std::make_shared<const codegen::OutputMetas>(*std::move(observed)));
}

// What other recorders have pending of the operands keeps the op from being recorded.
static void SettleOperandsElsewhere(Recorder* recorder, const OpInfo& info, const torch::jit::Stack& stack) {
  if (!SeveralRecorders()) return;
  VisitOperands(info, stack, [&](const at::Tensor& tensor, bool writes) { SettleElsewhere(tensor, writes, recorder); });
}

// False: nothing was done.
static bool RecordAsFunctional(Recorder* recorder, const OpInfo& info, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const OpInfo* twin = FindTwin(info);
  if (twin == nullptr || !twin->recordable || WasReplaced(twin->name) || info.num_returns != twin->num_returns ||
      !codegen::IsLoopOverElements(twin->name)) {
    return false;
  }
  const auto args = torch::jit::last(*stack, info.num_args).slice(0, twin->num_args);
  const auto last = torch::jit::last(*stack, info.num_returns);
  const std::vector<c10::IValue> places(last.begin(), last.end());
  if (!AreApart(*twin, args, places)) return false;
  torch::jit::Stack results(args.begin(), args.end());
  std::vector<codegen::Word> key;
  if (TryRecord(recorder, *twin, &results, &key, &places) != Outcome::kRecorded) return false;
  static const OpInfo& copy = *codegen::FindOpInfo("aten::copy_");
  for (const auto i : c10::irange(places.size())) {
    torch::jit::Stack copied{places[i], results[i], false};
    RecordOrRun(copy, keys, &copied);
  }
  torch::jit::drop(*stack, info.num_args);
  stack->insert(stack->end(), places.begin(), places.end());
  return true;
}

// Runs `called`, which is recorded as `info`.
static void RunToSeeWhetherItRefuses(Recorder* recorder, const OpInfo& info, const OpInfo& called, c10::DispatchKeySet keys,
                                     torch::jit::Stack* stack) {
  RunEagerly(recorder, called, keys, stack, Cut::kTransient);
  NoteAccepted(info, keys.has_backend(c10::BackendComponent::CUDABit));
}

void RecordOrRun(const OpInfo& info, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  Recorder* recorder = Recorder::Current();
  if (recorder != nullptr) SettleOperandsElsewhere(recorder, info, *stack);
  if (recorder != nullptr && info.is_out && RecordAsFunctional(recorder, info, keys, stack)) return;
  if (info.is_random && RecordDropout(recorder, info, keys, stack)) return;
  if (info.draws_dropout && RecordAttentionDropout(recorder, info, keys, stack)) return;
  // With grad mode on, oneDNN's LSTM returns a workspace whose size only it knows.
  if (recorder == nullptr || !info.recordable || (at::GradMode::is_enabled() && codegen::ReadsGradMode(info))) {
    RunEagerly(recorder, info, keys, stack);
    return;
  }
  if (info.life != nullptr && RunOwnOperator(recorder, info, keys, stack)) return;
  std::vector<codegen::Word> key;
  switch (TryRecord(recorder, info, stack, &key)) {
    case Outcome::kRecorded:
      return;
    case Outcome::kUnknownShape:
      RunAndObserve(recorder, info, std::move(key), keys, stack);
      return;
    case Outcome::kRunsAtOnce:
      RunNumbers(info, keys, stack);
      return;
    case Outcome::kMayRefuse:
      RunToSeeWhetherItRefuses(recorder, info, info, keys, stack);
      return;
    case Outcome::kNotRecordable:
      return ResolveSigns(info, stack) ? RecordOrRun(info, keys, stack) : RunEagerly(recorder, info, keys, stack);
  }
}

void RecordTwinOrRun(const OpInfo& info, const OpInfo& called, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  Recorder* recorder = Recorder::Current();
  if (recorder != nullptr) {
    torch::jit::Stack twin = *stack;
    twin[1] = at::native::wrapped_scalar_tensor(twin[1].toScalar());
    std::vector<codegen::Word> key;
    SettleOperandsElsewhere(recorder, info, twin);
    const Outcome outcome = TryRecord(recorder, info, &twin, &key);
    if (outcome == Outcome::kRecorded) {
      *stack = std::move(twin);
      return;
    }
    if (outcome == Outcome::kUnknownShape) {
      RunAndObserve(recorder, info, std::move(key), keys, &twin);
      *stack = std::move(twin);
      return;
    }
    if (outcome == Outcome::kRunsAtOnce) {
      RunNumbers(called, keys, stack);
      return;
    }
    if (outcome == Outcome::kMayRefuse) {
      RunToSeeWhetherItRefuses(recorder, info, called, keys, stack);
      return;
    }
  }
  RunEagerly(recorder, called, keys, stack);
}

void BoxedPieces(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  Recorder* const recorder = Recorder::Current();
  const OpInfo& info = codegen::GetOpInfo(op);
  if (recorder != nullptr && (IsBeingCaptured(keys) || HasCaptured(info, *stack))) {
    RunEagerly(recorder, info, keys, stack);
  } else if (recorder != nullptr && keys.has_backend(c10::BackendComponent::CUDABit)) {
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, *stack);
  } else {
    op.redispatchBoxed(KeysBelowRecorder(keys), stack);
  }
}

void RegisterKernels() {
  // Registrations live as long as the process: kernels may run during exit.
  auto* aten = new torch::Library(torch::Library::IMPL, "aten", runtime::kRecorderKey, __FILE__, __LINE__);
  auto* generic = new torch::Library(torch::Library::IMPL, "aten", runtime::kGenericKey, __FILE__, __LINE__);
  auto* recorder_rest = new torch::Library(torch::Library::IMPL, "_", runtime::kRecorderKey, __FILE__, __LINE__);
  auto* generic_rest = new torch::Library(torch::Library::IMPL, "_", runtime::kGenericKey, __FILE__, __LINE__);
  const absl::flat_hash_set<std::string> typed = RegisterTypedKernels(aten, generic);
  const bool draws_later = RegisterRandomKernels(generic, aten);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (!op.has_value()) continue;
    if (name.name.rfind("aten::", 0) != 0) {
      NoteOwnKernels(*op);
      continue;
    }
    const std::string full = c10::toString(name);
    if (op->hasSchema() && codegen::IsKernelReplaced(*op)) {
      aten->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&BoxedEager>());
      continue;
    }
    const KernelKind kind = KindOf(*op);
    if (IsCompositeOut(*op)) generic->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&BoxedOut>());
    if (op->hasSchema() && IsFactoryPastRecorder(*op))
      generic->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&BoxedEager>());
    if (kind == KernelKind::kNone || typed.contains(full) || (draws_later && IsRandomLike(full))) continue;
    aten->impl(full.c_str(), kind == KernelKind::kPass        ? torch::CppFunction::makeFallthrough()
                             : kind == KernelKind::kPieces    ? torch::CppFunction::makeFromBoxedFunction<&BoxedPieces>()
                             : kind == KernelKind::kView      ? torch::CppFunction::makeFromBoxedFunction<&BoxedView>()
                             : kind == KernelKind::kComposite ? torch::CppFunction::makeFromBoxedFunction<&BoxedComposite>()
                                                              : torch::CppFunction::makeFromBoxedFunction<&BoxedRecord>());
  }
  RegisterFactories(generic);
  generic->impl("aten::_has_compatible_shallow_copy_type", torch::CppFunction::makeFromBoxedFunction<&BoxedSharing>());
  recorder_rest->fallback(torch::CppFunction::makeFromBoxedFunction<&BoxedRecord>());
  generic_rest->fallback(torch::CppFunction::makeFallthrough());
  LearnBookkeepingCalls();
  WatchPlainTensors();
  RedirectCalls();
}

}  // namespace lazuli::tracer
