#include "tracer/dropout.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_dropout.h>

#include "runtime/mode_keys.h"
#include "tracer/dispatcher.h"

namespace lazuli::tracer {
namespace {

// The kernel vectorises, and so numbers its random draws, by alignment and strides.
at::Tensor WithoutContent(const at::Tensor& input) {
  constexpr int64_t kVectorBytes = 16;
  const int64_t offset = input.storage_offset() % (kVectorBytes / static_cast<int64_t>(input.element_size()));
  int64_t elements = offset + 1;
  for (int64_t d = 0; d < input.dim(); ++d) elements += (input.size(d) - 1) * input.stride(d);
  at::Tensor memory = at::empty({elements}, input.options().requires_grad(false));
  memory.unsafeGetTensorImpl()->set_sizes_and_strides(input.sizes(), input.strides(), offset);
  return memory;
}

// One over the probability to be kept, as the kernel computes it: in the type that it multiplies in.
double ScaleOf(double probability, c10::ScalarType dtype) {
  const double kept = 1.0 - probability;
  return dtype == c10::ScalarType::Double ? 1.0 / kept : static_cast<double>(1.0f / static_cast<float>(kept));
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
                     !input.is_complex() && input.numel() > 0;
  if (!plain || !trains || !(probability > 0 && probability < 1)) return false;
  at::Tensor mask;
  {
    const runtime::AtenScope scope;
    mask = std::get<1>(at::native_dropout(WithoutContent(input), probability, /*train=*/true));
  }
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

}  // namespace lazuli::tracer
