#include "codegen/lower_group.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/kernel_weight.h"
#include "codegen/lower.h"
#include "codegen/lower_expr.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

class GroupLowering {
 public:
  GroupLowering(const Graph& graph, const Group& group, const std::vector<bool>& in_memory)
      : graph_(graph), group_(group), in_memory_(in_memory), emitter_(&lowered_.kernel, &group.reduced) {
    lowered_.kernel.sizes = group.sizes;
    lowered_.kernel.symbols = graph.symbols;
  }

  absl::StatusOr<LoweredGroup> Lower() {
    for (size_t i = 0; i < group_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[group_.nodes[i]];
      if (node.kind == Node::Kind::kUpdate && node.row == nullptr) {
        LowerUpdate(node, group_.placements[i]);
      } else {
        LowerCompute(node, group_.placements[i]);
      }
    }
    lowered_.kernel.num_scalars = static_cast<int>(lowered_.scalar_slots.size());
    if (num_stores_ == 0 && lowered_.checks.empty()) return LoweredGroup();
    DropDeadInstructions(&lowered_);  // Rows emit all their results, wanted or not.
    NameChecks();
    ArrangeDimensions();
    if (!graph_.symbols.empty()) NameSymbols();
    if (too_many_symbols_) return absl::UnimplementedError("a kernel with too many sizes that change");
    return std::move(lowered_);
  }

 private:
  class NodeEmitter;
  friend class NodeEmitter;

  void LowerCompute(const Node& node, const Placement& placement);
  // The number that every element of `node`'s result is, made anew.
  Expr Recompute(const Node& node);

  void LowerUpdate(const Node& node, const Placement& placement) {
    const TensorRef& window = node.op.args[0].tensors[0];
    const Expr source = emitter_.Cast(Use(node.op.args[1].tensors[0], placement.uses[1]), window.dtype);
    Store(source, node.results[0], window.dtype, window.offset_slot, placement.results[0]);
    defined_[node.results[0]] = source;
  }

  // The value of a use: made in this group, recomputed, or loaded, `offset` (if any) elements on.
  Expr Use(const TensorRef& use, const c10::DimVector& strides, const Expr* offset = nullptr) {
    const auto found = defined_.find(use.storage);
    if (found != defined_.end()) return found->second;
    if (IsUniform(graph_, use.storage)) {
      const Node& producer = graph_.nodes[graph_.values[use.storage].producer];
      if (producer.op.results[0].dtype == use.dtype) return Recompute(producer);
    }
    const int buffer = Buffer(use.storage, use.dtype, use.offset_slot, strides);
    if (offset != nullptr) return emitter_.Add(KOp::kGather, use.dtype, {offset->id, -1, -1}, buffer);
    return emitter_.Add(KOp::kLoad, use.dtype, {-1, -1, -1}, buffer);
  }

  void Check(NodeId node, Expr valid) {
    const auto is_flag = [](const LoweredGroup::Buffer& buffer) { return buffer.memory == kNoValue; };
    const auto flag = std::find_if(lowered_.buffers.begin(), lowered_.buffers.end(), is_flag);
    const int64_t index = flag - lowered_.buffers.begin();
    if (flag == lowered_.buffers.end()) {
      lowered_.buffers.push_back({kNoValue, -1, 1, true});
      lowered_.kernel.buffers.push_back({ScalarType::Bool, c10::DimVector(group_.sizes.size(), 0), true});
    }
    emitter_.Add(KOp::kCheck, ScalarType::Bool, {valid.id, -1, -1}, index);
    if (lowered_.checks.empty() || lowered_.checks.back() != node) lowered_.checks.push_back(node);
  }

  void NameChecks() {
    if (graph_.nodes[group_.nodes[0]].op.device.is_cpu()) return;
    std::set<std::string> names;
    for (const NodeId node : lowered_.checks) names.insert(graph_.nodes[node].op.info->name);
    lowered_.kernel.checked = absl::StrJoin(names, ", ");
  }

  void Scatter(const Node& node, const Placement& placement, KOp op, Expr value, Expr offset, Expr condition,
               absl::Span<const int64_t> dims) {
    const TensorRef& target = node.Target();
    const int buffer = Buffer(target.storage, target.dtype, target.offset_slot, placement.results[0]);
    KBuffer& written = lowered_.kernel.buffers[buffer];
    written.within = written.written ? 0 : Within(target, dims);  // Of one scatter, not of several.
    written.written = true;
    lowered_.buffers[buffer].written = true;
    emitter_.Add(op, target.dtype, {emitter_.Cast(value, target.dtype).id, offset.id, condition.id}, buffer);
    ++num_stores_;
  }

