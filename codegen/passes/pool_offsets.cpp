#include "codegen/passes/pool_offsets.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/remainder.h>
#include <torch/library.h>

#include <tuple>
#include <utility>
#include <vector>

#include "codegen/lower.h"
#include "codegen/passes/trace_uses.h"

namespace lazuli::codegen {
namespace {

constexpr int kIndices = 1;     // The result of the pool,
constexpr int kIndicesArg = 7;  // and the argument of its gradient.

// `op`, of the name `name`, with indices of bytes, where a kernel computes that.
std::optional<TraceOp> WithOffsets(const TraceOp& op, const char* name) {
  TraceOp changed = op;
  changed.info = FindOpInfo(name);
  TensorRef& indices = op.results.size() > kIndices ? changed.results[kIndices] : changed.args[kIndicesArg].tensors[0];
  indices.dtype = c10::kByte;
  return FindRow(changed) != nullptr ? std::optional(std::move(changed)) : std::nullopt;
}

// Of the places of `self` that windows chose: where these begin, along dimension `dim` of two.
at::Tensor Begins(const at::Tensor& windows, at::IntArrayRef stride, at::IntArrayRef padding, size_t dim) {
  const auto number = [dim](at::IntArrayRef list) { return list[list.size() == 1 ? 0 : dim]; };
  const at::Tensor places = at::arange(windows.size(static_cast<int64_t>(dim) - 2), windows.options().dtype(at::kLong));
  const at::Tensor begins = places * number(stride) - number(padding);
  return dim == 0 ? begins.unsqueeze(1) : begins;
}

// What kernels compute with bytes, by ATen's operators.
std::tuple<at::Tensor, at::Tensor> MaxPoolWithOffsets(const at::Tensor& self, at::IntArrayRef kernel, at::IntArrayRef stride,
                                                      at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode) {
  auto [result, indices] = at::max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil_mode);
  const at::IntArrayRef steps = stride.empty() ? kernel : stride;
  const int64_t width = self.size(-1);
  const at::Tensor row = at::floor_divide(indices, width) - Begins(indices, steps, padding, 0);
  const at::Tensor column = at::remainder(indices, width) - Begins(indices, steps, padding, 1);
  return {result, (row * kernel[kernel.size() == 1 ? 0 : 1] + column).to(at::kByte)};
}

at::Tensor MaxPoolWithOffsetsBackward(const at::Tensor& grad, const at::Tensor& self, at::IntArrayRef kernel, at::IntArrayRef stride,
                                      at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode, const at::Tensor& offsets) {
  const at::IntArrayRef steps = stride.empty() ? kernel : stride;
  const int64_t columns = kernel[kernel.size() == 1 ? 0 : 1];
  const at::Tensor wide = offsets.to(at::kLong);
  const at::Tensor row = at::floor_divide(wide, columns) + Begins(offsets, steps, padding, 0);
  const at::Tensor column = at::remainder(wide, columns) + Begins(offsets, steps, padding, 1);
  return at::max_pool2d_with_indices_backward(grad, self, kernel, stride, padding, dilation, ceil_mode, row * self.size(-1) + column);
}

TORCH_LIBRARY_FRAGMENT(lazuli, m) {
  m.def(
      "_max_pool2d_with_offsets(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, "
      "bool ceil_mode=False) -> (Tensor, Tensor)");
  m.def(
      "_max_pool2d_with_offsets_backward(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, int[2] padding, "
      "int[2] dilation, bool ceil_mode, Tensor offsets) -> Tensor");
}
TORCH_LIBRARY_IMPL(lazuli, CUDA, m) {
  m.impl("_max_pool2d_with_offsets", &MaxPoolWithOffsets);
  m.impl("_max_pool2d_with_offsets_backward", &MaxPoolWithOffsetsBackward);
}
TORCH_LIBRARY_IMPL(lazuli, CPU, m) {
  m.impl("_max_pool2d_with_offsets", &MaxPoolWithOffsets);
  m.impl("_max_pool2d_with_offsets_backward", &MaxPoolWithOffsetsBackward);
}

}  // namespace

std::optional<Trace> UsePoolOffsets(const Trace& trace) {
  std::optional<Trace> changed;
  for (size_t i = 0; i < trace.ops.size(); ++i) {
    const TraceOp& pool = trace.ops[i];
    if (pool.info->name != "aten::max_pool2d_with_indices" || !pool.device.is_cuda() || !pool.results[kIndices].defined()) continue;
    const TensorRef& indices = pool.results[kIndices];
    const auto storage = static_cast<size_t>(indices.storage);
    std::optional<TraceOp> with_offsets = WithOffsets(pool, "lazuli::_max_pool2d_with_offsets");
    if (trace.storages[storage].live_out || !with_offsets.has_value()) continue;
    std::vector<std::pair<size_t, TraceOp>> gradients;
    bool fits = true;
    for (size_t j = i + 1; j < trace.ops.size() && fits; ++j) {
      const TraceOp& user = trace.ops[j];
      for (size_t a = 0; a < user.args.size(); ++a) {
        for (const TensorRef& use : user.args[a].tensors) {
          if (use.storage != indices.storage) continue;
          const bool own = user.info->name == "aten::max_pool2d_with_indices_backward" && a == kIndicesArg && IsAllOf(use, indices);
          std::optional<TraceOp> gradient = own ? WithOffsets(user, "lazuli::_max_pool2d_with_offsets_backward") : std::nullopt;
          fits = gradient.has_value() && FindRow(*gradient)->made_by(*gradient, *with_offsets);
          if (fits) gradients.emplace_back(j, *std::move(gradient));
        }
      }
    }
    if (!fits || gradients.empty()) continue;
    if (!changed.has_value()) changed = trace;
    changed->ops[i] = *std::move(with_offsets);
    changed->storages[storage].nbytes = indices.numel();
    for (auto& [at, gradient] : gradients) changed->ops[at] = std::move(gradient);
  }
  return changed;
}

}  // namespace lazuli::codegen
