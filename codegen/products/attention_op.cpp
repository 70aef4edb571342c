#include "codegen/products/attention_op.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/matmul.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "codegen/ir/dtypes.h"
#include "codegen/products/attention.h"
#include "codegen/products/attention_calls.h"
#include "runtime/counters.h"

namespace lazuli::codegen {
namespace {

constexpr double kHiddenScore = -std::numeric_limits<double>::infinity();

using OptionalTensor = std::optional<at::Tensor>;
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

struct AttentionProblem {
  const at::Tensor& query;
  const at::Tensor& key;
  const at::Tensor& value;
  double scale;  // Scores are multiplied by it.
  const OptionalTensor& bias;
  const OptionalTensor& filled;
  bool keeps;
  double fill;
  bool fixed;

  bool has_bias() const { return bias.has_value() && bias->defined(); }
  bool has_filled() const { return filled.has_value() && filled->defined(); }
};

double NumberOf(const OptionalTensor& number, double otherwise) {
  return number.has_value() && number->defined() ? number->item().toDouble() : otherwise;
}

double FactorOf(const OptionalTensor& scale, bool divides) {
  const double number = NumberOf(scale, 1);
  return divides ? 1 / number : number;
}

// Where scores are filled.
at::Tensor FilledOf(const AttentionProblem& p) { return p.keeps ? p.filled->logical_not() : *p.filled; }

at::Tensor EmptyHeads(const at::Tensor& like, int64_t order) {
  return at::empty_strided(like.sizes(), StridesOf(like.sizes(), static_cast<HeadOrder>(order)), like.options());
}

// `tensor`, laid out so.
at::Tensor InOrder(const at::Tensor& tensor, const at::Tensor& like, int64_t order) {
  const c10::DimVector strides = StridesOf(like.sizes(), static_cast<HeadOrder>(order));
  bool is_so = tensor.scalar_type() == like.scalar_type();
  for (int64_t d = 0; d < tensor.dim(); ++d) is_so = is_so && (tensor.size(d) == 1 || tensor.stride(d) == strides[d]);
  return is_so ? tensor : EmptyHeads(like, order).copy_(tensor);
}

// False: it is not for attention.h.
bool DescribeForCpu(const AttentionProblem& p, Attention* attention) {
  if (!p.query.is_cpu() || !DescribeAttention(p.query, p.key, p.value, attention)) return false;
  if (p.has_bias()) {
    if (p.bias->scalar_type() != at::kFloat) return false;
    attention->bias = TableOf(*p.bias, *attention, p.bias->const_data_ptr<float>());
  }
  if (p.has_filled()) {
    if (p.filled->scalar_type() != at::kBool) return false;
    attention->filled = TableOf(*p.filled, *attention, reinterpret_cast<const uint8_t*>(p.filled->const_data_ptr<bool>()));
    attention->keeps = p.keeps;
  }
  attention->scale = static_cast<float>(p.scale);
  attention->fill = static_cast<float>(p.fill);
  attention->zero_if_unseen = false;
  return true;
}

// [batch, heads, queries, 2]: the largest score, and the logarithm of the sum of exp(score - largest).
void SetLogsumexp(const at::Tensor& parts, float* data, Attention* attention) {
  attention->max = {data, parts.stride(0), parts.stride(1), parts.stride(2)};
  attention->logsumexp = {data + 1, parts.stride(0), parts.stride(1), parts.stride(2)};
}

bool SuitsGpu(const AttentionProblem& p) {
  if (!p.query.is_cuda() || !IsHalf(p.query.scalar_type()) || p.query.numel() == 0 || p.key.numel() == 0) return false;
  if (!IsWidthForGpu(p.query.size(3)) || p.value.size(3) != p.query.size(3)) return false;
  return HasWholeVectors(p.query) && HasWholeVectors(p.key) && HasWholeVectors(p.value);
}

// Bias and fills as what is added to scores, a number for each query and key; undefined where there are none. NaN for a query that sees
// nothing, as softmax gives it. Rows are as far apart as kernels want them.
at::Tensor AddedToScores(const AttentionProblem& p) {
  if (!p.has_bias() && !p.has_filled()) return {};
  const int64_t queries = p.query.size(2), keys = p.key.size(2);
  int64_t shared[] = {1, 1};
  for (const OptionalTensor* table : {&p.bias, &p.filled}) {
    for (int64_t d = 0; d < 2 && table->has_value() && (*table)->defined(); ++d) {
      if ((*table)->dim() >= 4 - d) shared[d] = std::max(shared[d], (*table)->size((*table)->dim() - 4 + d));
    }
  }
  constexpr int64_t kApart = 16;
  at::Tensor added = at::empty({shared[0], shared[1], queries, (keys + kApart - 1) / kApart * kApart}, p.query.options());
  added = added.slice(3, 0, keys);
  if (p.has_bias()) {
    added.copy_(*p.bias);
  } else {
    added.zero_();
  }
  if (p.has_filled()) added.masked_fill_(FilledOf(p), p.fill);
  return added.masked_fill_(added.amax({-1}, /*keepdim=*/true).eq(kHiddenScore), std::numeric_limits<double>::quiet_NaN());
}

enum class GpuAttention : uint8_t { kCudnn, kFlash, kProducts };

// `added`: AddedToScores(p), where the kernel is to be told.
GpuAttention GpuAttentionOf(const AttentionProblem& p, at::Tensor* added) {
  if (!SuitsGpu(p) || (p.has_filled() && p.fill != kHiddenScore)) return GpuAttention::kProducts;
  constexpr int64_t kCudnnChosen = 3;  // at::SDPBackend::cudnn_attention.
  const at::Context& context = at::globalContext();
  // It throws where what the program allows takes nothing, which the formula's products never do.
  if (p.fixed && context.userEnabledCuDNNSDP() && context.userEnabledMathSDP()) {
    *added = AddedToScores(p);
    const OptionalTensor mask = added->defined() ? OptionalTensor(*added) : std::nullopt;
    if (at::_fused_sdp_choice(p.query, p.key, p.value, mask, 0.0, false, p.scale) == kCudnnChosen) return GpuAttention::kCudnn;
  }
  return p.has_bias() || p.has_filled() || !context.userEnabledFlashSDP() ? GpuAttention::kProducts : GpuAttention::kFlash;
}

at::Tensor UnfusedScores(const AttentionProblem& p) {
  at::Tensor scores = at::matmul(p.query, p.key.transpose(-2, -1));
  scores = scores.mul_(p.scale);
  if (p.has_bias()) scores = scores.add_(*p.bias);
  if (p.has_filled()) scores = scores.masked_fill_(FilledOf(p), p.fill);
  return scores;
}

std::tuple<at::Tensor, at::Tensor> ComputeAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                                    const OptionalTensor& scale, bool divides, const OptionalTensor& bias,
                                                    const OptionalTensor& filled, bool keeps, const OptionalTensor& fill,
                                                    c10::IntArrayRef orders, bool fixed) {
  const AttentionProblem p{query, key, value, FactorOf(scale, divides), bias, filled, keeps, NumberOf(fill, kHiddenScore), fixed};
  runtime::Counters& counters = runtime::Counters::Get();
  at::Tensor added;
  const GpuAttention kernel = GpuAttentionOf(p, &added);
  if (kernel == GpuAttention::kCudnn) {
    counters.fused_attentions.Add();
    const OptionalTensor mask = added.defined() ? OptionalTensor(added) : std::nullopt;
    auto results = at::_scaled_dot_product_cudnn_attention(query, key, value, mask, true, 0.0, false, false, p.scale);
    return {InOrder(std::get<0>(results), query, orders[0]), std::get<1>(results).squeeze(-1)};
  }
  if (kernel == GpuAttention::kFlash) {
    counters.fused_attentions.Add();
    auto results = at::_scaled_dot_product_flash_attention(query, key, value, 0.0, false, false, p.scale);
    return {InOrder(std::get<0>(results), query, orders[0]), std::get<1>(results)};
  }
  // On the CPU the largest score and the rest.
  at::DimVector sizes = {query.size(0), query.size(1), query.size(2)};
  if (query.is_cpu()) sizes.push_back(2);
  at::Tensor logsumexp = at::empty(sizes, query.options().dtype(at::kFloat));
  Attention attention;
  if (DescribeForCpu(p, &attention)) {
    counters.fused_attentions.Add();
    at::Tensor y = EmptyHeads(query, orders[0]);
    attention.y = RowsOf(y, y.mutable_data_ptr<float>());
    SetLogsumexp(logsumexp, logsumexp.mutable_data_ptr<float>(), &attention);
    RunAttention(attention);
    return {std::move(y), std::move(logsumexp)};
  }
  counters.unfused_attentions.Add();
  const at::Tensor scores = UnfusedScores(p);
  logsumexp.fill_(std::numeric_limits<double>::quiet_NaN());  // UnfusedGradients does without it.
  return {InOrder(at::matmul(at::_softmax(scores, -1, false), value), query, orders[0]), std::move(logsumexp)};
}

Gradients UnfusedGradients(const at::Tensor& grad, const AttentionProblem& p, double grad_scale, double grad_fill,
                           c10::IntArrayRef orders) {
  const at::Tensor weights = at::_softmax(UnfusedScores(p), -1, false);
  const at::Tensor grad_v = at::matmul(weights.transpose(-2, -1), grad);
  at::Tensor grad_scores = at::_softmax_backward_data(at::matmul(grad, p.value.transpose(-2, -1)), weights, -1, weights.scalar_type());
  if (p.has_filled()) grad_scores = grad_scores.masked_fill_(FilledOf(p), grad_fill);
  grad_scores = grad_scores.mul_(grad_scale);
  return {InOrder(at::matmul(grad_scores, p.key), p.query, orders[0]),
          InOrder(at::matmul(grad_scores.transpose(-2, -1), p.query), p.key, orders[1]), InOrder(grad_v, p.value, orders[2])};
}

Gradients GradientsOnCpu(const at::Tensor& grad, const at::Tensor& y, const at::Tensor& logsumexp, AttentionGradient* gradient,
                         const AttentionProblem& p, c10::IntArrayRef orders) {
  const auto result = [&](const at::Tensor& like, int64_t order) {
    const bool has_rows = static_cast<HeadOrder>(order) != HeadOrder::kHeadsColumns;
    return EmptyHeads(like, has_rows ? order : static_cast<int64_t>(HeadOrder::kHeadsRows));
  };
  const at::Tensor grad_rows = HasHeadRows(grad) ? grad : grad.contiguous();
  at::Tensor grad_q = result(p.query, orders[0]), grad_k = result(p.key, orders[1]), grad_v = result(p.value, orders[2]);
  // Only read.
  gradient->attention.y = RowsOf(y, const_cast<float*>(y.const_data_ptr<float>()));
  SetLogsumexp(logsumexp, const_cast<float*>(logsumexp.const_data_ptr<float>()), &gradient->attention);
  gradient->grad_y = RowsOf(grad_rows, grad_rows.const_data_ptr<float>());
  gradient->grad_q = RowsOf(grad_q, grad_q.mutable_data_ptr<float>());
  gradient->grad_k = RowsOf(grad_k, grad_k.mutable_data_ptr<float>());
  gradient->grad_v = RowsOf(grad_v, grad_v.mutable_data_ptr<float>());
  RunAttentionGradient(*gradient);
  return {InOrder(grad_q, p.query, orders[0]), InOrder(grad_k, p.key, orders[1]), InOrder(grad_v, p.value, orders[2])};
}

Gradients GradientsOnGpu(GpuAttention kernel, const at::Tensor& grad, const at::Tensor& y, const at::Tensor& logsumexp,
                         const AttentionProblem& p, const at::Tensor& added, c10::IntArrayRef orders) {
  const at::Tensor grad_rows = HasWholeVectors(grad) ? grad : grad.contiguous();
  const int64_t queries = p.query.size(2), keys = p.key.size(2);
  // The seed and offset of a dropout that there is not.
  const auto unused = [&](at::IntArrayRef sizes, at::ScalarType type) { return at::empty(sizes, p.query.options().dtype(type)); };
  const auto [grad_q, grad_k, grad_v] =
      kernel == GpuAttention::kCudnn
          ? at::_scaled_dot_product_cudnn_attention_backward(grad_rows, p.query, p.key, p.value, y, logsumexp.unsqueeze(-1),
                                                             unused({}, at::kLong), unused({}, at::kLong), added, {}, {}, queries, keys,
                                                             0.0, false, p.scale)
          : at::_scaled_dot_product_flash_attention_backward(grad_rows, p.query, p.key, p.value, y, logsumexp, {}, {}, queries, keys, 0.0,
                                                             false, unused({2}, at::kUInt64), unused({}, at::kUInt64), p.scale);
  return {InOrder(grad_q, p.query, orders[0]), InOrder(grad_k, p.key, orders[1]), InOrder(grad_v, p.value, orders[2])};
}

Gradients ComputeGradients(const at::Tensor& grad, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const at::Tensor& y, const at::Tensor& logsumexp, const OptionalTensor& scale, bool divides,
                           const OptionalTensor& bias, const OptionalTensor& filled, bool keeps, const OptionalTensor& fill,
                           const OptionalTensor& grad_scale, const OptionalTensor& grad_fill, c10::IntArrayRef orders, bool fixed) {
  const AttentionProblem p{query, key, value, FactorOf(scale, divides), bias, filled, keeps, NumberOf(fill, kHiddenScore), fixed};
  const double grad_factor = FactorOf(grad_scale, divides);
  const double grad_filled = NumberOf(grad_fill, 0);
  const bool is_gradient = grad_factor == p.scale && grad_filled == 0 && value.sizes() == key.sizes();
  runtime::Counters& counters = runtime::Counters::Get();
  AttentionGradient gradient;
  at::Tensor added;
  const GpuAttention kernel = is_gradient ? GpuAttentionOf(p, &added) : GpuAttention::kProducts;
  if (kernel != GpuAttention::kProducts) {
    counters.fused_attentions.Add();
    return GradientsOnGpu(kernel, grad, y, logsumexp, p, added, orders);
  }
  if (is_gradient && HasHeadRows(y) && DescribeForCpu(p, &gradient.attention)) {
    counters.fused_attentions.Add();
    return GradientsOnCpu(grad, y, logsumexp, &gradient, p, orders);
  }
  counters.unfused_attentions.Add();
  return UnfusedGradients(grad, p, grad_factor, grad_filled, orders);
}

TORCH_LIBRARY_FRAGMENT(lazuli, m) {
  m.def(
      "_attention(Tensor query, Tensor key, Tensor value, Tensor? scale, bool divides, Tensor? bias, Tensor? filled, bool keeps,"
      " Tensor? fill, int[] orders, bool fixed) -> (Tensor, Tensor)");
  m.def(
      "_attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor y, Tensor logsumexp, Tensor? scale, bool divides,"
      " Tensor? bias, Tensor? filled, bool keeps, Tensor? fill, Tensor? grad_scale, Tensor? grad_fill, int[] orders, bool fixed)"
      " -> (Tensor, Tensor, Tensor)");
}

void ImplementAttention(torch::Library& m) {
  m.impl("_attention", &ComputeAttention);
  m.impl("_attention_backward", &ComputeGradients);
}

TORCH_LIBRARY_IMPL(lazuli, CPU, m) { ImplementAttention(m); }
TORCH_LIBRARY_IMPL(lazuli, CUDA, m) { ImplementAttention(m); }

}  // namespace

