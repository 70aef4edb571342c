#include "codegen/passes/convolution_layout.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codegen/ir/dtypes.h"
#include "codegen/lower_group.h"
#include "codegen/lower_pieces.h"
#include "codegen/passes/channels_last.h"
#include "codegen/passes/min_cut.h"
#include "codegen/passes/trace_uses.h"
#include "codegen/passes/value_uses.h"
#include "codegen/random_ops.h"

namespace lazuli::codegen {
namespace {

// Elements of a row or column that a reduction finds together.
constexpr int64_t kLeastNeighbours = 8;

class LayoutChooser {
 public:
  LayoutChooser(Graph graph, const ConvolutionLayoutOptions& options)
      : graph_(std::move(graph)),
        pinned_(PinnedValues(graph_)),
        root_(graph_.values.size()),
        convolutions_(FindConvolutions(graph_, options)),
        convolution_of_(graph_.nodes.size(), -1) {
    for (size_t c = 0; c < convolutions_.size(); ++c) convolution_of_[convolutions_[c].node] = static_cast<int>(c);
  }

  Graph Run() {
    if (std::none_of(convolutions_.begin(), convolutions_.end(), [](const Convolution& c) { return c.gain > 0; })) return std::move(graph_);
    FindMovable();
    Unite();
    do ChooseFamilies();
    while (LeaveUnfit());
    MoveWeights();
    for (Node& node : graph_.nodes) Move(&node);
    for (size_t v = 0; v < moves_.size(); ++v) {
      TensorRef& layout = graph_.values[v].layout;
      if (moves_[v] && graph_.values[v].has_layout()) layout.strides = ChannelsLast(layout.sizes);
    }
    InsertCopies();
    return std::move(graph_);
  }

 private:
  int64_t Hint(int64_t number) const { return graph_.symbols.Hint(number); }

  // Of the memory that the value is in.
  const TensorRef& LayoutOf(ValueId value) const { return graph_.values[graph_.MemoryOf(value)].layout; }

  // A dense tensor in row-major order that the trace makes, in which the two orders differ; also as what is put together window by window.
  bool IsImage(ValueId value) const {
    const Value& v = graph_.values[value];
    if (v.producer == kNoNode) return false;
    if (v.previous != kNoValue) return IsPutTogether(graph_.nodes[v.producer]) && IsImage(v.previous);
    if (!v.has_layout() || v.layout.sizes.size() != 4) return false;
    return v.layout.is_contiguous() && v.layout.numel() != 0 && OrdersDiffer(v.layout.sizes);
  }

  // An update of one of the windows that make up a fresh memory.
  static bool IsPutTogether(const Node& node) { return node.kind == Node::Kind::kUpdate && !node.is_scatter() && node.family != 0; }

  bool OrdersDiffer(const c10::DimVector& sizes) const { return Hint(sizes[1]) > 1 && Hint(sizes[2]) * Hint(sizes[3]) > 1; }

  // Whether `node` may read, as argument `arg`, its `use` of a tensor in another order.
  bool CanRead(NodeId n, size_t arg, const TensorRef& use) const {
    const Node& node = graph_.nodes[n];
    const TensorRef& layout = LayoutOf(use.storage);
    if (node.kind == Node::Kind::kExtern) {
      return convolution_of_[n] >= 0 && static_cast<int>(arg) <= convolutions_[convolution_of_[n]].input + 1 && IsAllOf(use, layout);
    }
    const bool target = node.kind == Node::Kind::kUpdate && static_cast<int>(arg) == node.target_arg();
    if (node.is_scatter() || (target && !IsPutTogether(node))) return false;
    return FollowsToChannelsLast(graph_, use, layout);
  }

  // Whether nobody minds where the value lies, but for those who read it.
  bool MayMove(ValueId value) const {
    const Value& v = graph_.values[value];
    if (v.producer == kNoNode || pinned_[value]) return false;
    if (v.previous != kNoValue) return image_[value];
    const Node& producer = graph_.nodes[v.producer];
    const bool made = producer.kind == Node::Kind::kCompute || convolution_of_[v.producer] >= 0;
    const bool lies = v.has_layout() && v.layout.sizes.size() == 4 && v.layout.is_contiguous();
    return made && lies && !DrawsInOrderOfMemory(producer.op.info->name);
  }