  // From the first element along `dims` to the last; 0 where that may change, or is behind it.
  int64_t Within(const TensorRef& target, absl::Span<const int64_t> dims) const {
    int64_t last = 0;
    for (const int64_t d : dims) {
      const int64_t size = target.sizes[d], stride = target.strides[d];
      if (graph_.symbols.IsSymbolic(size) || graph_.symbols.IsSymbolic(stride) || stride < 0) return 0;
      last += (size - 1) * stride;
    }
    return last + 1;
  }

  Expr Coordinate(const c10::DimVector& steps) {
    Expr sum = emitter_.ConstInt(ScalarType::Long, 0);
    bool first = true;
    for (size_t d = 0; d < steps.size(); ++d) {
      if (steps[d] == 0) continue;
      Expr term = emitter_.Add(KOp::kIndex, ScalarType::Long, {-1, -1, -1}, static_cast<int64_t>(d));
      if (steps[d] != 1) term = term * emitter_.Size(ScalarType::Long, steps[d]);
      sum = first ? term : sum + term;
      first = false;
    }
    return sum;
  }

  void Store(Expr value, ValueId target, ScalarType dtype, int32_t offset_slot, const c10::DimVector& strides) {
    const int buffer = Buffer(target, dtype, offset_slot, strides);
    lowered_.kernel.buffers[buffer].written = true;
    lowered_.buffers[buffer].written = true;
    emitter_.Add(KOp::kStore, dtype, {value.id, -1, -1}, buffer);
    ++num_stores_;
  }

  int Buffer(ValueId value, ScalarType dtype, int32_t offset_slot, const c10::DimVector& strides) {
    const ValueId memory = graph_.MemoryOf(value);
    for (size_t i = 0; i < lowered_.buffers.size(); ++i) {
      if (lowered_.buffers[i].memory == memory && lowered_.buffers[i].offset_slot == offset_slot &&
          lowered_.kernel.buffers[i].dtype == dtype && lowered_.kernel.buffers[i].strides == strides) {
        return static_cast<int>(i);
      }
    }
    lowered_.buffers.push_back({memory, offset_slot, static_cast<int32_t>(c10::elementSize(dtype)), false});
    lowered_.kernel.buffers.push_back({dtype, strides, false});
    return static_cast<int>(lowered_.buffers.size()) - 1;
  }

  Expr LoadScalar(int32_t slot, ScalarType held, ScalarType type) {
    const auto found = std::find(lowered_.scalar_slots.begin(), lowered_.scalar_slots.end(), slot);
    const int64_t index = found - lowered_.scalar_slots.begin();
    if (found == lowered_.scalar_slots.end()) lowered_.scalar_slots.push_back(slot);
    if (held == ScalarType::Double) {
      const ScalarType read = c10::isFloatingType(type) && !c10::isReducedFloatingType(type) ? type : ScalarType::Double;
      return emitter_.Cast(emitter_.Add(KOp::kScalar, read, {-1, -1, -1}, index), type);
    }
    return emitter_.Cast(emitter_.Add(KOp::kScalar, ScalarType::Long, {-1, -1, -1}, index), type);
  }

  void ArrangeDimensions();
  void Permute(const std::vector<int>& order);
  void Coalesce();
  void NameSymbols();

  const Graph& graph_;
  const Group& group_;
  const std::vector<bool>& in_memory_;
  LoweredGroup lowered_;
  Emitter emitter_;
  absl::flat_hash_map<ValueId, Expr> defined_;
  int num_stores_ = 0;
  bool too_many_symbols_ = false;
};

// Binds one node's formula to the group.
class GroupLowering::NodeEmitter : public OpEmitter {
 public:
  // `placement` null: the node is recomputed, and its only result kept in `recomputed`.
  NodeEmitter(GroupLowering* group, const Node& node, const Placement* placement)
      : OpEmitter(&group->emitter_, node), group_(*group), placement_(placement) {}

  Expr Load(int arg, int item) override { return group_.Use(op().args[arg].tensors[item], StridesOf(arg, item)); }

