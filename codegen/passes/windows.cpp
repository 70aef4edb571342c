#include "codegen/passes/windows.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "codegen/lower.h"
#include "codegen/passes/cse.h"
#include "codegen/passes/dce.h"
#include "codegen/passes/fold.h"
#include "codegen/passes/value_uses.h"
#include "codegen/passes/window_map.h"
#include "codegen/reduce_parts.h"

namespace lazuli::codegen {
namespace {

// Nodes that values made in windows, one behind the other, become. More would not be one kernel.
constexpr int kMaxChain = 64;

// From the last node to the first: when a node's turn comes, all that read its results are as they will be.
class WindowPass {
 public:
  explicit WindowPass(Graph graph)
      : graph_(std::move(graph)), pinned_(PinnedValues(graph_)), overwritten_(OverwrittenValues(graph_)), uses_(graph_.values.size()) {
    for (const Node& node : graph_.nodes) ForEachUse(node, [&](const TensorRef& use) { NoteOffset(use); });
  }

  Graph Run() {
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      Node& node = graph_.nodes[n];
      if (node.kind == Node::Kind::kUpdate && !node.is_scatter()) ReadSources(node, node.results[0]);
      if (node.kind == Node::Kind::kCompute && MakeInWindows(node)) continue;
      Keep(std::move(node));
    }
    std::reverse(done_.begin(), done_.end());
    graph_.nodes = std::move(done_);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      ForEachDef(graph_.nodes[n], [&](ValueId value) { graph_.values[value].producer = static_cast<NodeId>(n); });
    }
    return std::move(graph_);
  }

  bool changed() const { return changed_; }

 private:
  // A use of a value: argument `arg` of done_[node], or of a list its `item`th.
  struct Use {
    size_t node;
    size_t arg;
    size_t item;
  };

  TensorRef& RefOf(const Use& use) { return done_[use.node].op.args[use.arg].tensors[use.item]; }

  void Keep(Node node) {
    done_.push_back(std::move(node));
    NoteUses(done_.size() - 1);
  }

  void NoteUses(size_t place) {
    const auto& args = done_[place].op.args;
    for (size_t arg = 0; arg < args.size(); ++arg) {
      for (size_t item = 0; item < args[arg].tensors.size(); ++item) {
        const TensorRef& use = args[arg].tensors[item];
        if (use.defined()) uses_[static_cast<size_t>(use.storage)].push_back({place, arg, item});
      }
    }
  }

  // Whether a kernel reads it there, at the points that it computes.
  bool IsReadByKernel(const Use& use) const {
    const Node& node = done_[use.node];
    if (node.kind == Node::Kind::kUpdate) return !node.is_scatter() && use.arg == 1;
    return node.kind == Node::Kind::kCompute && !ReadsElsewhere(node, use.arg);
  }

  // ---- Offsets ------------------------------------------------------------

  void NoteOffset(const TensorRef& ref) {
    if (ref.offset != 0) offsets_[ref.offset_slot] = ref.offset;
  }

  // How far `ref` begins in its memory; nothing where that is only known at run time, or is a sum with symbols.
  std::optional<int64_t> OffsetOf(const TensorRef& ref) const { return OffsetIn(ref.offset_slot); }

  // Nothing where it would be one of symbols, or pass for one.
  std::optional<int64_t> Sum(int64_t a, int64_t b) const {
    if (a == 0 || b == 0) return a + b;
    const auto symbolic = [&](int64_t number) { return graph_.symbols.IsSymbolic(number); };
    return symbolic(a) || symbolic(b) || symbolic(a + b) ? std::nullopt : std::make_optional(a + b);
  }

  std::optional<int64_t> OffsetIn(int32_t slot) const {
    if (slot < 0) return 0;
    if (const auto known = offsets_.find(slot); known != offsets_.end()) return known->second;
    if (slot < graph_.num_offsets) return std::nullopt;
    const runtime::OffsetSum& sum = graph_.offset_sums[static_cast<size_t>(slot - graph_.num_offsets)];
    std::optional<int64_t> offset = OffsetIn(sum.slot);
    for (const int64_t term : sum.terms) {
      if (!offset.has_value()) return std::nullopt;
      offset = Sum(*offset, term);
    }
    return offset;
  }

  // The part of `operand` beside the window that `map` is of; nothing where that is none.
  std::optional<TensorRef> PartOf(const WindowMap& map, const TensorRef& operand) {
    std::vector<int64_t> terms;
    std::optional<TensorRef> part = map.PartOf(operand, &terms);
    if (!part.has_value()) return std::nullopt;
    const int32_t slot = AddOffset(&graph_, part->offset_slot, terms);
    part->SetOffset(slot, OffsetIn(slot).value_or(0));
    NoteOffset(*part);
    return part;
  }

