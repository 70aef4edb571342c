#include "tracer/random_numbers.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rand_like_ops.h>
#include <ATen/ops/rand_ops.h>
#include <ATen/ops/randn_like_ops.h>
#include <ATen/ops/randn_ops.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "codegen/ir/op_info.h"
#include "codegen/ir/replaced_kernels.h"
#include "codegen/random_ops.h"
#include "runtime/mode_keys.h"
#include "runtime/options.h"
#include "runtime/philox.h"
#include "tracer/above_autograd.h"
#include "tracer/captured_memory.h"
#include "tracer/direct_views.h"
#include "tracer/dispatcher.h"
#include "tracer/eager_call.h"
#include "tracer/lazy_tensor.h"
#include "tracer/recorder.h"
#include "tracer/replaced_kernels.h"
#include "tracer/step_aside.h"
#include "tracer/typed_kernel.h"

namespace lazuli::tracer {
namespace {

using codegen::Distribution;
using codegen::OpInfo;

Distribution DistributionOf(const OpInfo& info) {
  return info.name.find("randn") == std::string::npos ? Distribution::kUniform : Distribution::kNormal;
}

// A call's result, and what it is to lie like: sizes, or a tensor.
struct Wanted {
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  std::optional<c10::Device> device;
  int64_t elements = 0;

  bool IsMany() const { return elements > codegen::kMostDrawnByKernels; }

  // Whether ATen's kernel draws for one element after the other, as they lie, from numbers of 32 bits, in one go, and may do so later.
  bool IsDrawnLater() const {
    constexpr int64_t kMostBytes = std::numeric_limits<int32_t>::max();
    const bool is_float = dtype == c10::kFloat || dtype == c10::kHalf || dtype == c10::kBFloat16;
    if (!is_float || !device.has_value() || !device->is_cuda() || elements == 0) return false;
    if (elements > kMostBytes / static_cast<int64_t>(c10::elementSize(dtype))) return false;
    return !IsMany() || !runtime::Active().cudagraphs;
  }
};

const c10::IValue& ArgOf(const OpInfo& info, c10::ArrayRef<c10::IValue> args, const char* name) {
  return args[static_cast<size_t>(*info.schema().argumentIndexWithName(name))];
}

// What `args` ask for besides sizes. None: something that has no dense tensor of a GPU's, or is not known yet.
std::optional<Wanted> OptionsOf(const OpInfo& info, c10::ArrayRef<c10::IValue> args) {
  Wanted wanted;
  const c10::IValue& layout = ArgOf(info, args, "layout");
  const c10::IValue& pinned = ArgOf(info, args, "pin_memory");
  if ((!layout.isNone() && layout.toLayout() != c10::kStrided) || (!pinned.isNone() && pinned.toBool())) return std::nullopt;
  if (const c10::IValue& dtype = ArgOf(info, args, "dtype"); !dtype.isNone()) wanted.dtype = dtype.toScalarType();
  if (const c10::IValue& device = ArgOf(info, args, "device"); !device.isNone()) {
    wanted.device = device.toDevice();
    const bool is_current = wanted.device->is_cuda() && !wanted.device->has_index();
    if (is_current) wanted.device = c10::impl::getDeviceGuardImpl(c10::kCUDA)->getDevice();
  }
  return wanted;
}

// The factory's sizes; none where they are symbols, or an error.
std::optional<std::vector<int64_t>> SizesOf(const c10::IValue& value) {
  std::vector<int64_t> sizes;
  if (value.isIntList()) {
    sizes = value.toIntVector();
  } else {
    for (const c10::SymInt& size : value.toSymIntVector()) {
      if (!size.maybe_as_int().has_value()) return std::nullopt;
      sizes.push_back(*size.maybe_as_int());
    }
  }
  return std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size >= 0; }) ? std::make_optional(sizes) : std::nullopt;
}

// By distribution.
runtime::TakenAsThought taken_as_thought[2];

const OpInfo& Drawing() {
  static const OpInfo& drawing = *codegen::FindOpInfo("lazuli::_random");
  return drawing;
}

// Takes the numbers of a call that wants `wanted`, and records that they are drawn for each element of like(). Undefined: go_on() was
// called, and has done the call's work.
template <class Like, class GoOn>
at::Tensor RecordRandom(c10::DispatchKeySet keys, Distribution distribution, const Wanted& wanted, const Like& like, const GoOn& go_on) {
  using Known = runtime::TakenAsThought::Known;
  const absl::StatusOr<runtime::CudaDeviceInfo> gpu = runtime::GetCudaDeviceInfo(wanted.device->index());
  runtime::TakenAsThought& known = taken_as_thought[static_cast<size_t>(distribution)];
  if (!gpu.ok() || known.known() == Known::kNo) {
    go_on();
    return {};
  }
  const RandomLaunch launch = RandomLaunch::Of(wanted.elements, *gpu);
  const auto increment = static_cast<uint64_t>(launch.increment);
  if (known.known() == Known::kNothing) {
    known.Watch(increment, go_on);
    return {};
  }
  const auto taken = runtime::TakeRandomNumbers(*wanted.device, increment);
  if (!taken.has_value()) {
    go_on();
    return {};
  }
  const int64_t threads = wanted.elements > launch.threads ? launch.threads : 0;
  const double deviation = 1;  // And the upper bound.
  torch::jit::Stack drawn{like(),
                          static_cast<int64_t>(distribution),
                          threads,
                          at::Scalar(static_cast<int64_t>(taken->seed)),
                          at::Scalar(static_cast<int64_t>(taken->offset)),
                          at::Scalar(0.0),
                          at::Scalar(deviation)};
  RecordOrRun(Drawing(), keys, &drawn);
  return drawn[0].toTensor();
}

