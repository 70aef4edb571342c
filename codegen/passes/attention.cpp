#include "codegen/passes/attention.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "codegen/ir/dtypes.h"
#include "codegen/passes/attention_match.h"
#include "codegen/passes/dce.h"
#include "codegen/passes/fold.h"
#include "codegen/passes/value_uses.h"
#include "codegen/products/attention.h"
#include "codegen/products/attention_op.h"

namespace lazuli::codegen {
namespace {

TraceArg TensorArgument(TensorRef ref) {
  TraceArg arg;
  arg.kind = TraceArg::Kind::kTensor;
  arg.tensors.push_back(std::move(ref));
  return arg;
}

TraceArg ConstArgument(c10::IValue value) {
  TraceArg arg;
  arg.value = std::move(value);
  return arg;
}

// Undefined where there is none, and for minus infinity.
TraceArg NumberArgument(const std::optional<TraceArg>& number) {
  return number.has_value() && !IsMinusInfinity(*number) ? *number : TensorArgument({});
}

bool IsExpanded(const TensorRef& ref) {
  for (size_t d = 0; d < ref.sizes.size(); ++d) {
    if (ref.strides[d] == 0 && ref.sizes[d] != 1) return true;
  }
  return false;
}

// With fewer scores a GPU is done with products and a softmax before the host has launched another kernel for them.
constexpr int64_t kManyScores = 1 << 22;

class AttentionFuser {
 public:
  AttentionFuser(Graph* graph, const AttentionOptions& options)
      : graph_(*graph),
        options_(options),
        pinned_(PinnedValues(*graph)),
        overwritten_(OverwrittenValues(*graph)),
        keep_(graph->nodes.size(), true) {}

  // The first that there is. False: there is none.
  bool RunOnce() {
    const AttentionMatcher matcher(graph_);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (node.kind != Node::Kind::kCompute || (node.op.device.is_cpu() ? !options_.cpu : !options_.gpu)) continue;
      const std::optional<AttentionMatch> match = matcher.Match(static_cast<NodeId>(n));
      if (!match.has_value() || !TryFuse(*match)) continue;
      EraseNodes(&graph_, keep_);
      return true;
    }
    return false;
  }

 private:
  // Operands as [batch, heads, rows, width].
  struct Operands {
    TensorRef q, k, v;
  };

  // Without dimensions of one element at the end, as einsum has them.
  static TensorRef WithoutLast(TensorRef ref) {
    while (ref.sizes.size() > 4 && ref.sizes.back() == 1) {
      ref.sizes.pop_back();
      ref.strides.pop_back();
    }
    return ref;
  }

  // A batch of matrices as heads, of which there are `batch` times `heads`. Where they were copied for the product, what was.
  TensorRef HeadsOf(const TensorRef& matrices, int64_t batch, int64_t heads) const {
    const NodeId n = graph_.values[matrices.storage].producer;
    if (n != kNoNode) {
      const Node& node = graph_.nodes[n];
      const TensorRef* const copied = CopiedBy(node);
      if (copied != nullptr && IsCopyOfHeads(node, WithoutLast(*copied), matrices, batch, heads)) return WithoutLast(*copied);
    }
    TensorRef result = matrices;
    result.sizes = {batch, heads, matrices.sizes[1], matrices.sizes[2]};
    result.strides = {matrices.strides[0] * heads, matrices.strides[0], matrices.strides[1], matrices.strides[2]};
    return result;
  }

  bool IsCopyOfHeads(const Node& copy, const TensorRef& copied, const TensorRef& matrices, int64_t batch, int64_t heads) const {
    const TensorRef& result = copy.op.results[0];
    return copied.dtype == matrices.dtype && result.is_contiguous() && matrices.is_contiguous() && matrices.offset_slot == -1 &&
           result.numel() == matrices.numel() && !overwritten_[copied.storage] &&
           copied.sizes == c10::DimVector{batch, heads, matrices.sizes[1], matrices.sizes[2]};
  }

  static TensorRef Turned(TensorRef heads) {
    std::swap(heads.sizes[2], heads.sizes[3]);
    std::swap(heads.strides[2], heads.strides[3]);
    return heads;
  }

