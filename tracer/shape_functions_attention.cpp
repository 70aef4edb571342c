// Shape functions of attention on GPUs: by flash attention, by cuDNN, and memory-efficient. Heads are [batch, heads, length, width];
// several heads of queries may share one of keys.
#include <ATen/CompositeExplicitAutogradFunctions.h>
#include <ATen/EmptyTensor.h>

#include "tracer/attention_dropout.h"
#include "tracer/shape_function_table.h"

namespace lazuli::tracer {
namespace {

constexpr int64_t kVector = 8;         // Widths that all kernels take are multiples of this,
constexpr int64_t kWidest = 128;       // and at most this.
constexpr int64_t kLseAlignment = 32;  // Of memory-efficient attention's logsumexp.

bool IsHalf(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

struct Heads {
  at::Tensor query, key, value;
};

// args[first, first + 3). Nothing where a kernel may refuse them.
std::optional<Heads> HeadsArg(Args args, size_t first) {
  Heads h{TensorArg(args[first]), TensorArg(args[first + 1]), TensorArg(args[first + 2])};
  if (!AreAttentionHeads(h.query, h.key, h.value)) return std::nullopt;
  const int64_t width = h.query.size(3);
  const bool has_rows = h.query.stride(3) == 1 && h.key.stride(3) == 1 && h.value.stride(3) == 1;
  return has_rows && width % kVector == 0 && width <= kWidest ? std::make_optional(std::move(h)) : std::nullopt;
}

// No bias, or one that every kernel takes: a number for each query and key, or several for which it is the same.
bool IsBias(const at::Tensor& bias, const Heads& h) {
  if (!bias.defined()) return true;
  if (bias.dim() != 4 || bias.scalar_type() != h.query.scalar_type() || bias.size(2) != h.query.size(2)) return false;
  if (bias.size(3) != h.key.size(2) || bias.stride(3) != 1 || bias.stride(2) % (2 * kVector) != 0) return false;
  return (bias.size(0) == 1 || bias.size(0) == h.query.size(0)) && (bias.size(1) == 1 || bias.size(1) == h.query.size(1)) &&
         bias.stride(0) % kVector == 0 && bias.stride(1) % kVector == 0;
}

at::Tensor Like(const at::Tensor& tensor) { return at::compositeexplicitautograd::empty_like(tensor); }

// As a kernel allocates it that takes length before heads.
at::Tensor LikeTransposed(const at::Tensor& heads) { return Like(heads.transpose(1, 2)).transpose(1, 2); }

at::Tensor NumberOnCpu() { return at::detail::empty_cpu({}, at::kLong); }

// (query, key, value, dropout_p, is_causal, return_debug_mask, scale?)
Shapes FlashShape(Args args) {
  const std::optional<Heads> h = HeadsArg(args, 0);
  if (!h.has_value() || !IsHalf(h->query.scalar_type()) || args[5].toBool()) return {};
  const at::Tensor& query = h->query;
  // One query for many heads is many queries for few.
  const bool swapped = query.size(2) == 1 && query.size(1) > h->key.size(1) && args[3].toDouble() == 0;
  return {swapped ? FreshHeads(query) : LikeTransposed(query),
          Fresh({query.size(0), query.size(1), query.size(2)}, at::kFloat),
          at::Tensor(),
          at::Tensor(),
          NumberResult(query.size(2)),
          NumberResult(h->key.size(2)),
          Fresh({2}, at::kUInt64),
          Fresh({}, at::kUInt64),
          Fresh({0}, query.scalar_type())};
}

// (grad_out, query, key, value, out, logsumexp, ...)
Shapes FlashBackwardShape(Args args) {
  const std::optional<Heads> h = HeadsArg(args, 1);
  if (!h.has_value() || !IsHalf(h->query.scalar_type()) || !TensorArg(args[0]).sizes().equals(h->query.sizes())) return {};
  return {LikeTransposed(h->query), LikeTransposed(h->key), LikeTransposed(h->value)};
}

// (query, key, value, attn_bias?, compute_log_sumexp, dropout_p, is_causal, return_debug_mask, scale?)
Shapes CudnnShape(Args args) {
  const std::optional<Heads> h = HeadsArg(args, 0);
  if (!h.has_value() || !IsHalf(h->query.scalar_type()) || !IsBias(TensorArg(args[3]), *h) || args[7].toBool()) return {};
  const at::Tensor& query = h->query;
  return {Like(query),
          args[4].toBool() ? Fresh({query.size(0), query.size(1), query.size(2), 1}, at::kFloat) : at::Tensor(),
          at::Tensor(),
          at::Tensor(),
          NumberResult(query.size(2)),
          NumberResult(h->key.size(2)),
          Fresh({}, at::kLong),
          Fresh({}, at::kLong),
          at::Tensor()};
}

// (grad_out, query, key, value, out, logsumexp, philox_seed, philox_offset, attn_bias, ...)
Shapes CudnnBackwardShape(Args args) {
  const std::optional<Heads> h = HeadsArg(args, 1);
  if (!h.has_value() || !IsHalf(h->query.scalar_type()) || !TensorArg(args[0]).sizes().equals(h->query.sizes())) return {};
  if (!IsBias(TensorArg(args[8]), *h)) return {};
  return {Like(h->query), Like(h->key), Like(h->value)};
}

// (query, key, value, attn_bias?, compute_log_sumexp, dropout_p, is_causal, scale?)
Shapes EfficientShape(Args args) {
  const std::optional<Heads> h = HeadsArg(args, 0);
  if (!h.has_value() || h->query.size(1) != h->key.size(1) || !IsBias(TensorArg(args[3]), *h)) return {};
  const at::Tensor& query = h->query;
  const int64_t rows = args[4].toBool() ? (query.size(2) + kLseAlignment - 1) / kLseAlignment * kLseAlignment : 0;
  return {FreshHeads(query), Fresh({query.size(0), query.size(1), rows}, at::kFloat), NumberOnCpu(), NumberOnCpu()};
}

// (grad_out, query, key, value, attn_bias, out, logsumexp, philox_seed, philox_offset, dropout_p, grad_input_mask, ...): the bias's
// gradient has a layout of its own.
Shapes EfficientBackwardShape(Args args) {
  const std::optional<Heads> h = HeadsArg(args, 1);
  if (!h.has_value() || h->query.size(1) != h->key.size(1) || !TensorArg(args[0]).sizes().equals(h->query.sizes())) return {};
  const std::vector<bool> mask = MaskArg(args[10]);
  if (!IsBias(TensorArg(args[4]), *h) || !mask[0] || !mask[1] || !mask[2] || mask[3]) return {};
  return {FreshHeads(h->query), FreshHeads(h->key), FreshHeads(h->value), at::Tensor()};
}

}  // namespace

void AddGpuAttentionShapes(ShapeTable* table) {
  // These have two numbers more, at the end.
  table->emplace(AttentionWithDropout("_scaled_dot_product_flash_attention"), FlashShape);
  table->emplace(AttentionWithDropout("_scaled_dot_product_cudnn_attention"), CudnnShape);
  table->emplace(AttentionWithDropout("_scaled_dot_product_efficient_attention"), EfficientShape);
  table->emplace("aten::_scaled_dot_product_flash_attention", FlashShape);
  table->emplace("aten::_scaled_dot_product_flash_attention_backward", FlashBackwardShape);
  table->emplace("aten::_scaled_dot_product_cudnn_attention", CudnnShape);
  table->emplace("aten::_scaled_dot_product_cudnn_attention_backward", CudnnBackwardShape);
  table->emplace("aten::_scaled_dot_product_efficient_attention", EfficientShape);
  table->emplace("aten::_scaled_dot_product_efficient_attention_backward", EfficientBackwardShape);
}

}  // namespace lazuli::tracer