// Whether the trace that this thread follows has these operators here; then the call runs eagerly, as they would.
bool RunsAside(std::initializer_list<const OpInfo*> ops, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  bool aside = true;
  for (const OpInfo* info : ops) aside = aside && StepsAside(*info, [] { return false; });
  if (!aside) return false;
  const c10::impl::ExcludeDispatchKeyGuard exclude(runtime::kModeKeys);
  op.callBoxed(stack);
  AdoptTensors(stack->back());
  return true;
}

const OpInfo& Allocating() {
  static const OpInfo& allocating = *codegen::FindOpInfo("aten::empty.memory_format");
  return allocating;
}

// A contiguous tensor's sizes, over one element's memory: what is drawn like it looks at nothing else.
at::Tensor OfSizes(c10::IntArrayRef sizes, const Wanted& wanted, c10::DispatchKeySet keys) {
  const std::vector<int64_t> one{1};
  torch::jit::Stack made{one, static_cast<int64_t>(wanted.dtype), c10::IValue(), *wanted.device, c10::IValue(), c10::IValue()};
  RecordOrRun(Allocating(), keys, &made);
  ViewWindow window;
  window.sizes = sizes;
  window.strides.assign(sizes.size(), 0);
  at::Tensor view = MakeView(made[0].toTensor(), window);
  Adopt(view.unsafeGetTensorImpl());
  return view;
}

// What OfSizes makes, and what it is like.
bool IsOfSizes(const at::Tensor& like) {
  const c10::IntArrayRef strides = like.strides();
  return std::all_of(strides.begin(), strides.end(), [](int64_t stride) { return stride == 0; });
}
at::Tensor EmptyLike(const at::Tensor& like) { return IsOfSizes(like) ? at::empty(like.sizes(), like.options()) : at::empty_like(like); }

void Rand(const OpInfo& info, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::OperatorHandle& op = info.handle;
  const auto go_on = [&] { op.redispatchBoxed(KeysBelowGeneric(keys), stack); };
  const auto args = torch::jit::last(*stack, info.num_args);
  std::optional<Wanted> wanted = OptionsOf(info, args);
  const auto sizes = wanted.has_value() ? SizesOf(args[0]) : std::nullopt;
  if (Recorder::Current() == nullptr || !sizes.has_value() || !AreWithin(keys, kPlainKeysOfCalls)) return go_on();
  if (wanted->dtype == c10::ScalarType::Undefined) wanted->dtype = c10::get_default_dtype_as_scalartype();
  wanted->elements = c10::multiply_integers(*sizes);
  if (!wanted->IsDrawnLater()) return go_on();
  const c10::DispatchKeySet on_gpu(c10::DispatchKey::CUDA);
  if (IsBeingCaptured(on_gpu)) return go_on();
  if (RunsAside({&Allocating(), &Drawing()}, op, stack)) return;
  const auto like = [&] { return OfSizes(*sizes, *wanted, on_gpu); };
  at::Tensor result = RecordRandom(on_gpu, DistributionOf(info), *wanted, like, go_on);
  if (!result.defined()) return;
  // It is written in place, which counts where nobody has seen to it that it does not.
  const bool counts = !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::ADInplaceOrView) && !c10::InferenceMode::is_enabled();
  if (counts && result._version() == 0) result.unsafeGetTensorImpl()->bump_version();
  torch::jit::drop(*stack, info.num_args);
  stack->emplace_back(std::move(result));
}

void RandLike(const OpInfo& info, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::OperatorHandle& op = info.handle;
  const auto go_on = [&] { op.redispatchBoxed(KeysBelowRecorder(keys), stack); };
  const auto args = torch::jit::last(*stack, info.num_args);
  const at::Tensor self = args[0].toTensor();
  std::optional<Wanted> wanted = OptionsOf(info, args);
  const c10::IValue& format = ArgOf(info, args, "memory_format");
  const bool preserves = format.isNone() || format.toMemoryFormat() == c10::MemoryFormat::Preserve;
  const bool is_plain = self.is_cuda() && self.layout() == c10::kStrided && !self.is_conj() && !self.is_neg() &&
                        self.is_non_overlapping_and_dense() && (self.dim() == 0 || !IsOfSizes(self));
  if (Recorder::Current() == nullptr || !wanted.has_value() || !preserves || !is_plain || IsBeingCaptured(keys)) return go_on();
  const bool same_dtype = wanted->dtype == c10::ScalarType::Undefined || wanted->dtype == self.scalar_type();
  if (!same_dtype || wanted->device.value_or(self.device()) != self.device()) return go_on();
  wanted->dtype = self.scalar_type();
  wanted->device = self.device();
  wanted->elements = self.numel();
  if (!wanted->IsDrawnLater()) return go_on();
  // A kernel of ours looks at no content; for ATen's, the tensor would have to be there.
  const bool like_sizes = wanted->IsMany() && self.is_contiguous();
  if (like_sizes ? RunsAside({&Allocating(), &Drawing()}, op, stack) : RunsAside({&Drawing()}, op, stack)) return;
  const auto like = [&] { return like_sizes ? OfSizes(self.sizes(), *wanted, keys) : self; };
  at::Tensor result = RecordRandom(keys, DistributionOf(info), *wanted, like, go_on);
  if (!result.defined()) return;
  torch::jit::drop(*stack, info.num_args);
  stack->emplace_back(std::move(result));
}