  // ---- What was put together ------------------------------------------------------------

  // Has windows of `version`, which `update` made, read from what updates put there: all of them, or those that are in memory anyway. A
  // source that is written in its place would be stored a second time for the others.
  void ReadSources(const Node& update, ValueId version) {
    const std::vector<Use> uses = std::exchange(uses_[static_cast<size_t>(version)], {});
    std::vector<std::optional<TensorRef>> sources;
    for (const Use& use : uses) sources.push_back(IsReadByKernel(use) ? SourceOf(RefOf(use), version) : std::nullopt);
    const bool needed = overwritten_[static_cast<size_t>(version)] || (pinned_[static_cast<size_t>(version)] && update.family == 0);
    const bool all = !needed && std::all_of(sources.begin(), sources.end(), [](const auto& source) { return source.has_value(); });
    for (size_t i = 0; i < uses.size(); ++i) {
      if (!sources[i].has_value() || (!all && !IsInMemory(sources[i]->storage))) {
        uses_[static_cast<size_t>(version)].push_back(uses[i]);
        continue;
      }
      changed_ = true;
      RefOf(uses[i]) = *sources[i];
      uses_[static_cast<size_t>(sources[i]->storage)].push_back(uses[i]);
    }
  }

  bool IsInMemory(ValueId value) const {
    const NodeId producer = graph_.values[value].producer;
    return producer == kNoNode || pinned_[static_cast<size_t>(value)] ||
           graph_.nodes[static_cast<size_t>(producer)].kind == Node::Kind::kExtern;
  }

  // Updates of one family do not meet: what lies in the window of one is what that put there.
  std::optional<TensorRef> SourceOf(const TensorRef& window, ValueId version) {
    const std::optional<int64_t> begin = OffsetOf(window);
    const int32_t family = graph_.nodes[static_cast<size_t>(graph_.values[version].producer)].family;
    while (begin.has_value()) {
      const NodeId producer = graph_.values[version].producer;
      if (producer == kNoNode) break;
      const Node& update = graph_.nodes[static_cast<size_t>(producer)];
      if (update.kind != Node::Kind::kUpdate || update.is_scatter() || update.family != family) break;
      if (std::optional<TensorRef> source = SourceIn(window, *begin, update); source.has_value()) return source;
      if (family == 0) break;
      version = update.Target().storage;
    }
    return std::nullopt;
  }

  std::optional<TensorRef> SourceIn(const TensorRef& window, int64_t begin, const Node& update) {
    const TensorRef& target = update.Target();
    const TensorRef& source = update.op.args[1].tensors[0];
    const std::optional<int64_t> target_begin = OffsetOf(target);
    if (!target_begin.has_value() || window.dtype != target.dtype || source.dtype != target.dtype || window.numel() == 0) {
      return std::nullopt;
    }
    // It would be read later than it is overwritten.
    if (overwritten_[static_cast<size_t>(source.storage)]) return std::nullopt;
    const std::optional<int64_t> from = begin == *target_begin ? 0 : Sum(begin, -*target_begin);
    if (!from.has_value()) return std::nullopt;
    const auto map = WindowMap::Of(window, target, *from, graph_.symbols);
    std::optional<TensorRef> part = map.has_value() ? PartOf(*map, source) : std::nullopt;
    if (!part.has_value()) return std::nullopt;
    // All of the window's sizes: operators look at them.
    for (size_t d = 0; d < std::min(part->sizes.size(), window.sizes.size()); ++d) {
      if (part->sizes[d] != window.sizes[d]) part->strides[d] = 0;
    }
    part->strides.resize(window.sizes.size(), 0);  // Of a number, or one element.
    part->sizes = window.sizes;
    part->wrapped_number = window.wrapped_number;
    return part;
  }

  // ---- What is computed ------------------------------------------------------------

  // A value that is made in windows, and who reads it so.
  struct Plan {
    std::vector<TensorRef> windows;
    std::vector<std::pair<Use, size_t>> uses;                   // And which window each reads.
    std::vector<std::pair<size_t, SmallReduction>> reductions;  // Of all of it: nodes of done_.
    std::vector<std::vector<size_t>> parts;                     // By reduction: the windows that it is of.
    int chain = 0;                                              // Nodes that it and its users become.
  };

