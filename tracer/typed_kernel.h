// Unboxed recording kernels, one instantiation per row of typed_ops.def, all from one template over at::_ops::X::schema.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/impl/boxing.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "runtime/counters.h"
#include "runtime/cuda_driver.h"
#include "tracer/captured_memory.h"
#include "tracer/dispatcher.h"
#include "tracer/number_arithmetic.h"
#include "tracer/recorder.h"
#include "tracer/shape_inference.h"
#include "tracer/shared_storages.h"
#include "tracer/step_aside.h"
#include "tracer/visit_tensors.h"

namespace lazuli::tracer {

// Registers every typed kernel with `library`, and those above autograd with `generic`, which is at the generic key. Returns the names
// ("aten::add.Tensor") of the ops served.
absl::flat_hash_set<std::string> RegisterTypedKernels(torch::Library* library, torch::Library* generic);

// Registers the kernels of what makes tensors of numbers alone (empty, zeros, arange) with `library`, which is at the generic key.
void RegisterFactories(torch::Library* library);

inline bool IsNumberType(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::OptionalType) return IsNumberType(*type.containedTypes()[0]);
  return type.kind() == c10::TypeKind::NumberType;
}

// ---- One Add overload per C++ argument type that schemas use. False: the op cannot be recorded. --------------------------------------

inline bool Add(OpRecording* r, const at::Tensor& value) { return r->AddTensor(value); }
inline bool Add(OpRecording* r, at::TensorList value) { return r->AddTensorList(value); }
inline bool Add(OpRecording* r, const at::ITensorListRef& value) {
  const auto tensors = value.materialize();
  r->AddListHeader(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    if (!r->AddTensorItem(tensor)) return false;
  }
  r->EndList();
  return true;
}
inline bool Add(OpRecording* r, const c10::List<std::optional<at::Tensor>>& value) {
  std::vector<at::Tensor> tensors;
  for (const std::optional<at::Tensor> tensor : value) tensors.push_back(tensor.value_or(at::Tensor()));
  return r->AddTensorList(tensors);
}
inline bool Add(OpRecording* r, const at::Scalar& value) { return r->AddScalar(value); }
inline bool Add(OpRecording* r, bool value) { return r->AddBool(value), true; }
inline bool Add(OpRecording* r, int64_t value) { return r->AddInt(value), true; }
inline bool Add(OpRecording* r, double value) { return r->AddDouble(value), true; }
inline bool Add(OpRecording* r, const c10::SymInt& value) {
  const auto number = value.maybe_as_int();
  return number.has_value() && (r->AddInt(*number), true);
}
inline bool Add(OpRecording* r, c10::string_view value) { return r->AddString(std::string_view(value.data(), value.size())), true; }
inline bool Add(OpRecording* r, at::ScalarType value) { return r->AddInt(static_cast<int64_t>(value)), true; }
inline bool Add(OpRecording* r, at::Layout value) { return value == at::kStrided && (r->AddInt(static_cast<int64_t>(value)), true); }
inline bool Add(OpRecording* r, at::MemoryFormat value) { return r->AddInt(static_cast<int64_t>(value)), true; }
inline bool Add(OpRecording* r, at::Device value) { return r->AddDevice(value); }
inline bool Add(OpRecording* r, at::IntArrayRef value) { return r->AddIntList(value), true; }
inline bool Add(OpRecording* r, at::ArrayRef<double> value) { return r->AddDoubleList(value), true; }
inline bool Add(OpRecording* r, c10::SymIntArrayRef value) {
  const auto ints = c10::asIntArrayRefSlowOpt(value);
  return ints.has_value() && (r->AddIntList(*ints), true);
}
template <size_t N>
bool Add(OpRecording* r, const std::array<bool, N>& value) {
  return r->AddBoolList(value.data(), N), true;
}
// std::optional and its array forms (OptionalIntArrayRef) alike.
template <class T>
auto Add(OpRecording* r, const T& value) -> decltype(value.has_value()) {
  if (!value.has_value()) return r->AddNone(), true;
  return Add(r, *value);
}
// An absent tensor is an undefined one.
inline bool Add(OpRecording* r, const std::optional<at::Tensor>& value) { return r->AddTensor(value.has_value() ? *value : at::Tensor()); }