template <class Op>
at::Tensor RandKernel(c10::DispatchKeySet keys, c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype,
                      std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pin_memory) {
  if (!device.has_value() || !device->is_cuda()) {
    return Op::redispatch(KeysBelowGeneric(keys), size, dtype, layout, device, pin_memory);
  }
  torch::jit::Stack stack{size, dtype, layout, device, pin_memory};
  Rand(InfoOf<Op>(), keys, &stack);
  return std::move(stack[0]).toTensor();
}

template <class Op>
at::Tensor RandLikeKernel(c10::DispatchKeySet keys, const at::Tensor& self, std::optional<at::ScalarType> dtype,
                          std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pin_memory,
                          std::optional<at::MemoryFormat> memory_format) {
  if (!self.is_cuda()) return Op::redispatch(KeysBelowRecorder(keys), self, dtype, layout, device, pin_memory, memory_format);
  torch::jit::Stack stack{self, dtype, layout, device, pin_memory, memory_format};
  RandLike(InfoOf<Op>(), keys, &stack);
  return std::move(stack[0]).toTensor();
}

at::Tensor RandomLike(const at::Tensor& like, int64_t /*distribution*/, int64_t /*threads*/, const at::Scalar& /*seed*/,
                      const at::Scalar& /*offset*/, const at::Scalar& /*a*/, const at::Scalar& /*b*/) {
  return EmptyLike(like);
}

// By LibTorch's kernel, with the numbers that were taken.
at::Tensor DrawRandom(const at::Tensor& like, int64_t distribution, int64_t /*threads*/, const at::Scalar& seed, const at::Scalar& offset,
                      const at::Scalar& a, const at::Scalar& b) {
  at::Tensor result = EmptyLike(like);
  const runtime::NumbersOfCalls numbers(runtime::PhiloxState{static_cast<uint64_t>(seed.toLong()), static_cast<uint64_t>(offset.toLong())});
  return static_cast<Distribution>(distribution) == Distribution::kUniform ? result.uniform_(a.toDouble(), b.toDouble())
                                                                           : result.normal_(a.toDouble(), b.toDouble());
}

}  // namespace

RandomLaunch RandomLaunch::Of(int64_t elements, const runtime::CudaDeviceInfo& gpu) {
  constexpr int64_t kBlock = 256, kUnroll = 4;
  const int64_t most_blocks = gpu.multiprocessors * (gpu.threads / kBlock);
  const int64_t threads = kBlock * std::min(most_blocks, (elements + kBlock - 1) / kBlock);
  return {threads, ((elements - 1) / (threads * kUnroll) + 1) * kUnroll};
}

bool RegisterRandomKernels(torch::Library* generic, torch::Library* recorder) {
  for (const auto* info : {&InfoOf<at::_ops::uniform_>(), &InfoOf<at::_ops::normal_>(), &InfoOf<at::_ops::rand>(),
                           &InfoOf<at::_ops::randn>(), &InfoOf<at::_ops::rand_like>(), &InfoOf<at::_ops::randn_like>()}) {
    if (codegen::IsKernelReplaced(info->handle) || codegen::IsAutogradReplaced(info->handle)) return false;
  }
  generic->impl("aten::rand", TORCH_FN(&RandKernel<at::_ops::rand>));
  generic->impl("aten::randn", TORCH_FN(&RandKernel<at::_ops::randn>));
  recorder->impl("aten::rand_like", TORCH_FN(&RandLikeKernel<at::_ops::rand_like>));
  recorder->impl("aten::randn_like", TORCH_FN(&RandLikeKernel<at::_ops::randn_like>));
  for (const char* name : {"aten::rand", "aten::rand_like"}) NoteTwin("aten::uniform_", name);
  for (const char* name : {"aten::randn", "aten::randn_like"}) NoteTwin("aten::normal_", name);
  return true;
}

bool IsRandomLike(std::string_view name) {
  return name == InfoOf<at::_ops::rand_like>().name || name == InfoOf<at::_ops::randn_like>().name;
}

TORCH_LIBRARY_IMPL(lazuli, CUDA, m) { m.impl("_random", &DrawRandom); }
TORCH_LIBRARY_IMPL(lazuli, Meta, m) { m.impl("_random", &RandomLike); }

}  // namespace lazuli::tracer