  std::optional<Operands> OperandsOf(const AttentionMatch& match, int64_t batch, int64_t heads) const {
    for (const TensorRef* matrices : {&match.q, &match.k_t, &match.v}) {
      if (matrices->sizes[0] != batch * heads) return std::nullopt;
    }
    if (match.k_t.sizes[2] != match.v.sizes[1]) return std::nullopt;
    Operands o{HeadsOf(match.q, batch, heads), Turned(HeadsOf(match.k_t, batch, heads)), HeadsOf(match.v, batch, heads)};
    for (const TensorRef* ref : {&o.q, &o.k, &o.v}) {
      if (ref->strides[3] != 1 || overwritten_[ref->storage] || ref->dtype != o.q.dtype || ref->sizes[3] != o.q.sizes[3])
        return std::nullopt;
    }
    return Suits(match, o) ? std::make_optional(std::move(o)) : std::nullopt;
  }

  // Whether there is something faster for it than products and a softmax.
  bool Suits(const AttentionMatch& match, const Operands& o) const {
    const Node& product = graph_.nodes[match.product];
    const auto hint = [&](int64_t size) { return graph_.symbols.Hint(size); };
    if (product.op.results[0].dtype != o.q.dtype) return false;
    for (const TensorRef* table : {&match.bias, &match.filled}) {
      if (table->defined() && (table->sizes.size() > 4 || overwritten_[table->storage])) return false;
    }
    if (product.op.device.is_cpu()) {
      return o.q.dtype == c10::kFloat && SuitsAttention(hint(o.q.sizes[2]), hint(o.k.sizes[2]), hint(o.q.sizes[3]));
    }
    const int64_t scores = hint(o.q.numel()) / hint(o.q.sizes[3]) * hint(o.k.sizes[2]);
    if (!IsHalf(o.q.dtype) || graph_.symbols.IsSymbolic(o.q.sizes[3]) || !IsWidthForGpu(o.q.sizes[3]) || scores < kManyScores) return false;
    if (IsExpanded(o.q) || IsExpanded(o.k) || IsExpanded(o.v)) return false;
    if (!match.bias.defined() && !match.filled.defined()) return true;
    // Where a bias leaves nothing of a query's scores, the gradient needs more of them than the one number that these kernels keep.
    if (match.bias.defined() && (match.bias.dtype != o.q.dtype || match.has_gradient())) return false;
    // Other numbers than minus infinity weigh something where a query sees nothing.
    return options_.cudnn && IsFixed(o) && (!match.fill.has_value() || IsMinusInfinity(*match.fill));
  }

  // Batch, heads, queries, keys. A batch of one where the program knows heads only.
  std::optional<c10::DimVector> SizesOfScores(const AttentionMatch& match) const {
    const c10::DimVector& of_softmax = graph_.nodes[match.softmax].op.results[0].sizes;
    c10::DimVector sizes = of_softmax;
    for (const c10::DimVector* table : {&match.bias_to, &match.filled_to}) {
      if (table->size() > sizes.size()) sizes = *table;
    }
    if (sizes.size() == 3) sizes.insert(sizes.begin(), 1);
    if (sizes.size() != 4) return std::nullopt;
    const auto fits = [&](const TensorRef& table, const c10::DimVector& to) {
      return !table.defined() || table.sizes.size() <= 2 || to == sizes || (sizes[0] == 1 && to.size() == 3);
    };
    return fits(match.bias, match.bias_to) && fits(match.filled, match.filled_to) ? std::make_optional(sizes) : std::nullopt;
  }

  bool TryFuse(const AttentionMatch& match) {
    const std::optional<c10::DimVector> sizes = SizesOfScores(match);
    if (!sizes.has_value()) return false;
    const int64_t batch = (*sizes)[0], heads = (*sizes)[1];
    const std::optional<Operands> operands = OperandsOf(match, batch, heads);
    if (!operands.has_value() || (match.has_gradient() && !MayReadResult(match))) return false;
    const TensorRef logsumexp = MakeAttention(match, *operands);
    if (match.has_gradient()) MakeGradient(match, *operands, logsumexp);
    return true;
  }

