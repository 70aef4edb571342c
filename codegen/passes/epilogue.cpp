#include "codegen/passes/epilogue.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "codegen/ir/dtypes.h"
#include "codegen/passes/value_uses.h"
#include "codegen/products/gpu_product.h"
#include "codegen/products/product_activation.h"

namespace lazuli::codegen {
namespace {

constexpr int64_t kWholeVectors = 8;  // Elements of 2 bytes that are loaded together: with other sizes GELU's epilogues are slow.

bool IsUnit(const TraceArg& factor) { return factor.kind == TraceArg::Kind::kConst && IsUnitFactor(factor.value); }

class EpilogueFuser {
 public:
  EpilogueFuser(Graph* graph, bool fast)
      : graph_(*graph),
        fast_(fast),
        uses_(CountUses(*graph)),
        pinned_(PinnedValues(*graph)),
        leaves_(MemoriesThatLeave(*graph)),
        keep_(graph->nodes.size(), true) {}

  void Run() {
    for (const Group& group : graph_.groups) {
      const NodeId n = group.nodes[0];
      if (!group.is_kernel() || group.nodes.size() != 1 || graph_.nodes[n].op.device.is_cpu()) continue;
      keep_[n] = !TryActivation(n);
    }
    EraseNodes(&graph_, keep_);
  }

 private:
  struct Matrices {
    const TraceArg* bias = nullptr;  // Null: none.
    const TraceArg* x = nullptr;
    const TraceArg* y = nullptr;
    bool whole_vectors = false;
  };

  // The product that `use` is all of, in its own order; kNoNode where it is something else.
  NodeId ProductOf(const TensorRef& use) const {
    const NodeId n = graph_.values[use.storage].producer;
    if (n == kNoNode || graph_.nodes[n].kind != Node::Kind::kExtern) return kNoNode;
    const Node& node = graph_.nodes[n];
    const bool product = node.op.info->name == "aten::mm" || node.op.info->name == "aten::addmm";
    return product && node.results[0] == use.storage && IsSameBlock(use, node.op.results[0]) ? n : kNoNode;
  }

  static bool IsSameBlock(const TensorRef& a, const TensorRef& b) {
    return a.dtype == b.dtype && a.offset_slot < 0 && b.offset_slot < 0 && a.numel() == b.numel() && a.is_contiguous() && b.is_contiguous();
  }

  // None where cuBLASLt's epilogues may not do or be slow, whatever the function.
  std::optional<Matrices> MatricesOf(const Node& product) const {
    const std::vector<TraceArg>& args = product.op.args;
    Matrices m;
    const bool adds = product.op.info->name == "aten::addmm";
    if (adds && (!IsUnit(args[3]) || !IsUnit(args[4]))) return std::nullopt;
    if (adds) m.bias = &args[0];
    m.x = &args[adds ? 1 : 0];
    m.y = &args[adds ? 2 : 1];
    const TensorRef& x = m.x->tensors[0];
    const TensorRef& result = product.op.results[0];
    const int64_t cols = result.sizes[1], depth = x.sizes[1];
    if (graph_.symbols.IsSymbolic(cols) || graph_.symbols.IsSymbolic(depth) || depth > kShortSums) return std::nullopt;
    if (adds && (m.bias->tensors[0].sizes.size() != 1 || m.bias->tensors[0].sizes[0] != cols)) return std::nullopt;
    m.whole_vectors = cols % kWholeVectors == 0 && depth % kWholeVectors == 0;
    return m;
  }

  // The node makes a dense block that stays in the trace. (What leaves it has another address in each run, which a kernel in a CUDA graph
  // can be given, and a library's call cannot.)
  bool IsNewBlock(const Node& node) const {
    if (node.kind != Node::Kind::kCompute || node.part != 0 || node.again || node.results.size() != 1) return false;
    const ValueId result = node.results[0];
    return result != kNoValue && graph_.values[result].previous == kNoValue && !leaves_.contains(graph_.MemoryOf(result)) &&
           node.op.results[0].is_contiguous();
  }

  // Of a product that nobody else wants: storing that, too, takes longer than a kernel.
  static bool MayBeRelu(const TensorRef& product, bool keeps) { return !keeps && (IsHalf(product.dtype) || product.dtype == c10::kFloat); }

  // Of floats, a kernel's is faster.
  bool MayBeGelu(const TensorRef& product, const Matrices& m) const { return fast_ && IsHalf(product.dtype) && m.whole_vectors; }

  // The node is all that its kernel does.
  bool TryActivation(NodeId n) {
    const Node& node = graph_.nodes[n];
    const std::optional<Activation> activation = ActivationOf(node.op);
    if (!activation.has_value() || !IsNewBlock(node)) return false;
    const TensorRef& use = node.op.args[0].tensors[0];
    const NodeId p = ProductOf(use);
    const std::optional<Matrices> m = p != kNoNode ? MatricesOf(graph_.nodes[p]) : std::nullopt;
    if (!m.has_value() || !IsSameBlock(use, node.op.results[0])) return false;
    const bool keeps = uses_[use.storage] > 1 || pinned_[use.storage];
    if (*activation == Activation::kRelu ? !MayBeRelu(use, keeps) : !MayBeGelu(use, *m)) return false;
    Become(p, ProductWithActivation(keeps), {OrNone(m->bias), *m->x, *m->y, ActivationArg(*activation)}, n, keeps);
    return true;
  }

  static TraceArg OrNone(const TraceArg* arg) {
    if (arg != nullptr) return *arg;
    TraceArg none;
    none.kind = TraceArg::Kind::kTensor;
    none.tensors.emplace_back();
    return none;
  }

  // Product `p` computes what node `n` did, and where it `keeps` its own result, that, too.
  void Become(NodeId p, const OpInfo* info, std::vector<TraceArg> args, NodeId n, bool keeps) {
    Node& product = graph_.nodes[p];
    const Node& node = graph_.nodes[n];
    TensorRef result = product.op.results[0];
    result.storage = node.op.results[0].storage;
    product.op.info = info;
    product.op.args = std::move(args);
    product.op.results.insert(product.op.results.begin(), std::move(result));
    product.results.insert(product.results.begin(), node.results[0]);
    product.op.results.resize(keeps ? 2 : 1);
    product.results.resize(keeps ? 2 : 1);
    graph_.values[node.results[0]].producer = p;
  }

  Graph& graph_;
  const bool fast_;
  const std::vector<int> uses_;
  const std::vector<bool> pinned_;
  const absl::flat_hash_set<ValueId> leaves_;
  std::vector<bool> keep_;  // By node.
};

}  // namespace

absl::StatusOr<Graph> FuseEpilogues(Graph graph, bool fast) {
  EpilogueFuser(&graph, fast).Run();
  return graph;
}

}  // namespace lazuli::codegen