  // Whether two windows, whose beginnings are known, are the same elements.
  bool IsSameWindow(const TensorRef& a, const TensorRef& b) const {
    const auto dims = [](const TensorRef& ref) {
      std::vector<std::pair<int64_t, int64_t>> result;
      for (size_t d = 0; d < ref.sizes.size(); ++d) {
        if (ref.sizes[d] != 1) result.emplace_back(ref.sizes[d], ref.strides[d]);
      }
      return result;
    };
    return OffsetOf(a) == OffsetOf(b) && dims(a) == dims(b);
  }

  size_t AddWindow(const TensorRef& window, Plan* plan) const {
    const auto same = [&](const TensorRef& other) { return IsSameWindow(window, other); };
    const auto found = std::find_if(plan->windows.begin(), plan->windows.end(), same);
    if (found == plan->windows.end()) return plan->windows.push_back(window), plan->windows.size() - 1;
    return static_cast<size_t>(found - plan->windows.begin());
  }

  // How `value`, the result of `node`, can be made in windows; nothing where somebody needs it whole, or windows overlap much.
  std::optional<Plan> PlanWindows(const TensorRef& whole, ValueId value) {
    Plan plan;
    const int64_t all = graph_.symbols.Hint(whole.numel());
    for (const Use& use : uses_[static_cast<size_t>(value)]) {
      const TensorRef& ref = RefOf(use);
      if (!IsReadByKernel(use) || ref.dtype != whole.dtype || !OffsetOf(ref).has_value() || ref.numel() == 0) return std::nullopt;
      if (ref.sizes == whole.sizes && ref.strides == whole.strides) {
        const auto reduction = FindSmallReduction(done_[use.node].op, graph_.symbols);
        if (!reduction.has_value()) return std::nullopt;
        plan.reductions.emplace_back(use.node, *reduction);
      } else if (graph_.symbols.Hint(ref.numel()) == all) {
        return std::nullopt;
      } else {
        plan.uses.emplace_back(use, AddWindow(ref, &plan));
      }
    }
    if (plan.uses.empty()) return std::nullopt;
    for (const auto& [node, reduction] : plan.reductions) {
      plan.parts.emplace_back();
      for (int64_t i = 0; i < reduction.count; ++i) {
        TensorRef part = whole;
        part.sizes[reduction.dim] = 1;
        part.SetOffset(AddOffset(&graph_, -1, {i * whole.strides[reduction.dim]}));
        if (!OffsetOf(part).has_value()) return std::nullopt;
        plan.parts.back().push_back(AddWindow(part, &plan));
      }
    }
    int64_t elements = 0;
    for (const TensorRef& window : plan.windows) elements += graph_.symbols.Hint(window.numel());
    for (const auto& [use, window] : plan.uses) {
      if (const auto found = chain_.find(use.node); found != chain_.end()) plan.chain = std::max(plan.chain, found->second);
    }
    plan.chain += static_cast<int>(plan.windows.size());
    return elements <= all && plan.chain <= kMaxChain ? std::make_optional(std::move(plan)) : std::nullopt;
  }

  // Makes the result of `node` in the windows that are read of it, if kernels read it in some and nobody needs all of it.
  bool MakeInWindows(const Node& node) {
    if (!IsPointwiseAlone(node)) return false;
    const ValueId value = node.results[0];
    if (pinned_[static_cast<size_t>(value)] || overwritten_[static_cast<size_t>(value)]) return false;
    const std::optional<Plan> plan = PlanWindows(node.op.results[0], value);
    if (!plan.has_value()) return false;
    std::vector<Node> parts;
    for (const TensorRef& window : plan->windows) {
      std::optional<Node> part = PartOf(node, window);
      if (!part.has_value()) return false;
      parts.push_back(*std::move(part));
    }
    for (size_t i = 0; i < parts.size(); ++i) MakeResult(plan->windows[i], &parts[i]);
    for (const auto& [use, window] : plan->uses) ReadAll(use, parts[window]);
    for (size_t i = 0; i < plan->reductions.size(); ++i)
      ReduceParts(plan->reductions[i].first, plan->reductions[i].second, plan->parts[i], parts);
    graph_.values[value].producer = kNoNode;
    for (Node& part : parts) {
      chain_[done_.size()] = plan->chain;
      Keep(std::move(part));
    }
    return changed_ = true;
  }