  // The gradient comes after y, and reads it.
  bool MayReadResult(const AttentionMatch& match) const {
    return PlaceOfGradient(match) > match.product && !overwritten_[graph_.nodes[match.product].results[0]];
  }

  // Of its products, the first.
  static NodeId PlaceOfGradient(const AttentionMatch& match) {
    return match.grad_v != kNoNode ? std::min(match.grad_weights, match.grad_v) : match.grad_weights;
  }

  bool IsFixed(const Operands& o) const {
    const auto is_fixed = [&](const TensorRef& heads) { return !graph_.symbols.HasSymbol(heads.sizes); };
    return is_fixed(o.q) && is_fixed(o.k);
  }

  void Erase(const std::vector<NodeId>& nodes) {
    for (const NodeId n : nodes) keep_[n] = false;
  }

  // The second product becomes the attention. Returns the use of what the gradient needs of it.
  TensorRef MakeAttention(const AttentionMatch& match, const Operands& o) {
    Node& node = graph_.nodes[match.product];
    const HeadOrder order = Place(&node.op.results[0], node.results[0], o.q, HeadOrder::kHeadsRows);
    TensorRef logsumexp;
    logsumexp.dtype = c10::kFloat;
    logsumexp.sizes = {o.q.sizes[0], o.q.sizes[1], o.q.sizes[2]};
    logsumexp.strides = {o.q.sizes[1] * o.q.sizes[2], o.q.sizes[2], 1};
    if (node.op.device.is_cpu()) {  // In two parts.
      logsumexp.sizes.push_back(2);
      for (int64_t& stride : logsumexp.strides) stride *= 2;
      logsumexp.strides.push_back(1);
    }
    const int64_t bytes = logsumexp.numel() * static_cast<int64_t>(sizeof(float));
    graph_.storages.push_back({false, false, false, bytes, node.op.device});
    graph_.contents.push_back(kNoValue);
    const auto storage = static_cast<StorageId>(graph_.storages.size()) - 1;
    const ValueId value = graph_.AddValue({match.product, storage, kNoValue, logsumexp});
    node.op.info = AttentionOp();
    node.op.args = {TensorArgument(o.q), TensorArgument(o.k), TensorArgument(o.v)};
    AppendScores(match, &node.op.args);
    node.op.args.push_back(ConstArgument(std::vector<int64_t>{static_cast<int64_t>(order)}));
    node.op.args.push_back(ConstArgument(IsFixed(o)));
    node.op.results.push_back(logsumexp);
    node.op.results.back().storage = storage;
    node.results.push_back(value);
    Erase(match.inner);
    logsumexp.storage = value;
    return logsumexp;
  }

  static void AppendScores(const AttentionMatch& match, std::vector<TraceArg>* args) {
    args->push_back(NumberArgument(match.scale));
    args->push_back(ConstArgument(match.divides));
    args->push_back(TensorArgument(match.bias));
    args->push_back(TensorArgument(match.filled));
    args->push_back(ConstArgument(match.keeps));
    args->push_back(NumberArgument(match.fill));
  }

