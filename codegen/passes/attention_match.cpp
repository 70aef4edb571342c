#include "codegen/passes/attention_match.h"

#include <algorithm>
#include <limits>
#include <string>

#include "codegen/ir/dtypes.h"
#include "codegen/lower.h"
#include "codegen/passes/value_uses.h"
#include "codegen/products/gpu_product.h"

namespace lazuli::codegen {
namespace {

// Whether the node is aten's `op`, or its in-place form: "mul.Tensor".
bool Is(const Node& node, const std::string& op) {
  if (node.op.info == nullptr || node.part != 0 || node.results.size() != 1 || node.results[0] == kNoValue) return false;
  const std::string& name = node.op.info->name;
  const size_t dot = std::min(op.find('.'), op.size());
  return name == "aten::" + op || name == "aten::" + op.substr(0, dot) + "_" + op.substr(dot);
}

bool IsProduct(const Node& node) { return Is(node, "bmm"); }

// Whether `use` is all that is laid out so, in that order: rows of the same matrices.
bool IsWhole(const TensorRef& use, const TensorRef& layout) {
  const size_t rank = use.sizes.size(), layout_rank = layout.sizes.size();
  if (rank < 2 || layout_rank < 2 || use.sizes[rank - 1] != layout.sizes[layout_rank - 1]) return false;
  if (use.sizes[rank - 2] != layout.sizes[layout_rank - 2]) return false;
  return use.offset_slot == -1 && use.dtype == layout.dtype && use.numel() == layout.numel() && use.is_contiguous() &&
         layout.is_contiguous();
}

// Whether a step from the one to the other changes elements, and neither repeats nor moves them.
bool IsElementwise(const TensorRef& from, const TensorRef& to) {
  const size_t a = from.sizes.size(), b = to.sizes.size();
  return a >= 2 && b >= 2 && from.numel() == to.numel() && from.sizes[a - 1] == to.sizes[b - 1] && from.sizes[a - 2] == to.sizes[b - 2];
}

// Whether a copy from the one dtype to the other changes no number that a kernel sees, which computes scores as floats.
bool IsExact(c10::ScalarType from, c10::ScalarType to) { return from == to || (IsHalf(from) && to == c10::kFloat); }

bool SameDims(const TensorRef& a, const TensorRef& b, int a_dim, int b_dim) {
  if (a.sizes[a_dim] != b.sizes[b_dim]) return false;
  return a.sizes[a_dim] == 1 || a.strides[a_dim] == b.strides[b_dim];
}

// Matrices (batches of them) of one value: `a` is `b`, or its transpose.
bool IsSame(const TensorRef& a, const TensorRef& b) {
  return a.storage == b.storage && a.offset_slot == b.offset_slot && a.dtype == b.dtype && SameDims(a, b, 0, 0) && SameDims(a, b, 1, 1) &&
         SameDims(a, b, 2, 2);
}
bool IsTranspose(const TensorRef& a, const TensorRef& b) {
  return a.storage == b.storage && a.offset_slot == b.offset_slot && a.dtype == b.dtype && SameDims(a, b, 0, 0) && SameDims(a, b, 1, 2) &&
         SameDims(a, b, 2, 1);
}

const TensorRef& Operand(const Node& node, size_t arg) { return node.op.args[arg].tensors[0]; }
bool IsTensor(const Node& node, size_t arg) {
  return node.op.args[arg].kind == TraceArg::Kind::kTensor && node.op.args[arg].tensors[0].defined();
}

bool IsOverLastDim(const Node& softmax, size_t arg) {
  const auto rank = static_cast<int64_t>(softmax.op.results[0].sizes.size());
  const TraceArg& dim = softmax.op.args[arg];
  return rank >= 3 && dim.kind == TraceArg::Kind::kConst && dim.value.isInt() && (dim.value.toInt() + rank) % rank == rank - 1;
}

}  // namespace

bool IsMinusInfinity(const TraceArg& number) {
  return number.kind == TraceArg::Kind::kConst && number.value.isDouble() &&
         number.value.toDouble() == -std::numeric_limits<double>::infinity();
}

std::vector<std::vector<ValueUse>> UsesOfValues(const Graph& graph) {
  std::vector<std::vector<ValueUse>> uses(graph.values.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    ForEachArgUse(graph.nodes[n], [&](size_t arg, const TensorRef& use) { uses[use.storage].push_back({static_cast<NodeId>(n), arg}); });
  }
  return uses;
}

AttentionMatcher::AttentionMatcher(const Graph& graph)
    : graph_(graph), uses_(UsesOfValues(graph)), pinned_(PinnedValues(graph)), overwritten_(OverwrittenValues(graph)) {}

const Node* AttentionMatcher::MakerOf(const TensorRef& use) const {
  const NodeId n = graph_.values[use.storage].producer;
  if (n == kNoNode) return nullptr;
  const Node& node = graph_.nodes[n];
  const bool makes = node.kind != Node::Kind::kUpdate && node.results.size() == 1 && node.results[0] == use.storage;
  return makes && IsWhole(use, node.op.results[0]) ? &node : nullptr;
}

bool AttentionMatcher::MayBeSoftmax(const Node& node) { return Is(node, "_softmax"); }

std::optional<AttentionMatch> AttentionMatcher::Match(NodeId n) const {
  const Node& softmax = graph_.nodes[n];
  if (!MayBeSoftmax(softmax) || !IsOverLastDim(softmax, 1)) return std::nullopt;
  AttentionMatch match;
  match.softmax = n;
  match.inner.push_back(n);
  if (!WalkToScores(Operand(softmax, 0), &match)) return std::nullopt;
  const Node& scores = graph_.nodes[match.scores];
  match.q = Operand(scores, 0);
  match.k_t = Operand(scores, 1);
  if (!FindProducts(&match)) return std::nullopt;
  if (match.has_gradient() ? !MatchGradient(&match) : match.grad_v != kNoNode) return std::nullopt;
  return match;
}

bool AttentionMatcher::WalkToScores(const TensorRef& end, AttentionMatch* match) const {
  const TensorRef* use = &end;
  while (true) {
    const Node* const node = MakerOf(*use);
    if (node == nullptr || !IsInner(use->storage)) return false;
    const NodeId n = graph_.values[use->storage].producer;
    match->inner.push_back(n);
    if (IsProduct(*node)) {
      match->scores = n;
      return true;
    }
    if (node->kind != Node::Kind::kCompute || !TakeStep(*node, match, &use) || !IsElementwise(*use, node->op.results[0])) return false;
  }
}

// `before`: the scores that the node changes. From the softmax on, it is met by the order of: filled, bias, scale.
bool AttentionMatcher::TakeStep(const Node& node, AttentionMatch* match, const TensorRef** before) const {
  const TensorRef* const copied = CopiedBy(node.op);
  if (copied != nullptr) {
    *before = copied;
    return IsExact(copied->dtype, node.op.results[0].dtype);
  }
  if (node.op.args.empty() || !IsTensor(node, 0) || match->scale.has_value()) return false;
  *before = &Operand(node, 0);
  const bool divides = Is(node, "div.Tensor");
  if ((divides || Is(node, "mul.Tensor")) && IsNumber(node.op.args[1])) {
    match->scale = node.op.args[1];
    match->divides = divides;
    return true;
  }
  if (match->bias.defined()) return false;
  if (Is(node, "add.Tensor")) return TakeAdd(node, match, before);
  return TakeFill(node, match, before);
}

bool AttentionMatcher::IsNumber(const TraceArg& arg) const {
  if (arg.kind == TraceArg::Kind::kScalar) return true;
  if (arg.kind == TraceArg::Kind::kTensor) {
    const TensorRef& number = arg.tensors[0];
    return number.defined() && number.sizes.empty() && DeviceOf(graph_, number.storage).is_cpu() &&
           graph_.values[number.storage].producer == kNoNode && !overwritten_[number.storage];
  }
  return IsMinusInfinity(arg);
}

std::optional<AttentionMatcher::Fill> AttentionMatcher::FillOf(const Node& node) const {
  std::optional<Fill> fill;
  if (Is(node, "masked_fill.Scalar") || Is(node, "masked_fill.Tensor")) {
    fill = Fill{0, 1, 2, false};
  } else if (Is(node, "where.self")) {
    const bool keeps = IsNumber(node.op.args[2]);
    fill = Fill{keeps ? size_t{1} : size_t{2}, 0, keeps ? size_t{2} : size_t{1}, keeps};
  }
  if (!fill.has_value() || !IsTensor(node, fill->scores) || !IsTensor(node, fill->mask)) return std::nullopt;
  return IsNumber(node.op.args[fill->number]) ? fill : std::nullopt;
}

bool AttentionMatcher::TakeFill(const Node& node, AttentionMatch* match, const TensorRef** before) const {
  const std::optional<Fill> fill = FillOf(node);
  if (!fill.has_value() || match->filled.defined()) return false;
  *before = &Operand(node, fill->scores);
  match->filled = Operand(node, fill->mask);
  match->filled_to = node.op.results[0].sizes;
  match->keeps = fill->keeps;
  match->fill = node.op.args[fill->number];
  return match->filled.dtype == c10::kBool && BroadcastsTo(match->filled, node.op.results[0].sizes);
}

bool AttentionMatcher::TakeAdd(const Node& node, AttentionMatch* match, const TensorRef** before) const {
  const TraceArg& alpha = node.op.args[2];
  if (!IsTensor(node, 1) || alpha.kind != TraceArg::Kind::kConst || !IsUnitFactor(alpha.value)) return false;
  // Scores are as large as the sum, and nobody else's.
  const auto are_scores = [&](size_t arg) { return IsInner(Operand(node, arg).storage) && MakerOf(Operand(node, arg)) != nullptr; };
  const auto is_bias = [&](size_t arg) {
    return Operand(node, arg).dtype == node.op.results[0].dtype && BroadcastsTo(Operand(node, arg), node.op.results[0].sizes);
  };
  const bool first = Operand(node, 0).numel() == node.op.results[0].numel() && are_scores(0);
  const size_t scores = first ? 0 : 1;
  if (!are_scores(scores) || !is_bias(1 - scores)) return false;
  *before = &Operand(node, scores);
  match->bias = Operand(node, 1 - scores);
  match->bias_to = node.op.results[0].sizes;
  return true;
}

// Who uses the weights: the second product, and perhaps a gradient; some of them perhaps as another dtype.
bool AttentionMatcher::FindProducts(AttentionMatch* match) const {
  const ValueId weights = graph_.nodes[match->softmax].results[0];
  const TensorRef& scores = graph_.nodes[match->softmax].op.results[0];
  if (!IsHidden(weights)) return false;
  for (const ValueUse& use : uses_[weights]) {
    const Node& node = graph_.nodes[use.node];
    const TensorRef* const copied = CopiedBy(node);
    if (copied == nullptr) {
      if (!TakeUse(use, scores, match)) return false;
      continue;
    }
    if (!IsHidden(node.results[0]) || !IsExact(node.op.results[0].dtype, copied->dtype)) return false;
    if (!IsWhole(*copied, scores) || !node.op.results[0].is_contiguous() || !IsElementwise(*copied, node.op.results[0])) return false;
    match->inner.push_back(use.node);
    for (const ValueUse& use_of_copy : uses_[node.results[0]]) {
      if (!TakeUse(use_of_copy, node.op.results[0], match)) return false;
    }
  }
  return match->product != kNoNode;
}

bool AttentionMatcher::TakeUse(const ValueUse& use, const TensorRef& scores, AttentionMatch* match) const {
  const Node& node = graph_.nodes[use.node];
  if (Is(node, "_softmax_backward_data") && use.arg == 1 && match->grad_weights == kNoNode && IsOverLastDim(node, 2)) {
    if (!IsWhole(Operand(node, 1), scores)) return false;
    match->grad_weights = use.node;
    return true;
  }
  if (!IsProduct(node) || use.arg != 0) return false;
  const TensorRef& weights = Operand(node, 0);
  if (IsWhole(weights, scores)) {
    if (match->product != kNoNode) return false;
    match->product = use.node;
    match->v = Operand(node, 1);
    return true;
  }
  TensorRef turned = weights;
  std::swap(turned.sizes[1], turned.sizes[2]);
  std::swap(turned.strides[1], turned.strides[2]);
  if (match->grad_v != kNoNode || !IsWhole(turned, scores)) return false;
  match->grad_v = use.node;
  return true;
}

bool AttentionMatcher::MatchGradient(AttentionMatch* match) const {
  const NodeId softmax = match->grad_weights;
  match->grad_inner.push_back(softmax);
  // From the softmax's gradient back to the product of y's gradient and v.
  const TensorRef* use = &Operand(graph_.nodes[softmax], 0);
  while (true) {
    const Node* const node = MakerOf(*use);
    if (node == nullptr || !IsInner(use->storage)) return false;
    match->grad_weights = graph_.values[use->storage].producer;
    match->grad_inner.push_back(match->grad_weights);
    if (IsProduct(*node)) break;
    use = CopiedBy(*node);
    if (use == nullptr || !IsExact(use->dtype, node->op.results[0].dtype) || !IsElementwise(*use, node->op.results[0])) return false;
  }
  const Node& product = graph_.nodes[match->grad_weights];
  match->grad_y = Operand(product, 0);
  if (!IsTranspose(Operand(product, 1), match->v)) return false;
  if (match->grad_v != kNoNode && !IsSame(Operand(graph_.nodes[match->grad_v], 1), match->grad_y)) return false;
  return WalkToGradients(match);
}

bool AttentionMatcher::WalkToGradients(AttentionMatch* match) const {
  const Node* node = &graph_.nodes[match->grad_inner.front()];
  while (true) {
    const ValueId made = node->results[0];
    if (!IsHidden(made) || uses_[made].empty()) return false;
    const Node& reader = graph_.nodes[uses_[made][0].node];
    if (IsProduct(reader)) break;
    if (uses_[made].size() != 1 || reader.kind != Node::Kind::kCompute || reader.results.size() != 1 || reader.results[0] == kNoValue)
      return false;
    const TensorRef& read = Operand(reader, uses_[made][0].arg);
    if (!IsWhole(read, node->op.results[0]) || !reader.op.results[0].is_contiguous()) return false;
    if (!TakeGradientStep(reader, match) || !IsElementwise(read, reader.op.results[0])) return false;
    match->grad_inner.push_back(uses_[made][0].node);
    node = &reader;
  }
  for (const ValueUse& use : uses_[node->results[0]]) {
    if (!TakeGradientProduct(use, match)) return false;
  }
  return match->fill.has_value() == match->grad_fill.has_value() && match->scale.has_value() == match->grad_scale.has_value();
}

// In the order of: filled, scale.
bool AttentionMatcher::TakeGradientStep(const Node& node, AttentionMatch* match) const {
  const TensorRef* const copied = CopiedBy(node.op);
  if (copied != nullptr) return IsExact(node.op.results[0].dtype, copied->dtype);
  if (match->grad_scale.has_value()) return false;
  if (Is(node, match->divides ? "div.Tensor" : "mul.Tensor") && IsNumber(node.op.args[1])) {
    match->grad_scale = node.op.args[1];
    return true;
  }
  const std::optional<Fill> fill = FillOf(node);
  if (!fill.has_value() || match->grad_fill.has_value() || !match->fill.has_value()) return false;
  if (IsMinusInfinity(node.op.args[fill->number])) return false;
  match->grad_fill = node.op.args[fill->number];
  return Operand(node, fill->mask) == match->filled && fill->keeps == match->keeps;
}

bool AttentionMatcher::TakeGradientProduct(const ValueUse& use, AttentionMatch* match) const {
  const Node& node = graph_.nodes[use.node];
  if (!IsProduct(node)) return false;
  const TensorRef& grad = Operand(node, use.arg);
  if (!IsWhole(grad, graph_.nodes[graph_.values[grad.storage].producer].op.results[0])) return false;
  NodeId* const product = use.arg == 0 ? &match->grad_q : &match->grad_k_t;
  if (*product != kNoNode) return false;
  *product = use.node;
  return use.arg == 0 ? IsTranspose(Operand(node, 1), match->k_t) : IsTranspose(Operand(node, 0), match->q);
}

}  // namespace lazuli::codegen