  Expr LoadAt(int arg, Expr offset) override { return group_.Use(op().args[arg].tensors[0], StridesOf(arg, 0), &offset); }

  void Check(Expr valid) override { group_.Check(static_cast<NodeId>(&node() - group_.graph_.nodes.data()), valid); }

  Expr Coordinate(int index) override { return group_.Coordinate(placement_->coordinates[index]); }

  void Scatter(KOp op, Expr value, Expr offset, Expr condition, absl::Span<const int64_t> dims) override {
    group_.Scatter(node(), *placement_, op, value, offset, condition, dims);
  }

  Expr recomputed;

 protected:
  Expr LoadScalar(int32_t slot, ScalarType held, ScalarType type) override { return group_.LoadScalar(slot, held, type); }

  void Define(int index, Expr value) override {
    recomputed = value;
    if (placement_ == nullptr) return;
    const ValueId result = node().results[index];
    group_.defined_[result] = value;
    if (group_.in_memory_[result]) group_.Store(value, result, op().results[index].dtype, -1, placement_->results[index]);
  }

 private:
  c10::DimVector StridesOf(int arg, int item) const {
    int ordinal = 0;
    for (int i = 0; i <= arg; ++i) {
      const auto& tensors = op().args[i].tensors;
      for (int k = 0; k < (i < arg ? static_cast<int>(tensors.size()) : item); ++k) ordinal += tensors[k].defined();
    }
    // A recomputed number's operand is a 0-dim tensor: the same everywhere.
    return placement_ != nullptr ? placement_->uses[ordinal] : c10::DimVector(group_.group_.sizes.size(), 0);
  }

  GroupLowering& group_;
  const Placement* placement_;
};

void GroupLowering::LowerCompute(const Node& node, const Placement& placement) {
  if (node.row->uniform && (node.results[0] == kNoValue || (IsUniform(graph_, node.results[0]) && !in_memory_[node.results[0]]))) return;
  NodeEmitter emitter(this, node, &placement);
  node.row->emit(emitter);
}

Expr GroupLowering::Recompute(const Node& node) {
  NodeEmitter emitter(this, node, nullptr);
  node.row->emit(emitter);
  return emitter.recomputed;
}

// Kept dimensions first, reduced last, each by the strides of the buffer that matters most: the first one stored everywhere, else the
// first that lies everywhere. Then neighbours that every buffer walks as one are merged.
void GroupLowering::ArrangeDimensions() {
  KernelIR& kernel = lowered_.kernel;
  const int rank = static_cast<int>(kernel.sizes.size());
  const KBuffer* leader = nullptr;
  int best = -1;
  for (const KBuffer& buffer : kernel.buffers) {
    int score = 0;
    for (int64_t stride : buffer.strides) score += stride != 0 ? 2 : 0;
    score += buffer.written ? 1 : 0;
    if (score > best) {
      best = score;
      leader = &buffer;
    }
  }
  std::vector<int> order(rank);
  std::iota(order.begin(), order.end(), 0);
  c10::DimVector by = leader != nullptr ? leader->strides : c10::DimVector(rank, 0);
  for (int d = 0; d < rank; ++d) {
    if (by[d] != 0) continue;
    for (const KBuffer& buffer : kernel.buffers) by[d] = std::max(by[d], buffer.strides[d]);
  }
  for (int64_t& stride : by) stride = graph_.symbols.Hint(stride);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    if (group_.reduced[a] != group_.reduced[b]) return !group_.reduced[a];
    return by[a] > by[b];
  });
  Permute(order);
  kernel.num_reduced = static_cast<int>(std::count(group_.reduced.begin(), group_.reduced.end(), true));
  Coalesce();
  const bool reduces = HasReductions(kernel) || HasScans(kernel);
  if ((reduces && kernel.num_reduced == 0) || kernel.sizes.empty()) {
    kernel.sizes.push_back(1);
    kernel.num_reduced += reduces ? 1 : 0;
    for (KBuffer& buffer : kernel.buffers) buffer.strides.push_back(0);
  }
}