  void FindMovable() {
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const auto value = static_cast<ValueId>(v);
      image_.push_back(IsImage(value));
      movable_.push_back(MayMove(value));
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      ForEachArgUse(graph_.nodes[n], [&](size_t arg, const TensorRef& use) {
        if (movable_[use.storage] && !CanRead(static_cast<NodeId>(n), arg, use)) movable_[use.storage] = false;
      });
    }
    // One memory moves as a whole.
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      if (graph_.values[v].previous != kNoValue && !movable_[v]) movable_[graph_.MemoryOf(static_cast<ValueId>(v))] = false;
    }
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      if (graph_.values[v].previous != kNoValue) movable_[v] = movable_[graph_.MemoryOf(static_cast<ValueId>(v))];
    }
    moves_.assign(graph_.values.size(), false);
  }

  ValueId Root(ValueId value) {
    while (root_[value] != value) value = root_[value] = root_[root_[value]];
    return value;
  }

  // What kernels make of each other, element by element, is a family, and so is what they put together.
  void Unite() {
    for (size_t v = 0; v < root_.size(); ++v) root_[v] = graph_.MemoryOf(static_cast<ValueId>(v));
    for (const Node& node : graph_.nodes) {
      if (IsPutTogether(node)) {
        ForEachUse(node, [&](const TensorRef& use) {
          if (image_[use.storage] && IsAllOf(use, LayoutOf(use.storage))) root_[Root(use.storage)] = Root(node.results[0]);
        });
      }
      if (node.kind != Node::Kind::kCompute) continue;
      std::vector<ValueId> images;
      const auto add = [&](ValueId value, const TensorRef& ref) {
        if (image_[value] && IsAllOf(ref, LayoutOf(value))) images.push_back(value);
      };
      ForEachUse(node, [&](const TensorRef& use) { add(use.storage, use); });
      for (size_t i = 0; i < node.results.size(); ++i) {
        if (node.results[i] != kNoValue) add(node.results[i], node.op.results[i]);
      }
      for (const ValueId a : images) {
        for (const ValueId b : images) {
          if (a < b && LayoutOf(a).sizes == LayoutOf(b).sizes) root_[Root(b)] = Root(a);
        }
      }
    }
  }

  // Of the families that convolutions take or give some of, and of which most can move, those whose move is worth most.
  void ChooseFamilies() {
    std::vector<bool> touched(graph_.values.size(), false);
    std::vector<int> balance(graph_.values.size(), 0);
    for (const Convolution& conv : convolutions_) {
      ForEachImage(graph_, conv, [&](ValueId value, const TensorRef&) {
        if (image_[value] && movable_[value]) touched[Root(value)] = true;
      });
    }
    for (size_t v = 0; v < moves_.size(); ++v) {
      if (image_[v]) balance[Root(static_cast<ValueId>(v))] += movable_[v] ? 1 : -1;
    }
    MinCut cut;
    std::vector<int> question(graph_.values.size(), -1);  // Of each family that may move: whether it does.
    for (size_t v = 0; v < moves_.size(); ++v) {
      const ValueId root = Root(static_cast<ValueId>(v));
      if (image_[v] && movable_[v] && touched[root] && balance[root] > 0 && question[root] < 0) question[root] = cut.AddNode();
    }
    for (const Convolution& conv : convolutions_) Ask(conv, question, &cut);
    for (const Node& node : graph_.nodes) TurnAround(node, question, &cut);
    const std::vector<bool> yes = cut.SourceSide();
    for (size_t v = 0; v < moves_.size(); ++v) {
      const int family = question[Root(static_cast<ValueId>(v))];
      moves_[v] = image_[v] && movable_[v] && family >= 0 && yes[family];
    }
  }

  // What the convolution gains, and what it copies where only some of its images move, in quarters of copies.
  void Ask(const Convolution& conv, const std::vector<int>& question, MinCut* cut) {
    const int any = cut->AddNode();
    int64_t cost = conv.copies_weight ? 4 * Hint(RefOf(graph_.nodes[conv.node].op, conv.input + 1).numel()) : 0;
    ForEachImage(graph_, conv, [&](ValueId value, const TensorRef& image) {
      if (!OrdersDiffer(image.sizes)) return;
      const int64_t elements = Hint(image.numel());
      const int family = image_[value] && movable_[value] ? question[Root(value)] : -1;
      cost -= conv.gain * elements;
      if (family >= 0) {
        cut->AddEdge(any, family, 4 * elements);
        cut->AddEdge(family, any, MinCut::kNever);
      } else if (image.strides != ChannelsLast(image.sizes)) {
        cost += 4 * elements;
      }
    });
    cut->AddEdge(cost < 0 ? MinCut::kSource : any, cost < 0 ? any : MinCut::kSink, std::abs(cost));
  }

  // What a kernel that makes one family of another (a pool, an enlargement) takes longer where only one of them moves: as a copy.
  void TurnAround(const Node& node, const std::vector<int>& question, MinCut* cut) {
    if (node.kind != Node::Kind::kCompute) return;
    const auto family_of = [&](ValueId value) {
      return value != kNoValue && image_[value] && movable_[value] ? question[Root(value)] : -1;
    };
    ForEachUse(node, [&](const TensorRef& use) {
      const int from = family_of(use.storage);
      for (const ValueId result : node.results) {
        const int to = family_of(result);
        if (from < 0 || to < 0 || from == to) continue;
        const int64_t elements = std::max(Hint(use.numel()), Hint(graph_.values[result].layout.numel()));
        cut->AddEdge(from, to, 4 * elements);
        cut->AddEdge(to, from, 4 * elements);
      }
    });
  }

  // `node`'s tensors where they will lie.
  void Move(Node* node) {
    const auto move = [&](ValueId value, TensorRef* ref) {
      if (moves_[value]) *ref = InChannelsLast(&graph_, *ref, LayoutOf(value));
    };
    ForEachUse(*node, [&](TensorRef& use) { move(use.storage, &use); });
    for (size_t i = 0; i < node->results.size(); ++i) {
      if (node->results[i] != kNoValue && node->kind != Node::Kind::kUpdate) move(node->results[i], &node->op.results[i]);
    }
  }

  // Leaves alone the families of nodes that could not do, or would be slow at, what they do to them. False: there are none.
  bool LeaveUnfit() {
    std::vector<bool> left(graph_.values.size(), false);  // By family.
    bool any = false;
    for (const Node& node : graph_.nodes) {
      if (node.kind != Node::Kind::kCompute) continue;
      std::vector<ValueId> touched;
      ForEachUse(node, [&](const TensorRef& use) { touched.push_back(use.storage); });
      touched.insert(touched.end(), node.results.begin(), node.results.end());
      const auto stays = [&](ValueId value) { return value == kNoValue || !moves_[value] || left[Root(value)]; };
      touched.erase(std::remove_if(touched.begin(), touched.end(), stays), touched.end());
      if (touched.empty() || IsFit(node)) continue;
      for (const ValueId value : touched) left[Root(value)] = true;
      any = true;
    }
    for (size_t v = 0; v < moves_.size(); ++v) {
      if (moves_[v] && left[Root(static_cast<ValueId>(v))]) movable_[v] = false;
    }
    return any;
  }

  bool IsFit(const Node& node) {
    if (node.row->empty_part >= 0 && node.part == node.row->empty_part) return true;  // Memory for others to write.
    Node moved = node;
    Move(&moved);
    // Pieces of batch norm are in any order; an operator that is not whole could be anything else.
    const bool piece = node.op.info->name.find("batch_norm") != std::string::npos;
    if (!piece && FindRow(moved.op) != node.row) return false;
    if (!Reduces(moved)) return true;
    const Iteration iteration = IterationOf(moved);
    bool fits = true;
    size_t ordinal = 0;
    ForEachUse(node, [&](const TensorRef& use) {
      const auto& strides = iteration.uses[ordinal++];
      fits = fits && (!moves_[use.storage] || Run(iteration, strides) >= kLeastNeighbours);
    });
    for (size_t i = 0; i < node.results.size(); ++i) {
      fits = fits && (node.results[i] == kNoValue || !moves_[node.results[i]] || Run(iteration, iteration.results[i]) >= kLeastNeighbours);
    }
    return fits;
  }

  // How many neighbouring elements are of one row, or of one row's kept points.
  int64_t Run(const Iteration& iteration, const c10::DimVector& strides) const {
    int64_t run = 1;
    std::optional<bool> reduced;
    for (bool longer = true; longer;) {
      longer = false;
      for (size_t d = 0; d < strides.size() && !longer; ++d) {
        longer = strides[d] == run && iteration.sizes[d] != 1 && reduced.value_or(iteration.reduced[d]) == iteration.reduced[d];
        if (!longer) continue;
        reduced = iteration.reduced[d];
        run *= iteration.sizes[d];
      }
    }
    return Hint(run);
  }

  // What ATen goes by are input and weight. The gradient of a weight comes in that order, too.
  void MoveWeights() {
    for (Convolution& conv : convolutions_) {
      ForEachImage(graph_, conv, [&](ValueId value, const TensorRef&) { conv.moves = conv.moves || moves_[value]; });
    }
    std::vector<bool> only_moving(graph_.values.size(), true);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const int c = convolution_of_[n];
      if (c >= 0 && convolutions_[c].moves) continue;
      if (graph_.nodes[n].kind != Node::Kind::kExtern) continue;
      ForEachUse(graph_.nodes[n], [&](const TensorRef& use) { only_moving[use.storage] = false; });
    }
    for (const Convolution& conv : convolutions_) {
      if (!conv.moves) continue;
      const Node& node = graph_.nodes[conv.node];
      const ValueId weight = RefOf(node.op, conv.input + 1).storage;
      const ValueId gradient = conv.backward ? node.results[1] : kNoValue;
      for (const ValueId value : {weight, gradient}) {
        if (value == kNoValue || !movable_[value] || !only_moving[value] || moves_[value]) continue;
        if (graph_.values[value].previous != kNoValue) continue;  // What is put together moves as a whole, and is asked as a whole.
        moves_[value] = FitsAlone(value);
      }
    }
  }

  // Whether all kernels that make and read a weight or its gradient are fit for its move.
  bool FitsAlone(ValueId value) {
    moves_[value] = true;
    bool fits = true;
    for (const Node& node : graph_.nodes) {
      if (node.kind != Node::Kind::kCompute) continue;
      bool touches = std::find(node.results.begin(), node.results.end(), value) != node.results.end();
      ForEachUse(node, [&](const TensorRef& use) { touches = touches || use.storage == value; });
      fits = fits && (!touches || IsFit(node));
    }
    moves_[value] = false;
    return fits;
  }

  // What is copied to or from the layout, before or after the node of that number.
  struct Copies {
    std::vector<std::pair<NodeId, Node>> before, after;
  };

  void InsertCopies() {
    Copies copies;
    std::vector<std::pair<ValueId, TensorRef>> copied;
    for (const Convolution& conv : convolutions_) {
      if (!conv.moves) continue;
      CopyWeight(conv, &copied, &copies);
      CopyResults(conv, &copies);
    }
    std::vector<Node> nodes;
    auto before = copies.before.begin(), after = copies.after.begin();
    for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) {
      for (; before != copies.before.end() && before->first == n; ++before) nodes.push_back(std::move(before->second));
      nodes.push_back(std::move(graph_.nodes[n]));
      for (; after != copies.after.end() && after->first == n; ++after) nodes.push_back(std::move(after->second));
    }
    graph_.nodes = std::move(nodes);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      ForEachDef(graph_.nodes[n], [&](ValueId value) { graph_.values[value].producer = static_cast<NodeId>(n); });
    }
  }

  // ATen would not know of the layout otherwise.
  void CopyWeight(const Convolution& conv, std::vector<std::pair<ValueId, TensorRef>>* copied, Copies* copies) {
    TraceOp& op = graph_.nodes[conv.node].op;
    TensorRef& weight = op.args[conv.input + 1].tensors[0];
    if (moves_[RefOf(op, conv.input).storage] || moves_[weight.storage] || weight.strides == ChannelsLast(weight.sizes)) return;
    const TensorRef original = weight;
    const auto found = std::find_if(copied->begin(), copied->end(), [&](const auto& pair) { return pair.second == original; });
    if (found != copied->end()) {
      weight = AllOf(found->first);
      return;
    }
    const ValueId value = AddValue(original, ChannelsLast(original.sizes), op.device);
    copies->before.emplace_back(conv.node, Copy(original, value, c10::MemoryFormat::ChannelsLast, op));
    copied->emplace_back(value, original);
    weight = AllOf(value);
  }

  // Results that stay as they are.
  void CopyResults(const Convolution& conv, Copies* copies) {
    for (size_t i = 0; i < (conv.backward ? 2 : 1); ++i) {
      const ValueId to = graph_.nodes[conv.node].results[i];
      if (to == kNoValue || moves_[to]) continue;
      const TensorRef result = graph_.nodes[conv.node].op.results[i];
      const c10::DimVector strides = ChannelsLast(result.sizes);
      if (result.strides == strides) continue;
      if (!OrdersDiffer(result.sizes)) {
        graph_.nodes[conv.node].op.results[i].strides = strides;  // The same memory, as ATen describes it.
        continue;
      }
      const ValueId from = AddValue(result, strides, graph_.nodes[conv.node].op.device);
      Node& node = graph_.nodes[conv.node];
      node.results[i] = from;
      node.op.results[i].strides = strides;
      node.op.results[i].storage = graph_.values[from].storage;
      Node copy = Copy(AllOf(from), to, c10::MemoryFormat::Contiguous, node.op);
      copy.op.results = {result};
      copies->after.emplace_back(conv.node, std::move(copy));
    }
  }

  // All of a tensor like `ref`, with these strides.
  static TensorRef Fresh(const TensorRef& ref, const c10::DimVector& strides) {
    TensorRef fresh = ref;
    fresh.SetOffset(-1);
    fresh.strides = strides;
    return fresh;
  }

  TensorRef AllOf(ValueId value) const {
    TensorRef use = graph_.values[value].layout;
    use.storage = value;
    return use;
  }

  ValueId AddValue(const TensorRef& like, const c10::DimVector& strides, c10::Device device) {
    TraceStorage storage;
    storage.nbytes = like.numel() * static_cast<int64_t>(c10::elementSize(like.dtype));
    storage.device = device;
    Value value;
    value.storage = static_cast<StorageId>(graph_.storages.size());
    value.layout = Fresh(like, strides);
    value.layout.storage = kNoStorage;
    graph_.storages.push_back(storage);
    graph_.contents.push_back(kNoValue);
    moves_.push_back(false);
    return graph_.AddValue(std::move(value));
  }

  Node Copy(const TensorRef& from, ValueId to, c10::MemoryFormat format, const TraceOp& convolution) const {
    TensorRef result = Fresh(from, graph_.values[to].layout.strides);
    result.storage = graph_.values[to].storage;
    Node node;
    node.kind = Node::Kind::kCompute;
    node.op = CallOf("aten::clone", result);
    SetRef(&node.op, 0, from);
    node.op.args[1].value = static_cast<int64_t>(format);
    node.op.device = convolution.device;
    node.op.index = convolution.index;
    node.op.default_dtype = convolution.default_dtype;
    node.row = FindRow(node.op);
    node.results = {to};
    return node;
  }

  Graph graph_;
  const std::vector<bool> pinned_;
  std::vector<bool> image_;    // By value,
  std::vector<bool> movable_;  // whether nobody minds where it lies,
  std::vector<bool> moves_;    // and whether it moves.
  std::vector<ValueId> root_;  // Of its family.
  std::vector<Convolution> convolutions_;
  std::vector<int> convolution_of_;  // By node; -1: it is none.
};

}  // namespace

absl::StatusOr<Graph> ChooseConvolutionLayout(Graph graph, const ConvolutionLayoutOptions& options) {
  if (!options.any()) return graph;
  return LayoutChooser(std::move(graph), options).Run();
}

}  // namespace lazuli::codegen