bool HasWholeVectors(const at::Tensor& heads) {
  constexpr int64_t kVectorBytes = 16, kVector = 8;
  bool has = heads.stride(3) == 1 && reinterpret_cast<uintptr_t>(heads.const_data_ptr()) % kVectorBytes == 0;
  for (int64_t d = 0; d < 3; ++d) has = has && (heads.size(d) == 1 || (heads.stride(d) > 0 && heads.stride(d) % kVector == 0));
  return has;
}

c10::DimVector StridesOf(c10::IntArrayRef heads, HeadOrder order) {
  const int64_t count = heads[1], rows = heads[2], width = heads[3];
  switch (order) {
    case HeadOrder::kHeadsRows:
      return {count * rows * width, rows * width, width, 1};
    case HeadOrder::kRowsHeads:
      return {rows * count * width, width, count * width, 1};
    case HeadOrder::kHeadsColumns:
      return {count * width * rows, width * rows, 1, rows};
  }
  TORCH_CHECK(false, "no such order of heads: ", static_cast<int64_t>(order));
}

const OpInfo* AttentionOp() {
  static const OpInfo* const info = FindOpInfo("lazuli::_attention");
  return info;
}

const OpInfo* AttentionGradientOp() {
  static const OpInfo* const info = FindOpInfo("lazuli::_attention_backward");
  return info;
}

bool IsAttentionOp(const OpInfo& info) { return &info == AttentionOp() || &info == AttentionGradientOp(); }

}  // namespace lazuli::codegen