// Whether the tensors among the arguments are 0-dim, and there are some.
inline bool IsNumber(const at::Tensor& value, bool* some) {
  *some |= value.defined();
  return !value.defined() || value.dim() == 0;
}
inline bool IsNumber(at::TensorList, bool*) { return false; }
inline bool IsNumber(const at::ITensorListRef&, bool*) { return false; }
inline bool IsNumber(const c10::List<std::optional<at::Tensor>>&, bool*) { return false; }
template <class T>
bool IsNumber(const T&, bool*) {
  return true;
}
template <class... A>
bool AreNumbers(const A&... args) {
  bool some = false;
  return (IsNumber(args, &some) && ...) && some;
}

// ---- Results ----------------------------------------------------------------------------------------------------------------------------

template <class R>
struct ResultMaker {  // A tuple of tensors.
  template <class... A>
  static R Make(OpRecording* recording, A&...) {
    return MakeTuple(recording, std::make_index_sequence<std::tuple_size_v<R>>());
  }
  template <size_t... I>
  static R MakeTuple(OpRecording* recording, std::index_sequence<I...>) {
    return R{recording->Result(I)...};  // Braces: in order.
  }
};
template <>
struct ResultMaker<at::Tensor> {
  template <class... A>
  static at::Tensor Make(OpRecording* recording, A&...) {
    return recording->Result(0);
  }
};
template <class T>
struct ResultMaker<T&> {  // In place: `self`.
  template <class... A>
  static T& Make(OpRecording*, T& self, A&...) {
    return self;
  }
};

// ---- The kernel -------------------------------------------------------------------------------------------------------------------------

template <class Op>
const codegen::OpInfo& InfoOf() {
  static const codegen::OpInfo& info = codegen::GetOpInfo(c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name));
  return info;
}

// For a call that came from above autograd: what runs on its behalf is below it.
class BelowAutograd {
 public:
  explicit BelowAutograd(c10::DispatchKeySet keys) {
    if (!(keys & kAutogradKeys).empty()) guard_.emplace(kAutogradKeys);
  }

 private:
  static constexpr c10::DispatchKeySet kAutogradKeys = c10::autograd_dispatch_keyset_with_ADInplaceOrView;
  std::optional<c10::impl::ExcludeDispatchKeyGuard> guard_;
};

// Calls visit(tensor, whether the op writes it) for the tensors among `args`.
template <class Op, class Visit, class... A>
void VisitOperands(const Visit& visit, const A&... args) {
  const uint64_t mutated = InfoOf<Op>().mutated_args;
  int arg = 0;
  const auto visit_arg = [&](const auto& value) {
    const bool writes = (mutated >> arg++ & 1) != 0;
    VisitTensors(value, [&](const at::Tensor& tensor) { visit(tensor, writes); });
  };
  (visit_arg(args), ...);
}

// Goes on below the recorder. Keys that hold no backend (no tensor argument) are computed anew.
template <class Op, class... A>
decltype(auto) CallBelowRecorder(c10::DispatchKeySet keys, A&&... args) {
  const c10::impl::ExcludeDispatchKeyGuard exclude(runtime::kModeKeys);
  const BelowAutograd autograd_is_done(keys);
  const auto below = KeysBelowRecorder(keys);
  if (below.empty() || InfoOf<Op>().is_factory) return Op::call(std::forward<A>(args)...);
  return Op::redispatch(below, std::forward<A>(args)...);
}

// The same of an operator that is being captured.
template <class Op, class... A>
decltype(auto) CaptureBelowRecorder(c10::DispatchKeySet keys, A&&... args) {
  RunWhatCameBeforeCapture();
  const runtime::AnyCaptures any;
  VisitOperands<Op>([](const at::Tensor& tensor, bool /*writes*/) { NoteCaptured(tensor); }, args...);
  decltype(auto) result = CallBelowRecorder<Op>(keys, std::forward<A>(args)...);
  VisitTensors(result, NoteCaptured);
  return result;
}

// The same of what looks at its operands' data.
template <class Op, class... A>
decltype(auto) RunBelowRecorder(c10::DispatchKeySet keys, A&&... args) {
  if (IsBeingCaptured(keys)) return CaptureBelowRecorder<Op>(keys, std::forward<A>(args)...);
  if (!SeveralRecorders()) return CallBelowRecorder<Op>(keys, std::forward<A>(args)...);
  OperandsInUse operands(Recorder::Current());
  VisitOperands<Op>([&](const at::Tensor& tensor, bool writes) { operands.Add(tensor, writes); }, args...);
  operands.Settle();
  return CallBelowRecorder<Op>(keys, std::forward<A>(args)...);
}

// Whether results of the operator are as large as its operands, and on the same device.
bool KeepsSizes(const codegen::OpInfo& info);

