#include "codegen/passes/rematerialize.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "codegen/lower.h"
#include "codegen/lower_group.h"
#include "codegen/lower_rows.h"
#include "codegen/passes/dce.h"
#include "codegen/passes/fuse.h"
#include "codegen/passes/value_uses.h"

namespace lazuli::codegen {
namespace {

// So many operators, at most, may follow each other.
constexpr size_t kMostNodes = 8;
// On the way to such a value only: a slice that is made contiguous.
constexpr const char *kCopy = "aten::clone", *kCast = "aten::_to_copy";
// An operand with so many times fewer elements is a number for each row or column.
constexpr int64_t kFewer = 16;

// Operations, as Weight counts them, that take about as long as moving a byte.
double OperationsPerByte(const Node& node) { return node.op.device.is_cpu() ? 1 : 9; }

// Whether the copy, a clone or a cast, reads its operand from end to end: that may be done again, unlike transposing.
bool IsInOrder(const Node& copy) {
  if (copy.op.args[0].tensors.empty()) return true;  // A number.
  const TensorRef& from = copy.op.args[0].tensors[0];
  if (from.strides == copy.op.results[0].strides) return true;
  return !from.strides.empty() && from.strides.back() == 1 && IsContiguous(copy.op.results[0]) &&
         std::is_sorted(from.strides.rbegin(), from.strides.rend());
}

// Whether the node makes one value of its own, element by element, or, on a GPU, which reads rows of a table from its caches, of elements
// of one operand that indices say.
bool IsArithmetic(const Node& node) {
  if (node.kind != Node::Kind::kCompute || node.op.info->returns_mutated_self || node.results.size() != 1) return false;
  const OpRow& row = *node.row;
  if (row.index_args != 0) return node.op.device.is_cuda() && row.indexed_args == 1 && row.reducing_parts == 0 && row.picked_dim == nullptr;
  return IsFreePointwise(&row) && node.op.info->name != kCopy && (node.op.info->name != kCast || IsInOrder(node));
}

bool IsCopyInOrder(const Node& node) { return node.kind == Node::Kind::kCompute && node.op.info->name == kCopy && IsInOrder(node); }

// How a value is computed anew.
struct Recipe {
  std::vector<NodeId> nodes;    // In order; the last one makes it.
  std::vector<Node> steps;      // These, each in the value's shape where it can be.
  ValueId source = kNoValue;    // The tensor that is in memory anyway, if it takes one,
  TensorRef source_use;         // as one of the nodes uses it.
  std::vector<TensorRef> rows;  // The other operands.
};

// `node` as it would be had its operands and its result, where these are of one shape and dense, been seen as `sizes` before; itself where
// they are not.
Node Reshaped(const Node& node, const c10::DimVector& sizes) {
  const TensorRef result = node.op.results[0];
  TensorRef view = result;
  view.sizes = sizes;
  view.strides = ContiguousStrides(sizes);
  if (result.sizes == sizes || !IsContiguous(result) || view.numel() != result.numel() || node.row->index_args != 0) return node;
  Node copy = node;
  bool fits = true;
  ForEachUse(copy, [&](TensorRef& use) {
    fits = fits && use.sizes == result.sizes && use.strides == result.strides;
    use.sizes = view.sizes;
    use.strides = view.strides;
  });
  copy.op.results[0] = view;
  return fits ? copy : node;
}

// One of the uses of a value by a kernel that does not make it.
struct Reader {
  NodeId node;
  bool picks;
  bool in_row = false;  // It picks from the copy of the source that the value is made of, where that is computed: it is not stored.
};

class Rematerializer {
 public:
  Rematerializer(Graph graph, const Graph& fused)
      : graph_(std::move(graph)),
        fused_(fused),
        in_memory_(ValuesInMemory(fused)),
        overwritten_(OverwrittenValues(graph_)),
        pinned_(PinnedValues(graph_)),
        kept_(graph_.values.size(), false),
        users_(graph_.values.size()),
        group_of_(graph_.nodes.size(), -1),
        weights_(graph_.nodes.size()),
        before_(graph_.nodes.size()),
        after_(graph_.nodes.size()) {
    for (size_t g = 0; g < fused.groups.size(); ++g) {
      for (NodeId n : fused.groups[g].nodes) group_of_[n] = static_cast<int>(g);
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      ForEachArgUse(graph_.nodes[n], [&](size_t arg, const TensorRef& use) {
        if (!IsUnread(graph_.nodes[n], arg)) AddUser(use.storage, static_cast<NodeId>(n));
      });
    }
  }