  // Has done_[place], which is `reduction`, made of the results of `parts` that `windows` names.
  void ReduceParts(size_t place, const SmallReduction& reduction, const std::vector<size_t>& windows, const std::vector<Node>& parts) {
    const TraceOp op = done_[place].op;
    absl::flat_hash_map<StorageId, ValueId> values;  // Of what the operators below are called on.
    std::vector<TensorRef> operands;
    for (const size_t window : windows) {
      TensorRef operand = op.args[0].tensors[0];
      operand.sizes[reduction.dim] = 1;
      ReadAllOf(parts[window], &operand);
      operand.storage = parts[window].op.results[0].storage;
      values[operand.storage] = parts[window].results[0];
      operands.push_back(std::move(operand));
    }
    const c10::Device device = graph_.storages[op.results[0].storage].device;
    std::vector<TraceOp> ops;
    AppendReduction(
        op, reduction, std::move(operands),
        [&](const TensorRef& like) {
          const TensorRef made = AddTensor(&graph_, like, like.sizes, device);
          values[made.storage] = AddValue(made);
          return made;
        },
        &ops);
    for (size_t i = ops.size(); i-- > 0;) {
      Node node;
      node.kind = Node::Kind::kCompute;
      node.row = FindRow(ops[i]);
      node.results = {i + 1 == ops.size() ? done_[place].results[0] : values.at(ops[i].results[0].storage)};
      node.op = std::move(ops[i]);
      ForEachUse(node, [&](TensorRef& use) { use.storage = values.at(use.storage); });
      if (i + 1 < ops.size()) {
        Keep(std::move(node));
      } else {
        done_[place] = std::move(node);
        NoteUses(place);
      }
    }
  }

  static bool IsPointwiseAlone(const Node& node) {
    return node.part == 0 && !node.again && node.results.size() == 1 && node.results[0] != kNoValue && node.row->parts == 1 &&
           node.row->index_args == 0 && IsFreePointwise(node.row);
  }

  // `node` for the elements of `window` alone; its result is yet to be made.
  std::optional<Node> PartOf(const Node& node, const TensorRef& window) {
    const auto map = WindowMap::Of(window, node.op.results[0], *OffsetOf(window), graph_.symbols);
    if (!map.has_value()) return std::nullopt;
    Node part = node;
    part.results.clear();
    for (TraceArg& arg : part.op.args) {
      for (TensorRef& ref : arg.tensors) {
        if (!ref.defined()) continue;
        std::optional<TensorRef> operand = PartOf(*map, ref);
        if (!operand.has_value()) return std::nullopt;
        ref = *std::move(operand);
      }
    }
    return part;
  }

  // Of at least one dimension, as the operands: which type is computed in depends on who has none.
  void MakeResult(const TensorRef& window, Node* part) {
    TensorRef like = window;
    if (like.sizes.empty() && !part->op.results[0].sizes.empty()) {
      like.sizes = {1};
      like.strides = {1};
    }
    like.wrapped_number = false;
    const TensorRef result = AddTensor(&graph_, like, like.sizes, graph_.storages[part->op.results[0].storage].device);
    part->op.results = {result};
    part->results = {AddValue(result)};
  }

  ValueId AddValue(const TensorRef& layout) {
    uses_.emplace_back();
    pinned_.push_back(false);
    overwritten_.push_back(false);
    return graph_.AddValue({kNoNode, layout.storage, kNoValue, layout});
  }

  void ReadAll(const Use& use, const Node& part) {
    ReadAllOf(part, &RefOf(use));
    uses_[static_cast<size_t>(part.results[0])].push_back(use);
  }

  // Has `ref`, a window that is the result of `part`, but perhaps for dimensions of size 1, mean that.
  static void ReadAllOf(const Node& part, TensorRef* ref) {
    const TensorRef& result = part.op.results[0];
    ref->storage = part.results[0];
    ref->SetOffset(-1);
    size_t from = 0;
    for (size_t d = 0; d < ref->sizes.size(); ++d) {
      if (ref->sizes[d] == 1) {
        ref->strides[d] = 1;
        continue;
      }
      while (result.sizes[from] == 1) ++from;
      ref->strides[d] = result.strides[from++];
    }
  }

  Graph graph_;
  std::vector<bool> pinned_;
  std::vector<bool> overwritten_;
  std::vector<std::vector<Use>> uses_;             // By value: of those in done_.
  std::vector<Node> done_;                         // The last ones first.
  absl::flat_hash_map<int32_t, int64_t> offsets_;  // What is known of offset slots.
  absl::flat_hash_map<size_t, int> chain_;         // Of nodes of done_ that compute windows: see Plan.
  bool changed_ = false;
};

}  // namespace

absl::StatusOr<Graph> ComputeWindows(Graph graph) {
  WindowPass pass(std::move(graph));
  absl::StatusOr<Graph> result = pass.Run();
  if (!pass.changed()) return result;
  for (const auto& simplify : {&EliminateDeadCode, &FoldCopies, &EliminateCommonSubexpressions}) {
    if (result.ok()) result = simplify(*std::move(result));
  }
  return result;
}

}  // namespace lazuli::codegen
