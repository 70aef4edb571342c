#include <ATen/AccumulateType.h>

#include <utility>

#include "tracer/shape_function_table.h"
#include "tracer/shape_functions.h"

namespace lazuli::tracer {
namespace {

// (input, weight?, bias?, running_mean?, running_var?, training, momentum, eps): statistics are saved in evaluation, too, and wide ones.
Shapes BatchNormShape(Args args) {
  Shapes results = (*FindShapeFunction("aten::native_batch_norm"))(args);
  if (results.empty()) return results;
  const at::Tensor input = TensorArg(args[0]);
  const at::ScalarType wide = at::toAccumulateType(input.scalar_type(), c10::kCUDA);
  results[1] = results[2] = Fresh({input.size(1)}, wide);
  return results;
}

// (grad_out, input, ..., train, eps, output_mask): in evaluation the gradient is that of a pointwise operator.
Shapes BatchNormBackwardShape(Args args) {
  Shapes results = (*FindShapeFunction("aten::native_batch_norm_backward"))(args);
  const bool train = args[7].toBool();
  if (results.empty() || train || !results[0].defined()) return results;
  results[0] = PointwiseResult({TensorArg(args[0]), TensorArg(args[1])}, results[0].scalar_type());
  return results;
}

// (grad, mask, scale): the CPU's lies as the gradient does.
Shapes DropoutBackwardShape(Args args) {
  const Shapes results = (*FindShapeFunction("aten::native_dropout_backward"))(args);
  if (results.empty()) return {};
  const at::Tensor grad = TensorArg(args[0]);
  return {Fresh(grad.sizes(), grad.scalar_type(), grad.suggest_memory_format())};
}

// cuFFT and the solvers choose layouts by their plans, and by how many there are.
constexpr const char* kUnknown[] = {
    "aten::_fft_c2c",
    "aten::_fft_c2r",
    "aten::_fft_r2c",
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
  table->emplace("aten::native_dropout_backward", DropoutBackwardShape);
  for (const char* name : kUnknown) table->emplace(name, nullptr);
}

}  // namespace lazuli::tracer
