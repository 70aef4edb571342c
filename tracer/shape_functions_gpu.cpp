#include <ATen/AccumulateType.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "runtime/open_library.h"
#include "tracer/shape_function_table.h"
#include "tracer/shape_functions.h"

namespace lazuli::tracer {
namespace {

// Whether args[first, last) are numbers of so many channels, in the input's dtype or the one it is computed in, or absent.
bool AreOfChannels(Args args, int first, int last, const at::Tensor& input) {
  const auto dtype = input.scalar_type();
  return std::all_of(args.begin() + first, args.begin() + last, [&](const c10::IValue& arg) {
    const at::Tensor tensor = TensorArg(arg);
    if (!tensor.defined()) return true;
    const bool fits = tensor.scalar_type() == dtype || tensor.scalar_type() == at::toAccumulateType(dtype, c10::kCUDA);
    return fits && tensor.dim() == 1 && tensor.size(0) == input.size(1);
  });
}

bool IsBatch(const at::Tensor& input) { return HaveOneFloatDtype({input}) && input.dim() >= 2 && input.numel() != 0; }

at::Tensor ChannelsIf(bool wanted, const at::Tensor& input, const at::Tensor& like) {
  return wanted ? Fresh({input.size(1)}, (like.defined() ? like : input).scalar_type()) : at::Tensor();
}

// (input, weight?, bias?, running_mean?, running_var?, training, momentum, eps): statistics are saved in evaluation, too, and wide ones.
Shapes BatchNormShape(Args args) {
  const at::Tensor input = TensorArg(args[0]);
  if (!IsBatch(input) || !FormatOf(input).has_value() || !AreOfChannels(args, 1, 5, input)) return {};
  if (!args[5].toBool() && (!TensorArg(args[3]).defined() || !TensorArg(args[4]).defined())) return {};
  const at::Tensor statistics = Fresh({input.size(1)}, at::toAccumulateType(input.scalar_type(), c10::kCUDA));
  return {Fresh(input.sizes(), input.scalar_type(), *FormatOf(input)), statistics, Fresh(statistics.sizes(), statistics.scalar_type())};
}

// (grad_out, input, weight?, running_mean?, running_var?, save_mean?, save_invstd?, train, eps, output_mask): in evaluation the gradient is
// that of a pointwise operator.
Shapes BatchNormBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]), input = TensorArg(args[1]), weight = TensorArg(args[2]);
  if (!IsBatch(input) || !FormatOf(input).has_value() || !FormatOf(grad).has_value() || !HaveOneFloatDtype({grad, input})) return {};
  if (!grad.sizes().equals(input.sizes()) || !AreOfChannels(args, 2, 7, input)) return {};
  const std::vector<bool> mask = MaskArg(args[9]);
  Shapes results = {at::Tensor(), ChannelsIf(mask[1], input, weight), ChannelsIf(mask[2], input, weight)};
  if (mask[0] && args[7].toBool()) results[0] = Fresh(input.sizes(), input.scalar_type(), *FormatOf(input));
  if (mask[0] && !args[7].toBool()) results[0] = PointwiseResult({grad, input}, input.scalar_type());
  return results;
}

// Bytes that cuDNN keeps of a training step for its gradient; -1 if LibTorch doesn't say.
int64_t CudnnReserveBytes(const at::Tensor& input, c10::Device device) {
  static auto* const reserve_size =
      runtime::FindInTorchCuda<size_t(const at::Tensor&, bool)>("_ZN2at6native40_get_cudnn_batch_norm_reserve_space_sizeERKNS_6TensorEb");
  if (reserve_size == nullptr) return -1;
  const c10::DeviceGuard guard(device);
  return static_cast<int64_t>(reserve_size(input, /*training=*/true));
}

// (input, weight, bias?, running_mean?, running_var?, training, momentum, eps): statistics are those of a batch alone.
Shapes CudnnBatchNormShape(Args args) {
  const at::Tensor input = TensorArg(args[0]);
  const bool training = args[5].toBool();
  if (!IsBatch(input) || !AreOfChannels(args, 1, 5, input)) return {};
  const at::Tensor result = Fresh(input.sizes(), input.scalar_type(), input.suggest_memory_format());
  const int64_t reserved = training ? CudnnReserveBytes(result, input.device()) : 0;
  if (reserved < 0) return {};
  const int64_t saved = training ? input.size(1) : 0;
  const auto dtype = TensorArg(args[1]).scalar_type();
  return {result, Fresh({saved}, dtype), Fresh({saved}, dtype), Fresh({reserved}, at::kByte)};
}