  // Of the gradient's products the first becomes all of it: the others' results are made there.
  void MakeGradient(const AttentionMatch& match, const Operands& o, const TensorRef& logsumexp) {
    const NodeId at = PlaceOfGradient(match);
    const Node& attention = graph_.nodes[match.product];
    TensorRef y = attention.op.results[0];
    y.storage = attention.results[0];
    Node node = graph_.nodes[at];
    node.op.info = AttentionGradientOp();
    node.op.args = {TensorArgument(HeadsOf(match.grad_y, o.q.sizes[0], o.q.sizes[1])),
                    TensorArgument(o.q),
                    TensorArgument(o.k),
                    TensorArgument(o.v),
                    TensorArgument(y),
                    TensorArgument(logsumexp)};
    AppendScores(match, &node.op.args);
    node.op.args.push_back(NumberArgument(match.grad_scale));
    node.op.args.push_back(NumberArgument(match.grad_fill));
    node.op.results.clear();
    node.results.clear();
    std::vector<int64_t> orders;
    const auto add = [&](NodeId product, const TensorRef& operand, HeadOrder order) {
      TensorRef result = operand;
      result.SetOffset(-1);
      result.storage = kNoStorage;
      ValueId value = kNoValue;
      if (product != kNoNode) {
        value = graph_.nodes[product].results[0];
        result.storage = graph_.nodes[product].op.results[0].storage;
        order = Place(&result, value, operand, order);
        graph_.values[value].producer = at;
        keep_[product] = product == at;
      } else {
        result.strides = StridesOf(result.sizes, order);
      }
      orders.push_back(static_cast<int64_t>(order));
      node.op.results.push_back(std::move(result));
      node.results.push_back(value);
    };
    add(match.grad_q, o.q, HeadOrder::kHeadsRows);
    add(match.grad_k_t, o.k, HeadOrder::kHeadsColumns);
    add(match.grad_v, o.v, HeadOrder::kHeadsRows);
    node.op.args.push_back(ConstArgument(std::move(orders)));
    node.op.args.push_back(ConstArgument(IsFixed(o)));
    Erase(match.grad_inner);
    keep_[at] = true;
    graph_.nodes[at] = std::move(node);
  }

  // Lays `value`, heads of the sizes of `like` that lie in order `from`, out as `like` is, if all who use it can read it there. Says how.
  HeadOrder Place(TensorRef* result, ValueId value, const TensorRef& like, HeadOrder from) {
    result->sizes = like.sizes;
    const auto hint = [&](int d) { return graph_.symbols.Hint(like.strides[d]); };
    const HeadOrder wanted = hint(1) < hint(2) ? HeadOrder::kRowsHeads : HeadOrder::kHeadsRows;
    const HeadOrder order = wanted != from && Move(value, result->sizes, from, wanted) ? wanted : from;
    result->strides = StridesOf(result->sizes, order);
    TensorRef layout = *result;
    layout.storage = kNoStorage;
    graph_.values[value].layout = std::move(layout);
    return order;
  }

  // False, and nothing has changed: the value has to lie as it does.
  bool Move(ValueId value, const c10::DimVector& sizes, HeadOrder from, HeadOrder to) {
    if (pinned_[value] || overwritten_[value]) return false;
    const c10::DimVector before = StridesOf(sizes, from), after = StridesOf(sizes, to);
    std::vector<std::pair<TensorRef*, c10::DimVector>> moved;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (!keep_[n]) continue;
      bool fits = true;
      ForEachUse(graph_.nodes[n], [&](TensorRef& use) {
        if (use.storage != value || !fits) return;
        c10::DimVector strides = use.strides;
        fits = use.offset_slot == -1;
        for (size_t d = 0; d < strides.size() && fits; ++d) {
          if (use.sizes[d] == 1 || strides[d] == 0) continue;
          size_t i = 0;
          while (i < before.size() && (before[i] != strides[d] || sizes[i] != use.sizes[d])) ++i;
          fits = i < before.size();
          if (fits) strides[d] = after[i];
        }
        if (fits) moved.emplace_back(&use, std::move(strides));
      });
      if (!fits) return false;
    }
    for (auto& [use, strides] : moved) use->strides = std::move(strides);
    return true;
  }

  Graph& graph_;
  const AttentionOptions options_;
  const std::vector<bool> pinned_;
  const std::vector<bool> overwritten_;
  std::vector<bool> keep_;  // By node.
};

}  // namespace

absl::StatusOr<Graph> FuseAttention(Graph graph, const AttentionOptions& options) {
  const bool has_softmax = std::any_of(graph.nodes.begin(), graph.nodes.end(), &AttentionMatcher::MayBeSoftmax);
  if (!options.any() || !has_softmax) return graph;
  bool changed = false;
  while (AttentionFuser(&graph, options).RunOnce()) changed = true;
  if (!changed) return graph;
  // Copies for the products, and of what lies as it is wanted now.
  auto folded = FoldCopies(std::move(graph));
  return folded.ok() ? EliminateDeadCode(*std::move(folded)) : folded;
}

}  // namespace lazuli::codegen
