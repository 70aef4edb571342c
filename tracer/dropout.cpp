#include "tracer/dropout.h"

#include <ATen/Context.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/_fused_dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_dropout.h>
#include <torch/library.h>

#include <algorithm>

#include "runtime/cuda_driver.h"
#include "runtime/mode_keys.h"
#include "runtime/philox.h"
#include "tracer/captured_memory.h"
#include "tracer/dispatcher.h"
#include "tracer/random_numbers.h"

namespace lazuli::tracer {
namespace {

// The kernel vectorises, and so numbers its random draws, by alignment and strides.
constexpr int64_t kVectorBytes = 16;

at::Tensor WithoutContent(const at::Tensor& input) {
  const int64_t offset = input.storage_offset() % (kVectorBytes / static_cast<int64_t>(input.element_size()));
  int64_t elements = offset + 1;
  for (int64_t d = 0; d < input.dim(); ++d) elements += (input.size(d) - 1) * input.stride(d);
  at::Tensor memory = at::empty({elements}, input.options().requires_grad(false));
  memory.unsafeGetTensorImpl()->set_sizes_and_strides(input.sizes(), input.strides(), offset);
  return memory;
}

// Elements that a thread takes at a time.
int64_t VectorOf(const at::Tensor& input) {
  if (!input.is_non_overlapping_and_dense()) return 1;
  int64_t vector = kVectorBytes / static_cast<int64_t>(input.element_size());
  while (input.storage_offset() % vector != 0 || input.numel() % vector != 0) vector /= 2;
  return vector;
}

// One over the probability to be kept, as the kernel computes it: in the type that it multiplies in.
double ScaleOf(double probability, c10::ScalarType dtype) {
  const double kept = 1.0 - probability;
  return dtype == c10::ScalarType::Double ? 1.0 / kept : static_cast<double>(1.0f / static_cast<float>(kept));
}

at::Tensor MaskLike(const at::Tensor& like, int64_t /*vector*/, const at::Scalar& /*threads*/, const at::Scalar& /*keep*/,
                    const at::Scalar& /*seed*/, const at::Scalar& /*offset*/) {
  return at::empty_like(like, like.options().dtype(c10::ScalarType::Bool));
}

// By LibTorch's kernel, whose launch follows from the tensor as it did when the numbers were taken.
at::Tensor DrawMask(const at::Tensor& like, int64_t /*vector*/, const at::Scalar& /*threads*/, const at::Scalar& keep,
                    const at::Scalar& seed, const at::Scalar& offset) {
  // Not a copy of the default one, which the program may be capturing.
  at::Generator own = at::globalContext().getAcceleratorHooksInterface(c10::kCUDA).getNewGenerator(like.device().index());
  own.set_current_seed(static_cast<uint64_t>(seed.toLong()));
  own.set_offset(static_cast<uint64_t>(offset.toLong()));
  return std::get<1>(at::_fused_dropout(WithoutContent(like), keep.toDouble(), own)).view(c10::ScalarType::Bool);
}

// The mask of `input`, which the trace is to draw. Undefined, with nothing taken: that cannot be.
at::Tensor RecordMask(const at::Tensor& input, double probability, c10::DispatchKeySet keys) {
  static const codegen::OpInfo* const draw = codegen::FindOpInfo("lazuli::_dropout_mask");
  const absl::StatusOr<runtime::CudaDeviceInfo> gpu = runtime::GetCudaDeviceInfo(input.device().index());
  if (draw == nullptr || !gpu.ok()) return {};
  const RandomLaunch launch = RandomLaunch::Of(input.numel(), *gpu);
  const auto taken = runtime::TakeRandomNumbers(input.device(), static_cast<uint64_t>(launch.increment));
  if (!taken.has_value()) return {};
  torch::jit::Stack call{input,
                         VectorOf(input),
                         at::Scalar(launch.threads),
                         at::Scalar(1.0 - probability),
                         at::Scalar(static_cast<int64_t>(taken->seed)),
                         at::Scalar(static_cast<int64_t>(taken->offset))};
  RecordOrRun(*draw, keys, &call);
  return std::move(call[0]).toTensor();
}

at::Tensor DrawMaskNow(const at::Tensor& input, double probability) {
  const runtime::AtenScope scope;
  return std::get<1>(at::native_dropout(WithoutContent(input), probability, /*train=*/true));
}

}  // namespace

bool RecordDropout(Recorder* recorder, const codegen::OpInfo& info, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  static const codegen::OpInfo* const dropout = codegen::FindOpInfo("aten::native_dropout");
  static const codegen::OpInfo* const product = codegen::FindOpInfo("aten::native_dropout_backward");
  static const codegen::OpInfo* const mul = codegen::FindOpInfo("aten::mul.Tensor");
  if (&info != dropout || product == nullptr || mul == nullptr || recorder == nullptr) return false;
  const auto args = torch::jit::last(*stack, info.num_args);
  const at::Tensor input = args[0].toTensor();
  const double probability = args[1].toDouble();
  const bool trains = args[2].isNone() || args[2].toBool();
  const bool plain = input.defined() && input.is_cuda() && input.layout() == c10::kStrided && !input.is_conj() && !input.is_neg() &&
                     at::isFloatingType(input.scalar_type()) && input.numel() > 0;
  // A graph's numbers are those of its replays.
  if (!plain || !trains || !(probability > 0 && probability < 1) || IsBeingCaptured(keys)) return false;
  at::Tensor mask = RecordMask(input, probability, keys);
  if (!mask.defined()) mask = DrawMaskNow(input, probability);
  const double scale = ScaleOf(probability, input.scalar_type());
  torch::jit::Stack call{input, mask, scale};
  if (input.is_contiguous(input.suggest_memory_format())) {
    RecordOrRun(*product, keys, &call);
  } else {
    // The gradient's kernel gives its result another layout than the input's.
    call.pop_back();
    RecordOrRun(*mul, keys, &call);
    call.emplace_back(at::native::wrapped_scalar_tensor(scale));
    RecordOrRun(*mul, keys, &call);
  }
  torch::jit::drop(*stack, info.num_args);
  torch::jit::push(*stack, std::move(call[0]), std::move(mask));
  return true;
}

TORCH_LIBRARY_IMPL(lazuli, CUDA, m) { m.impl("_dropout_mask", &DrawMask); }
TORCH_LIBRARY_IMPL(lazuli, Meta, m) { m.impl("_dropout_mask", &MaskLike); }

}  // namespace lazuli::tracer