void GroupLowering::Permute(const std::vector<int>& order) {
  KernelIR& kernel = lowered_.kernel;
  const auto permuted = [&](const c10::DimVector& dims) {
    c10::DimVector out;
    for (int d : order) out.push_back(dims[d]);
    return out;
  };
  kernel.sizes = permuted(kernel.sizes);
  for (KBuffer& buffer : kernel.buffers) buffer.strides = permuted(buffer.strides);
  for (KInst& inst : kernel.insts) {
    if (inst.op == KOp::kIndex) inst.imm = std::find(order.begin(), order.end(), static_cast<int>(inst.imm)) - order.begin();
  }
}

void GroupLowering::Coalesce() {
  KernelIR& kernel = lowered_.kernel;
  for (int d = static_cast<int>(kernel.sizes.size()) - 2; d >= 0; --d) {
    const int kept = static_cast<int>(kernel.sizes.size()) - kernel.num_reduced;
    if (d + 1 == kept) continue;  // On the border between kept and reduced.
    bool mergeable = true;
    for (const KInst& inst : kernel.insts) mergeable = mergeable && (inst.op != KOp::kIndex || (inst.imm != d && inst.imm != d + 1));
    for (const KBuffer& buffer : kernel.buffers) {
      mergeable = mergeable && buffer.strides[d] == buffer.strides[d + 1] * kernel.sizes[d + 1];
    }
    if (!mergeable) continue;
    kernel.sizes[d] *= kernel.sizes[d + 1];
    kernel.sizes.erase(kernel.sizes.begin() + d + 1);
    if (d >= kept) --kernel.num_reduced;
    for (KInst& inst : kernel.insts) inst.imm -= inst.op == KOp::kIndex && inst.imm > d ? 1 : 0;
    for (KBuffer& buffer : kernel.buffers) {
      buffer.strides[d] = buffer.strides[d + 1];
      buffer.strides.erase(buffer.strides.begin() + d + 1);
    }
  }
}

// Kernels know nothing of how sizes depend on each other: each number with a symbol in it becomes a symbol of the kernel's own, so that
// the kernel serves every group of its form. Hints are rounded, since a kernel is found again by its text.
void GroupLowering::NameSymbols() {
  KernelIR& kernel = lowered_.kernel;
  std::vector<int64_t*> numbers;
  for (int64_t& size : kernel.sizes) numbers.push_back(&size);
  for (KBuffer& buffer : kernel.buffers) {
    for (int64_t& stride : buffer.strides) numbers.push_back(&stride);
  }
  for (KInst& inst : kernel.insts) {
    if (inst.op == KOp::kSize) numbers.push_back(&inst.imm);
  }
  std::vector<int64_t> constants, hints;
  std::vector<int64_t>& named = lowered_.symbols;
  for (const int64_t* number : numbers) {
    if (!graph_.symbols.IsSymbolic(*number)) {
      constants.push_back(*number);
    } else if (std::find(named.begin(), named.end(), *number) == named.end()) {
      named.push_back(*number);
      hints.push_back(int64_t{1} << std::lround(std::log2(static_cast<double>(graph_.symbols.Hint(*number)))));
    }
  }
  kernel.symbols = runtime::SymbolTable::Make(hints, constants);
  if (kernel.symbols.size() != static_cast<int>(named.size())) {
    too_many_symbols_ = true;
    return;
  }
  for (int64_t* number : numbers) {
    const auto found = std::find(named.begin(), named.end(), *number);
    if (found != named.end()) *number = kernel.symbols.prime(static_cast<int>(found - named.begin()));
  }
}

}  // namespace

Iteration IterationOf(const Node& node) {
  if (node.row != nullptr) return node.row->iterate(*node.row, node);
  const TensorRef& window = node.op.args[0].tensors[0];
  Iteration it;
  it.sizes = window.sizes;
  it.reduced.assign(it.sizes.size(), false);
  it.uses.push_back(BroadcastStrides(window, it.sizes));
  it.uses.push_back(BroadcastStrides(node.op.args[1].tensors[0], it.sizes));
  it.results.push_back(it.uses[0]);
  return it;
}

bool Reduces(const Node& node) { return node.row != nullptr && (node.row->reducing_parts >> node.part & 1) != 0; }

ScanDirection ScanOf(const Node& node) { return Reduces(node) ? node.row->scans : ScanDirection::kNone; }