  absl::StatusOr<Graph> Run() {
    const auto count = static_cast<NodeId>(graph_.nodes.size());
    for (NodeId n = 0; n < count; ++n) {
      if (IsArithmetic(graph_.nodes[n])) TryValue(graph_.nodes[n].results[0]);
    }
    if (!changed_) return std::move(graph_);
    Rebuild();
    return EliminateDeadCode(std::move(graph_));
  }

 private:
  static bool IsUnread(const Node& node, size_t arg) { return node.row != nullptr && (node.row->unread_args >> arg & 1) != 0; }

  void AddUser(ValueId value, NodeId n) {
    if (users_[value].empty() || users_[value].back() != n) users_[value].push_back(n);
  }

  int64_t Elements(const TensorRef& ref) const { return StoredElements(graph_, ref); }
  int64_t Bytes(const TensorRef& ref) const { return StoredBytes(graph_, ref); }

  void TryValue(ValueId value) {
    if (!in_memory_[value] || pinned_[value] || overwritten_[value] || kept_[value]) return;
    std::vector<Reader> readers;
    Recipe recipe;
    if (!FindReaders(value, &readers) || !FindRecipe(value, value, &recipe)) return;
    SetSteps(value, &recipe);
    if (!Pays(value, recipe, readers)) return;
    const Recipe copied = WithoutCopy(recipe);
    for (Reader& reader : readers) {
      if (reader.picks && recipe.source == kNoValue) return;
      reader.in_row = reader.picks && !PicksFit(value, recipe, reader.node);
      if (reader.in_row && (graph_.nodes[reader.node].row->pick_in_row < 0 || !PicksFit(value, copied, reader.node))) return;
    }
    for (const Reader& reader : readers) {
      if (reader.in_row) {
        PickFromSource(value, copied, reader.node);
        graph_.nodes[reader.node].part = graph_.nodes[reader.node].row->pick_in_row;
        continue;
      }
      if (reader.picks) {
        PickFromSource(value, recipe, reader.node);
      } else {
        ComputeAgain(value, recipe, reader.node);
      }
      if (recipe.source != kNoValue) AddUser(recipe.source, reader.node);
    }
    if (recipe.source != kNoValue) kept_[recipe.source] = true;
    in_memory_[value] = false;
    changed_ = true;
  }

  // False when some use of `value` needs it in memory.
  bool FindReaders(ValueId value, std::vector<Reader>* readers) const {
    const TensorRef& layout = graph_.values[value].layout;
    for (const NodeId n : users_[value]) {
      const Node& node = graph_.nodes[n];
      if (group_of_[n] == group_of_[graph_.values[value].producer]) continue;
      if ((node.kind != Node::Kind::kCompute && !node.is_scatter()) || !before_[n].empty()) return false;
      Reader reader{n, false};
      bool fits = true;
      ForEachArgUse(node, [&](size_t arg, const TensorRef& use) {
        if (use.storage != value || IsUnread(node, arg)) return;
        if ((node.row->index_args >> arg & 1) != 0 || use.offset_slot != -1 || use.dtype != layout.dtype) fits = false;
        const bool same = use.sizes == layout.sizes && use.strides == layout.strides;
        if (ReadsElsewhere(node, arg)) {
          reader.picks = same && node.row->picked_dim != nullptr && static_cast<int>(arg) == node.row->picked_arg;
          fits = fits && reader.picks;
          return;
        }
        fits = fits && (same || (IsContiguous(use) && IsContiguous(layout))) && use.numel() == layout.numel() && HasSizeOf(node, layout);
      });
      if (!fits) return false;
      readers->push_back(reader);
    }
    return !readers->empty();
  }

  // Whether the node iterates over as many points as `ref` has elements, so that what makes `ref` fuses with it.
  static bool HasSizeOf(const Node& node, const TensorRef& ref) {
    int64_t points = 1;
    for (const int64_t size : IterationOf(node).sizes) points *= size;
    return points == ref.numel();
  }

  // Adds what makes `value`, a step towards `goal`, to `recipe`.
  bool FindRecipe(ValueId value, ValueId goal, Recipe* recipe) const {
    const NodeId producer = graph_.values[value].producer;
    if (producer == kNoNode || !before_[producer].empty()) return false;
    if (!IsArithmetic(graph_.nodes[producer]) && !(value != goal && IsCopyInOrder(graph_.nodes[producer]))) return false;
    if (std::find(recipe->nodes.begin(), recipe->nodes.end(), producer) != recipe->nodes.end()) return true;
    const int64_t elements = Elements(graph_.values[goal].layout);
    bool found = true;
    ForEachUse(graph_.nodes[producer], [&](const TensorRef& use) {
      if (!found) return;
      if (overwritten_[use.storage]) {
        found = false;
      } else if (Elements(use) * kFewer <= elements) {
        recipe->rows.push_back(use);
      } else if (IsInMemory(use.storage)) {
        found = recipe->source == kNoValue || recipe->source == use.storage;
        recipe->source = use.storage;
      } else {
        found = FindRecipe(use.storage, goal, recipe);
      }
    });
    recipe->nodes.push_back(producer);
    return found && recipe->nodes.size() <= kMostNodes;
  }

