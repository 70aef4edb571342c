#include "codegen/products/attention_calls.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cmath>
#include <optional>

namespace lazuli::codegen {
namespace {

using torch::jit::Stack;

// _scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p, is_causal, *, attn_mask, scale) -> (result, logsumexp)
// ..._backward(grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, *, attn_mask, scale) -> three gradients
struct ArgumentsOf {
  int query, dropout, causal, mask, scale;
};
constexpr ArgumentsOf kForward = {0, 3, 4, 5, 6}, kBackward = {1, 6, 7, 8, 9};

// False: it is no bias for these scores, or of another dtype.
bool DescribeBias(const at::Tensor& bias, Attention* a) {
  if (bias.scalar_type() != c10::kFloat || (bias.dim() != 2 && bias.dim() != 4)) return false;
  if (!at::is_expandable_to(bias.sizes(), {a->batch, a->heads, a->queries, a->keys})) return false;
  a->bias = TableOf(bias, *a, bias.const_data_ptr<float>());
  return true;
}

bool Describe(const Stack& arguments, const ArgumentsOf& at, Attention* attention) {
  const at::Tensor& query = arguments[at.query].toTensor();
  if (arguments[at.dropout].toDouble() != 0) return false;
  if (!DescribeAttention(query, arguments[at.query + 1].toTensor(), arguments[at.query + 2].toTensor(), attention)) return false;
  attention->causal = arguments[at.causal].toBool();
  const c10::IValue& scale = arguments[at.scale];
  attention->scale = static_cast<float>(scale.isNone() ? 1 / std::sqrt(static_cast<double>(attention->width)) : scale.toDouble());
  const c10::IValue& mask = arguments[at.mask];
  return mask.isNone() || (!attention->causal && DescribeBias(mask.toTensor(), attention));
}

bool Attend(const Stack& arguments, Stack* results) {
  const at::Tensor& query = arguments[kForward.query].toTensor();
  Attention attention;
  if (!Describe(arguments, kForward, &attention)) return false;
  at::Tensor result = at::empty_like(query);
  at::Tensor logsumexp = at::empty({query.size(0), query.size(2), query.size(1)}, query.options()).transpose(1, 2);
  if (!HasHeadRows(result)) return false;
  attention.y = RowsOf(result, result.mutable_data_ptr<float>());
  attention.logsumexp = {logsumexp.mutable_data_ptr<float>(), logsumexp.stride(0), logsumexp.stride(1), logsumexp.stride(2)};
  RunAttention(attention);
  results->emplace_back(std::move(result));
  results->emplace_back(std::move(logsumexp));
  return true;
}

// As LibTorch lays out the gradient of `heads`.
at::Tensor GradientOf(const at::Tensor& heads) {
  return at::empty({heads.size(0), heads.size(2), heads.size(1), heads.size(3)}, heads.options()).transpose(1, 2);
}

bool AttendBack(const Stack& arguments, Stack* results) {
  const at::Tensor& grad_y = arguments[0].toTensor();
  const at::Tensor& query = arguments[1].toTensor();
  const at::Tensor& key = arguments[2].toTensor();
  const at::Tensor& y = arguments[4].toTensor();
  const at::Tensor& logsumexp = arguments[5].toTensor();
  AttentionGradient gradient;
  Attention& attention = gradient.attention;
  if (!Describe(arguments, kBackward, &attention) || !HasHeadRows(y)) return false;
  if (!grad_y.sizes().equals(query.sizes()) || !y.sizes().equals(query.sizes()) || logsumexp.dim() != 3) return false;
  // Of a sum it is one number for all.
  const at::Tensor grad_rows = HasHeadRows(grad_y) ? grad_y : grad_y.contiguous();
  if (!HasHeadRows(grad_rows)) return false;
  at::Tensor grad_q = GradientOf(query), grad_k = GradientOf(key), grad_v = GradientOf(key);
  // Only read.
  attention.y = RowsOf(y, const_cast<float*>(y.const_data_ptr<float>()));
  attention.logsumexp = {const_cast<float*>(logsumexp.const_data_ptr<float>()), logsumexp.stride(0), logsumexp.stride(1),
                         logsumexp.stride(2)};
  gradient.grad_y = RowsOf(grad_rows, grad_rows.const_data_ptr<float>());
  gradient.grad_q = RowsOf(grad_q, grad_q.mutable_data_ptr<float>());
  gradient.grad_k = RowsOf(grad_k, grad_k.mutable_data_ptr<float>());
  gradient.grad_v = RowsOf(grad_v, grad_v.mutable_data_ptr<float>());
  RunAttentionGradient(gradient);
  for (at::Tensor* grad : {&grad_q, &grad_k, &grad_v}) results->emplace_back(std::move(*grad));
  return true;
}

// Whether the operands can suit, whatever symbols turn out to be.
bool MaySuit(const Node& node, int first, const runtime::SymbolTable& symbols) {
  const TensorRef& query = node.op.args[first].tensors[0];
  const TensorRef& key = node.op.args[first + 1].tensors[0];
  if (query.dtype != c10::kFloat || query.sizes.size() != 4 || key.sizes.size() != 4) return false;
  constexpr int64_t kMany = 64;
  const auto size = [&](const TensorRef& ref, int d) { return symbols.IsSymbolic(ref.sizes[d]) ? kMany : ref.sizes[d]; };
  return SuitsAttention(size(query, 2), size(key, 2), size(query, 3));
}

}  // namespace

bool HasHeadRows(const at::Tensor& heads) {
  return heads.scalar_type() == c10::kFloat && heads.dim() == 4 && heads.numel() > 0 && (heads.stride(3) == 1 || heads.size(3) == 1);
}

bool DescribeAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, Attention* attention) {
  if (!HasHeadRows(query) || !HasHeadRows(key) || !HasHeadRows(value) || !key.sizes().equals(value.sizes())) return false;
  if (query.size(0) != key.size(0) || query.size(1) % key.size(1) != 0 || query.size(3) != key.size(3)) return false;
  if (!SuitsAttention(query.size(2), key.size(2), query.size(3))) return false;
  attention->batch = query.size(0);
  attention->heads = query.size(1);
  attention->kv_heads = key.size(1);
  attention->queries = query.size(2);
  attention->keys = key.size(2);
  attention->width = query.size(3);
  attention->q = RowsOf(query, query.const_data_ptr<float>());
  attention->k = RowsOf(key, key.const_data_ptr<float>());
  attention->v = RowsOf(value, value.const_data_ptr<float>());
  return true;
}

runtime::DirectCall FindAttentionCall(const Node& node, const OpInfo& called, const Graph& graph) {
  constexpr const char* kName = "aten::_scaled_dot_product_flash_attention_for_cpu";
  if (called.name == kName) return MaySuit(node, kForward.query, graph.symbols) ? &Attend : nullptr;
  const bool is_gradient = called.name == std::string(kName) + "_backward";
  return is_gradient && MaySuit(node, kBackward.query, graph.symbols) ? &AttendBack : nullptr;
}

}  // namespace lazuli::codegen