// Whether an operator whose results have the sizes of its operands computes a number from numbers, all of them at hand
// (OpRecording::RunsAtOnce).
template <class Op, class... A>
bool ComputesNumber(Recorder* recorder, const A&... args) {
  if (!AreNumbers(args...)) return false;
  bool settled = true;
  VisitOperands<Op>([&](const at::Tensor& tensor, bool writes) { settled = settled && recorder->IsSettledNumber(tensor, writes); },
                    args...);
  return settled;
}

// Whether LibTorch's kernel of `Called`, on a CPU, makes the number the first operand, which is cast to the tensor's own type. Its loops
// take a number that comes second as it is, in the type that halves are computed in.
template <class Called>
inline constexpr bool kNumberComesFirst = false;
template <>
inline constexpr bool kNumberComesFirst<at::_ops::mul__Scalar> = true;

// The number that such a kernel multiplies `self` by.
inline at::Scalar AsFirstOperand(const at::Tensor& self, const at::Scalar& number) {
  if (!self.is_cpu() || number.isComplex()) return number;
  if (self.scalar_type() == at::kHalf) return static_cast<c10::Half>(static_cast<float>(number.toDouble()));
  if (self.scalar_type() == at::kBFloat16) return static_cast<c10::BFloat16>(static_cast<float>(number.toDouble()));
  return number;
}
inline at::Tensor& AsFirstOperand(const at::Tensor& /*self*/, at::Tensor& argument) { return argument; }

// Records calls with `Schema`'s C++ arguments as operator `Op`. The two differ for scalar twins: mul.Scalar is recorded as mul.Tensor with
// a wrapped number, which is what its composite kernel would make of it.
template <class Op, class Schema, class Called = Op>
struct TypedKernel;

template <class Op, class R, class... A, class Called>
struct TypedKernel<Op, R(A...), Called> {
  static R Call(c10::DispatchKeySet keys, A... args) {
    if constexpr (kNumberComesFirst<Called>) {
      return Record(keys, AsFirstOperand(First(args...), args)...);
    } else {
      return Record(keys, std::forward<A>(args)...);
    }
  }

  static R Record(c10::DispatchKeySet keys, A... args) {
    const codegen::OpInfo& info = InfoOf<Op>();
    if (StepsAside(info, [&] { return AreNumbers(args...); })) return RunBelowRecorder<Called>(keys, std::forward<A>(args)...);
    if (Recorder* recorder = Recorder::Current()) {
      static const bool keeps_sizes = std::is_reference_v<R> || KeepsSizes(info);
      bool at_once = keeps_sizes && ComputesNumber<Op>(recorder, args...);
      if (!at_once) {
        OpRecording recording(recorder, info);
        if ((Add(&recording, args) && ...) && recording.IsOnOneDevice() && recording.OverlapsAreSafe() && recording.Known() != nullptr &&
            recording.NumbersFit()) {
          at_once = recording.RunsAtOnce();
          if (!at_once && recording.Commit()) {
            return ResultMaker<R>::Make(&recording, args...);
          }
        }
      }
      if (at_once) {
        runtime::Counters::Get().cpu_scalar_ops.Add();
        if constexpr (kArithmetic<Called>.has_value()) {
          // Another recorder may be about to read it.
          if (!SeveralRecorders() && ComputeInPlace(*kArithmetic<Called>, args...)) return First(args...);
        }
        return RunBelowRecorder<Called>(keys, std::forward<A>(args)...);
      }
    }
    return Boxed(keys, args...);
  }

  // First sight of these arguments, or arguments that cannot be recorded: the boxed path infers, observes or runs eagerly.
  static R Boxed(c10::DispatchKeySet keys, A... args) {
    const BelowAutograd autograd_is_done(keys);
    torch::jit::Stack stack = c10::impl::boxArgs<A...>(std::forward<A>(args)...);
    if constexpr (std::is_same_v<Op, Called>) {
      RecordOrRun(InfoOf<Op>(), keys, &stack);
    } else {
      RecordTwinOrRun(InfoOf<Op>(), InfoOf<Called>(), keys, &stack);
    }
    if constexpr (std::is_reference_v<R>) {
      return First(args...);
    } else if constexpr (std::is_same_v<R, at::Tensor>) {
      return std::move(stack[0]).toTensor();
    } else {
      return PopTuple(&stack, std::make_index_sequence<std::tuple_size_v<R>>());
    }
  }

  template <class T, class... Rest>
  static T& First(T& first, Rest&...) {
    return first;
  }
  template <size_t... I>
  static auto PopTuple(torch::jit::Stack* stack, std::index_sequence<I...>) {
    return R{std::move((*stack)[I]).toTensor()...};
  }
};

}  // namespace lazuli::tracer