  void SetSteps(ValueId value, Recipe* recipe) const {
    for (const NodeId n : recipe->nodes) {
      recipe->steps.push_back(Reshaped(graph_.nodes[n], graph_.values[value].layout.sizes));
      SetSourceUse(recipe->steps.back(), recipe);
    }
  }

  static void SetSourceUse(const Node& step, Recipe* recipe) {
    ForEachUse(step, [&](const TensorRef& use) {
      if (use.storage == recipe->source) recipe->source_use = use;
    });
  }

  // The recipe from a copy of the source on, if that is its first step; itself otherwise.
  Recipe WithoutCopy(Recipe recipe) const {
    if (recipe.steps.size() < 2 || !IsCopyInOrder(recipe.steps[0])) return recipe;
    recipe.source = recipe.steps[0].results[0];
    recipe.steps.erase(recipe.steps.begin());
    SetSourceUse(recipe.steps[0], &recipe);
    return recipe;
  }

  bool IsInMemory(ValueId value) const { return graph_.values[value].producer == kNoNode || in_memory_[value]; }

  // Counts bytes that kernels move: those of the value, written once and read by each, or of what it is made of, of which only the numbers
  // for rows are also written for this. What is saved has to be worth the work.
  bool Pays(ValueId value, const Recipe& recipe, const std::vector<Reader>& readers) {
    const TensorRef& layout = graph_.values[value].layout;
    int64_t stored = Bytes(layout), again = 0;
    for (const TensorRef& row : recipe.rows) again += Bytes(row);
    int64_t computed = 0;
    absl::flat_hash_set<int> groups;
    for (const Reader& reader : readers) {
      if (!groups.insert(group_of_[reader.node]).second) continue;
      if (reader.picks) {
        const int64_t picked = Elements(graph_.nodes[reader.node].op.results[0]) * static_cast<int64_t>(sizeof(float));
        stored += picked;
        again += picked;
      } else {
        stored += Bytes(layout);
        const bool reads = recipe.source == kNoValue || ReadsSource(group_of_[reader.node], recipe.source);
        again += reads ? 0 : Bytes(recipe.source_use);
        computed += Elements(layout);
      }
      for (const TensorRef& row : recipe.rows) again += Bytes(row);
    }
    if (again >= stored) return false;
    const double worth = static_cast<double>(stored - again) * OperationsPerByte(graph_.nodes[recipe.nodes.back()]);
    return computed == 0 || WeightOf(recipe) * static_cast<double>(computed) <= worth;
  }

  // What the recipe takes for each element.
  double WeightOf(const Recipe& recipe) {
    double weight = 0;
    for (const NodeId n : recipe.nodes) {
      if (!weights_[n].has_value()) weights_[n] = WeightOf(n);
      weight += *weights_[n];
    }
    return weight;
  }

  double WeightOf(NodeId n) const {
    const Group& group = fused_.groups[static_cast<size_t>(group_of_[n])];
    if (!group.is_kernel()) return std::numeric_limits<double>::infinity();  // It is left to ATen.
    const auto at = std::find(group.nodes.begin(), group.nodes.end(), n) - group.nodes.begin();
    return LoweredWeight(fused_, {{n}, group.sizes, group.reduced, {group.placements[static_cast<size_t>(at)]}});
  }

  bool ReadsSource(int group, ValueId source) const {
    const auto& users = users_[source];
    return std::any_of(users.begin(), users.end(), [&](NodeId n) { return group_of_[n] == group; });
  }

  static bool IsSameWindow(const TensorRef& a, const TensorRef& b) {
    return a.sizes == b.sizes && a.strides == b.strides && a.offset_slot == b.offset_slot && a.dtype == b.dtype;
  }

  // Whether what `picker` picks can be picked from the recipe's source: everything has the value's shape, or is the same for all elements
  // that one is picked from.
  bool PicksFit(ValueId value, const Recipe& recipe, NodeId picker) const {
    const TensorRef& layout = graph_.values[value].layout;
    const size_t dim = graph_.nodes[picker].row->picked_dim(graph_.nodes[picker].op);
    bool fits = recipe.source_use.sizes == layout.sizes && !overwritten_[recipe.source];
    for (const Node& step : recipe.steps) {
      fits = fits && step.op.results[0].sizes == layout.sizes && step.row->index_args == 0;
      ForEachUse(step,
                 [&](const TensorRef& use) { fits = fits && (use.storage != recipe.source || IsSameWindow(use, recipe.source_use)); });
    }
    for (const TensorRef& row : recipe.rows)
      fits = fits && row.sizes.size() == layout.sizes.size() && (row.sizes[dim] == 1 || row.strides[dim] == 0);
    return fits;
  }