// (input, grad_out, weight, running_mean?, running_var?, save_mean?, save_var?, eps, reserve)
Shapes CudnnBatchNormBackwardShape(Args args) {
  const at::Tensor input = TensorArg(args[0]), weight = TensorArg(args[2]);
  if (!IsBatch(input) || !TensorArg(args[1]).sizes().equals(input.sizes()) || !AreOfChannels(args, 2, 7, input)) return {};
  return {Fresh(input.sizes(), input.scalar_type(), input.suggest_memory_format()), ChannelsIf(true, input, weight),
          ChannelsIf(true, input, weight)};
}

// As the CPU's, but that statistics are wide.
Shapes LayerNormShape(Args args) {
  Shapes results = (*FindShapeFunction("aten::native_layer_norm"))(args);
  if (results.empty()) return {};
  const auto wide = at::toAccumulateType(results[0].scalar_type(), c10::kCUDA);
  for (size_t i = 1; i < results.size(); ++i) results[i] = Fresh(results[i].sizes(), wide);
  return results;
}

Shapes LayerNormBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]);
  std::vector<c10::IValue> narrow(args.begin(), args.end());
  for (size_t i = 3; i < 5; ++i) {
    if (TensorArg(args[i]).scalar_type() != at::toAccumulateType(grad.scalar_type(), c10::kCUDA)) return {};
    narrow[i] = Fresh(TensorArg(args[i]).sizes(), grad.scalar_type());
  }
  return (*FindShapeFunction("aten::native_layer_norm_backward"))(narrow);
}

// (grad_out, input, normalized_shape, rstd, weight?, output_mask)
Shapes RmsNormBackwardShape(Args args) {
  const at::Tensor grad = TensorArg(args[0]), input = TensorArg(args[1]), weight = TensorArg(args[4]);
  if (!HaveOneFloatDtype({grad, input}) || !grad.sizes().equals(input.sizes())) return {};
  const std::vector<bool> mask = MaskArg(args[5]);
  if (mask[1] && !weight.defined()) return {};
  return {mask[0] ? Fresh(input.sizes(), input.scalar_type()) : at::Tensor(),
          mask[1] ? Fresh(weight.sizes(), weight.scalar_type()) : at::Tensor()};
}

// (grad, mask, scale): the CPU's lies as the gradient does.
Shapes CudaDropoutBackwardShape(Args args) {
  const Shapes results = (*FindShapeFunction("aten::native_dropout_backward"))(args);
  if (results.empty()) return {};
  const at::Tensor grad = TensorArg(args[0]);
  return {Fresh(grad.sizes(), grad.scalar_type(), grad.suggest_memory_format())};
}

// (self, dims, ...): cuFFT's plans go through dimensions as they lie, which is in order for the last one of a contiguous operand.
Shapes CudaFftShape(const char* name, Args args) { return IntsArg(args[1]).size() == 1 ? (*FindShapeFunction(name))(args) : Shapes(); }

Shapes CudaFftC2cShape(Args args) { return CudaFftShape("aten::_fft_c2c", args); }
Shapes CudaFftC2rShape(Args args) { return CudaFftShape("aten::_fft_c2r", args); }
Shapes CudaFftR2cShape(Args args) { return CudaFftShape("aten::_fft_r2c", args); }

// The solvers choose layouts by how many there are.
constexpr const char* kUnknown[] = {
    "aten::_linalg_svd",
    "aten::cholesky",
    "aten::cholesky_inverse",
    "aten::geqrf",
    "aten::_cholesky_solve_helper",
    "aten::linalg_matrix_exp",
    "aten::linalg_householder_product",
    "aten::linalg_solve_triangular",
};

}  // namespace

void AddGpuShapes(ShapeTable* table) {
  table->emplace("aten::native_batch_norm", BatchNormShape);
  table->emplace("aten::_native_batch_norm_legit", BatchNormShape);
  table->emplace("aten::native_batch_norm_backward", BatchNormBackwardShape);
  table->emplace("aten::cudnn_batch_norm", CudnnBatchNormShape);
  table->emplace("aten::cudnn_batch_norm_backward", CudnnBatchNormBackwardShape);
  table->emplace("aten::native_layer_norm", LayerNormShape);
  table->emplace("aten::native_layer_norm_backward", LayerNormBackwardShape);
  table->emplace("aten::_fused_rms_norm_backward", RmsNormBackwardShape);
  table->emplace("aten::native_dropout_backward", CudaDropoutBackwardShape);
  table->emplace("aten::_fft_c2c", CudaFftC2cShape);
  table->emplace("aten::_fft_c2r", CudaFftC2rShape);
  table->emplace("aten::_fft_r2c", CudaFftR2cShape);
  for (const char* name : kUnknown) table->emplace(name, nullptr);
}

}  // namespace lazuli::tracer
