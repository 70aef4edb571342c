#include "tracer/lazy_signs.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_conj_physical.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/neg.h>

#include <vector>

namespace lazuli::tracer {
namespace {

bool HasSign(const at::Tensor& tensor) { return tensor.defined() && (tensor.is_conj() || tensor.is_neg()); }

at::Tensor Resolved(const at::Tensor& tensor) {
  at::Tensor result = tensor;
  if (tensor.is_conj()) result = at::_conj(result);
  if (tensor.is_neg()) result = at::_neg_view(result);
  // In ATen's order, which zeros' signs tell.
  if (tensor.is_neg()) result = at::neg(result);
  if (tensor.is_conj()) result = at::_conj_physical(result);
  return result;
}

}  // namespace

bool ResolveSigns(const codegen::OpInfo& info, torch::jit::Stack* stack) {
  if (info.name == "aten::dot" || info.name == "aten::vdot") return false;  // Their results may have the bit.
  bool any = false;
  const size_t first = stack->size() - static_cast<size_t>(info.num_args);
  for (size_t i = 0; i < static_cast<size_t>(info.num_args); ++i) {
    c10::IValue& value = (*stack)[first + i];
    if ((info.mutated_args >> i & 1) != 0) continue;
    if (value.isTensor() && HasSign(value.toTensor())) {
      value = Resolved(value.toTensor());
      any = true;
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> tensors = value.toTensorVector();
      bool changed = false;
      for (at::Tensor& tensor : tensors) {
        if (!HasSign(tensor)) continue;
        tensor = Resolved(tensor);
        changed = true;
      }
      if (changed) value = std::move(tensors);
      any = any || changed;
    }
  }
  return any;
}

}  // namespace lazuli::tracer
