#include "tracer/above_autograd.h"

#include <torch/csrc/autograd/variable.h>

namespace lazuli::tracer {

bool HasTangent(const at::Tensor& tensor) {
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  // A view may take its base's.
  const auto* const meta = static_cast<const torch::autograd::AutogradMeta*>(impl->autograd_meta());
  if (meta->fw_grad_ == nullptr && !meta->is_view_) return false;
  return impl->_fw_grad(/*level=*/0, tensor).defined();
}

}  // namespace lazuli::tracer