bool IsUniform(const Graph& graph, ValueId value) {
  const NodeId producer = graph.values[value].producer;
  if (producer == kNoNode || graph.nodes[producer].kind != Node::Kind::kCompute || !graph.nodes[producer].row->uniform) return false;
  // A number read from a tensor is recomputed only while that tensor's memory is sure to hold it: never.
  bool reads = false;
  ForEachUse(graph.nodes[producer], [&](const TensorRef&) { reads = true; });
  return !reads;
}

std::vector<bool> ValuesInMemory(const Graph& graph) {
  std::vector<bool> in_memory(graph.values.size(), false);
  std::vector<int> group_of(graph.nodes.size(), -1);
  for (size_t g = 0; g < graph.groups.size(); ++g) {
    for (NodeId n : graph.groups[g].nodes) group_of[n] = static_cast<int>(g);
  }
  for (ValueId content : graph.contents) {
    if (content != kNoValue) in_memory[content] = true;
  }
  for (const Value& value : graph.values) {
    if (value.previous != kNoValue) in_memory[value.previous] = true;
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    ForEachArgUse(node, [&](size_t arg, const TensorRef& use) {
      const NodeId producer = graph.values[use.storage].producer;
      if (producer == kNoNode || (node.row != nullptr && (node.row->unread_args >> arg & 1) != 0)) return;
      if (node.row != nullptr && (node.row->index_args >> arg & 1) != 0) in_memory[use.storage] = true;
      if (group_of[producer] == group_of[n]) return;
      const bool recomputed =
          node.kind != Node::Kind::kExtern && IsUniform(graph, use.storage) && graph.nodes[producer].op.results[0].dtype == use.dtype;
      if (!recomputed) in_memory[use.storage] = true;
    });
  }
  return in_memory;
}

void DropDeadInstructions(LoweredGroup* lowered) {
  auto& insts = lowered->kernel.insts;
  std::vector<bool> live(insts.size(), false);
  for (size_t i = insts.size(); i-- > 0;) {
    if (HasEffect(insts[i].op)) live[i] = true;
    if (!live[i]) continue;
    for (int32_t in : insts[i].in) {
      if (in >= 0) live[in] = true;
    }
  }
  std::vector<int32_t> renumbered(insts.size(), -1);
  std::vector<bool> buffer_used(lowered->buffers.size(), false);
  size_t next = 0;
  for (size_t i = 0; i < insts.size(); ++i) {
    if (!live[i]) continue;
    KInst inst = insts[i];
    for (int32_t& in : inst.in) {
      if (in >= 0) in = renumbered[in];
    }
    if (HasBuffer(inst.op)) buffer_used[inst.imm] = true;
    renumbered[i] = static_cast<int32_t>(next);
    insts[next++] = inst;
  }
  insts.resize(next);
  std::vector<int64_t> buffer_number(lowered->buffers.size(), -1);
  size_t buffers = 0;
  for (size_t b = 0; b < buffer_used.size(); ++b) {
    if (!buffer_used[b]) continue;
    buffer_number[b] = static_cast<int64_t>(buffers);
    lowered->buffers[buffers] = lowered->buffers[b];
    lowered->kernel.buffers[buffers++] = lowered->kernel.buffers[b];
  }
  lowered->buffers.resize(buffers);
  lowered->kernel.buffers.resize(buffers);
  for (KInst& inst : insts) {
    if (HasBuffer(inst.op)) inst.imm = buffer_number[inst.imm];
  }
}

absl::StatusOr<LoweredGroup> LowerGroup(const Graph& graph, const Group& group, const std::vector<bool>& in_memory) {
  return GroupLowering(graph, group, in_memory).Lower();
}

double LoweredWeight(const Graph& graph, const Group& group) {
  // As if all of it were stored.
  const absl::StatusOr<LoweredGroup> lowered = LowerGroup(graph, group, std::vector<bool>(graph.values.size(), true));
  if (!lowered.ok()) return std::numeric_limits<double>::infinity();
  double weight = 0;
  const std::vector<KInst>& insts = lowered->kernel.insts;
  for (const KInst& inst : insts) {
    // Once for all points.
    bool constant = KOpArity(inst.op) > 0;
    for (int k = 0; k < KOpArity(inst.op); ++k) constant = constant && insts[static_cast<size_t>(inst.in[k])].op == KOp::kConst;
    weight += HasEffect(inst.op) || inst.op == KOp::kLoad || constant ? 0 : Weight(inst);
  }
  return weight;
}

}  // namespace lazuli::codegen
