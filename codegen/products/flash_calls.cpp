#include "codegen/products/flash_calls.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "codegen/products/attention_op.h"
#include "runtime/counters.h"

namespace lazuli::codegen {
namespace {

using torch::jit::Stack;

// (query, key, value, attn_bias?, compute_log_sumexp, dropout_p, is_causal, return_debug_mask, scale?)
enum Forward : uint8_t { kBias = 3, kLogsumexp, kDropout, kCausal, kDebugMask, kScale };
// (grad_out, query, key, value, out, logsumexp, philox_seed, philox_offset, attn_bias, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p,
// is_causal, scale?)
enum Gradient : uint8_t { kGradQuery = 1, kOut = 4, kGradLogsumexp, kGradBias = 8, kGradDropout = 13, kGradCausal, kGradScale };

bool IsDefined(const c10::IValue& tensor) { return tensor.isTensor() && tensor.toTensor().defined(); }

std::optional<double> ScaleArg(const c10::IValue& scale) { return scale.isNone() ? std::nullopt : std::optional(scale.toDouble()); }

struct Heads {
  at::Tensor query, key, value;
};

// Those from argument `first` on, if flash attention takes them here and now.
std::optional<Heads> FlashHeads(const Stack& arguments, int first, bool causal) {
  const Heads h = {arguments[first].toTensor(), arguments[first + 1].toTensor(), arguments[first + 2].toTensor()};
  const at::Tensor &query = h.query, &key = h.key;
  if (!at::globalContext().userEnabledFlashSDP() || !c10::isReducedFloatingType(query.scalar_type())) return std::nullopt;
  for (const at::Tensor* heads : {&h.query, &h.key, &h.value}) {
    if (heads->scalar_type() != query.scalar_type() || heads->numel() == 0 || !HasWholeVectors(*heads)) return std::nullopt;
  }
  const bool same_lengths = query.size(2) == key.size(2);
  if (!key.sizes().equals(h.value.sizes()) || query.size(0) != key.size(0) || query.size(3) != key.size(3)) return std::nullopt;
  // The kernels differ in which keys a query sees where there are more of the ones than of the others.
  if (!IsWidthForGpu(query.size(3)) || query.size(1) != key.size(1) || (causal && !same_lengths)) return std::nullopt;
  const int64_t sizes[] = {query.size(0), query.size(1), query.size(2), key.size(2), query.size(3), causal ? 1 : 0, first};
  const double all = 2.0 * static_cast<double>(query.numel()) * static_cast<double>(key.size(2));
  return PlanPays(sizes, causal ? all / 2 : all) ? std::nullopt : std::optional(h);
}

// `tensor`, laid out as cuDNN's is, which is like that operand.
at::Tensor Laid(const at::Tensor& tensor, const at::Tensor& like) {
  at::Tensor laid = at::empty_like(like);
  bool is_so = true;
  for (int64_t d = 0; d < tensor.dim(); ++d) is_so = is_so && (tensor.size(d) == 1 || tensor.stride(d) == laid.stride(d));
  return is_so ? tensor.as_strided(tensor.sizes(), laid.strides(), tensor.storage_offset()) : laid.copy_(tensor);
}

bool Attend(const Stack& arguments, Stack* results) {
  const bool plain = !IsDefined(arguments[kBias]) && arguments[kDropout].toDouble() == 0 && !arguments[kDebugMask].toBool();
  const bool causal = arguments[kCausal].toBool();
  const std::optional<Heads> h = plain ? FlashHeads(arguments, 0, causal) : std::nullopt;
  if (!h.has_value()) return false;
  runtime::Counters::Get().flash_attentions.Add();
  auto made = at::_scaled_dot_product_flash_attention(h->query, h->key, h->value, 0.0, causal, false, ScaleArg(arguments[kScale]));
  results->emplace_back(Laid(std::get<0>(made), h->query));
  results->emplace_back(arguments[kLogsumexp].toBool() ? std::get<1>(made).unsqueeze(-1) : at::Tensor());
  results->emplace_back(at::Tensor());
  results->emplace_back(at::Tensor());
  results->emplace_back(h->query.size(2));
  results->emplace_back(h->key.size(2));
  // The seed and offset of a dropout that there is not.
  for (int i = 0; i < 2; ++i) results->emplace_back(at::empty({}, h->query.options().dtype(at::kLong)));
  results->emplace_back(at::Tensor());
  return true;
}

bool AttendBack(const Stack& arguments, Stack* results) {
  const bool plain = !IsDefined(arguments[kGradBias]) && arguments[kGradDropout].toDouble() == 0;
  const bool causal = arguments[kGradCausal].toBool();
  const at::Tensor &grad = arguments[0].toTensor(), &out = arguments[kOut].toTensor(), &logsumexp = arguments[kGradLogsumexp].toTensor();
  if (!plain || logsumexp.dim() != 4 || !HasWholeVectors(out) || grad.scalar_type() != out.scalar_type()) return false;
  const std::optional<Heads> h = FlashHeads(arguments, kGradQuery, causal);
  if (!h.has_value()) return false;
  runtime::Counters::Get().flash_attentions.Add();
  const auto unused = [&](at::IntArrayRef sizes) { return at::empty(sizes, h->query.options().dtype(at::kUInt64)); };
  auto made = at::_scaled_dot_product_flash_attention_backward(HasWholeVectors(grad) ? grad : grad.contiguous(), h->query, h->key, h->value,
                                                               out, logsumexp.squeeze(-1), {}, {}, h->query.size(2), h->key.size(2), 0.0,
                                                               causal, unused({2}), unused({}), ScaleArg(arguments[kGradScale]));
  results->emplace_back(Laid(std::get<0>(made), h->query));
  results->emplace_back(Laid(std::get<1>(made), h->key));
  results->emplace_back(Laid(std::get<2>(made), h->value));
  return true;
}

bool HasSymbols(const Node& node, int first, const runtime::SymbolTable& symbols) {
  return symbols.HasSymbol(node.op.args[first].tensors[0].sizes) || symbols.HasSymbol(node.op.args[first + 1].tensors[0].sizes);
}

}  // namespace

bool PlanPays(absl::Span<const int64_t> sizes, double multiplications) {
  // Rough times on an H100, in ns: what cuDNN is faster by for each multiplication, and what a plan takes.
  constexpr double kNsPerMultiplication = 2e-6, kNsOfPlan = 40e6;
  constexpr size_t kMostSizes = 1 << 14;
  static auto* spared = new absl::flat_hash_map<std::vector<int64_t>, double>;
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (spared->size() >= kMostSizes) spared->clear();
  double& ns = (*spared)[std::vector<int64_t>(sizes.begin(), sizes.end())];
  if (ns >= kNsOfPlan) return true;
  ns += multiplications * kNsPerMultiplication;
  return false;
}

runtime::DirectCall FindFlashCall(const Node& node, const OpInfo& called, const Graph& graph) {
  constexpr const char* kName = "aten::_scaled_dot_product_cudnn_attention";
  if (called.name == kName) return HasSymbols(node, 0, graph.symbols) ? &Attend : nullptr;
  const bool is_gradient = called.name == std::string(kName) + "_backward";
  return is_gradient && HasSymbols(node, kGradQuery, graph.symbols) ? &AttendBack : nullptr;
}

}  // namespace lazuli::codegen