  // A copy of `node` that makes a value of its own.
  Node CopyOf(const Node& node, absl::flat_hash_map<ValueId, ValueId>* renamed) {
    Node copy = node;
    ForEachUse(copy, [&](TensorRef& use) {
      const auto found = renamed->find(use.storage);
      if (found != renamed->end()) use.storage = found->second;
    });
    Value value = graph_.values[node.results[0]];
    value.layout = node.op.results[0];
    copy.results[0] = graph_.AddValue(value);
    (*renamed)[node.results[0]] = copy.results[0];
    return copy;
  }

  void ComputeAgain(ValueId value, const Recipe& recipe, NodeId reader) {
    absl::flat_hash_map<ValueId, ValueId> renamed;
    for (const Node& step : recipe.steps) {
      Node copy = CopyOf(step, &renamed);
      copy.again = true;
      before_[reader].push_back(std::move(copy));
    }
    ForEachArgUse(graph_.nodes[reader], [&](size_t arg, TensorRef& use) {
      if (use.storage == value && !IsUnread(graph_.nodes[reader], arg)) use.storage = renamed[value];
    });
  }

  // `picker` picks from the source, and copies of the recipe's nodes compute its result of what it picked.
  void PickFromSource(ValueId value, const Recipe& recipe, NodeId picker) {
    Node& node = graph_.nodes[picker];
    const size_t dim = node.row->picked_dim(node.op);
    const TensorRef picked_layout = node.op.results[0];
    const ValueId result = node.results[0];
    absl::flat_hash_map<ValueId, ValueId> renamed;
    node.op.args[static_cast<size_t>(node.row->picked_arg)].tensors[0] = recipe.source_use;
    node.op.results[0].dtype = recipe.source_use.dtype;
    node.results[0] = graph_.AddValue({picker, graph_.values[result].storage, kNoValue, node.op.results[0]});
    renamed[recipe.source] = node.results[0];
    for (const Node& step : recipe.steps) {
      Node copy = step;
      const ValueId made = copy.results[0];
      ForEachUse(copy, [&](TensorRef& use) {
        const auto found = renamed.find(use.storage);
        const ValueId storage = found != renamed.end() ? found->second : use.storage;
        if (found != renamed.end()) {
          const c10::ScalarType dtype = use.dtype;
          use = picked_layout;
          use.dtype = dtype;
        } else {
          use.sizes.erase(use.sizes.begin() + static_cast<std::ptrdiff_t>(dim));
          use.strides.erase(use.strides.begin() + static_cast<std::ptrdiff_t>(dim));
        }
        use.storage = storage;
      });
      const c10::ScalarType dtype = copy.op.results[0].dtype;
      copy.op.results[0] = picked_layout;
      copy.op.results[0].dtype = dtype;
      copy.results[0] = made == value ? result : graph_.AddValue({picker, graph_.values[made].storage, kNoValue, copy.op.results[0]});
      renamed[made] = copy.results[0];
      after_[picker].push_back(std::move(copy));
    }
  }

  // Puts the new nodes where they belong.
  void Rebuild() {
    std::vector<Node> nodes;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      std::move(before_[n].begin(), before_[n].end(), std::back_inserter(nodes));
      nodes.push_back(std::move(graph_.nodes[n]));
      std::move(after_[n].begin(), after_[n].end(), std::back_inserter(nodes));
    }
    graph_.nodes = std::move(nodes);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      ForEachDef(graph_.nodes[n], [&](ValueId value) { graph_.values[value].producer = static_cast<NodeId>(n); });
    }
  }

  Graph graph_;
  const Graph& fused_;
  std::vector<bool> in_memory_;  // By value, as it fuses.
  const std::vector<bool> overwritten_, pinned_;
  std::vector<bool> kept_;  // What others are computed of.
  std::vector<std::vector<NodeId>> users_;
  std::vector<int> group_of_;
  std::vector<std::optional<double>> weights_;     // By node, where asked for: several recipes have it.
  std::vector<std::vector<Node>> before_, after_;  // New nodes, by the node that they stand next to.
  bool changed_ = false;
};

}  // namespace

absl::StatusOr<Graph> Rematerialize(Graph graph) {
  const bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(), IsArithmetic);
  if (!any) return graph;
  auto fused = Fuse(graph, {});
  if (!fused.ok()) return fused.status();
  return Rematerializer(std::move(graph), *fused).Run();
}

}  // namespace lazuli::codegen
