#include "codegen/distribute.h"

#include <algorithm>
#include <utility>

#include "codegen/lower.h"
#include "codegen/lower_index.h"
#include "codegen/lower_pieces.h"
#include "codegen/reduce_parts.h"

namespace lazuli::codegen {
namespace {

constexpr size_t kMaxParts = 8;
// Operators that are split for the sake of one that reads what they make, one behind the other.
constexpr int kMaxDepth = 8;

// Whether the operator computes each element of its only result of those beside it.
bool IsPointwise(const TraceOp& op) { return op.results.size() == 1 && op.results[0].defined() && IsFreePointwise(FindRow(op)); }

// Dimension `dim` of `result` in `ref`, which is broadcast to it: negative where that has none, or only one element along it.
int64_t DimIn(const TensorRef& ref, const TensorRef& result, size_t dim) {
  const int64_t at = static_cast<int64_t>(dim) - Rank(result) + Rank(ref);
  return at >= 0 && ref.sizes[static_cast<size_t>(at)] == result.sizes[dim] ? at : -1;
}

}  // namespace

Distributor::Distributor(const Trace& trace, Graph* graph) : trace_(trace), graph_(*graph), readers_(trace.storages.size()) {
  const bool any = std::any_of(trace.ops.begin(), trace.ops.end(), [](const TraceOp& op) { return PutsTogether(op); });
  for (size_t i = 0; any && i < trace.ops.size(); ++i) {
    for (const TraceArg& arg : trace.ops[i].args) {
      for (const TensorRef& ref : arg.tensors) {
        if (ref.defined()) readers_[static_cast<size_t>(ref.storage)].push_back(static_cast<int32_t>(i));
      }
    }
  }
}

void Distributor::Added(const TraceOp& op) {
  if (!PutsTogether(op) || !op.results[0].defined() || op.results[0].numel() == 0) return;
  const TensorRef& result = op.results[0];
  const int64_t dim = DimArg(op, 1, result);
  if (dim < 0 || dim >= Rank(result) || !IsDense(result) || (graph_.symbols.HasSymbol(result.strides) && !result.is_contiguous())) return;
  Parts parts;
  parts.dim = static_cast<size_t>(dim);
  parts.content = graph_.contents[result.storage];
  for (TensorRef ref : op.args[0].tensors) {
    if (ref.numel() == 0) continue;
    if (ref.dtype != result.dtype) return;
    if (Rank(ref) < Rank(result)) {
      ref.sizes.insert(ref.sizes.begin() + dim, 1);
      ref.strides.insert(ref.strides.begin() + dim, 0);
    }
    parts.contents.push_back(graph_.contents[ref.storage]);
    parts.refs.push_back(std::move(ref));
  }
  if (parts.refs.size() < 2 || parts.refs.size() > kMaxParts || !IsOnlyReadPointwise(op)) return;
  parts_of_[result.storage] = std::move(parts);
}

// Whether nobody sees the result of `op` but pointwise operators that read, or overwrite, all of it.
bool Distributor::IsOnlyReadPointwise(const TraceOp& op) const {
  const TensorRef& result = op.results[0];
  const auto storage = static_cast<size_t>(result.storage);
  if (storage >= readers_.size() || IsSeenAfter(storage, op.index)) return false;
  return std::all_of(readers_[storage].begin(), readers_[storage].end(), [&](int32_t i) {
    const TraceOp reader = Functional(trace_.ops[static_cast<size_t>(i)]);
    if (!IsPointwise(reader) || reader.results[0].sizes != result.sizes) return false;
    return std::all_of(reader.args.begin(), reader.args.end(), [&](const TraceArg& arg) {
      return std::all_of(arg.tensors.begin(), arg.tensors.end(),
                         [&](const TensorRef& use) { return use.storage != result.storage || IsWhole(use, result); });
    });
  });
}

// Whether what operator `index` makes is in the storage after the trace, as far as readers tell that overwrite all of it.
bool Distributor::IsSeenAfter(size_t storage, int32_t index) const {
  const auto overwrites = [&](int32_t i) {
    const TraceOp& op = trace_.ops[static_cast<size_t>(i)];
    return i > index && op.info->returns_mutated_self && op.args[0].tensors[0].storage == static_cast<StorageId>(storage);
  };
  return trace_.storages[storage].live_out && std::none_of(readers_[storage].begin(), readers_[storage].end(), overwrites);
}

bool Distributor::IsWhole(const TensorRef& ref, const TensorRef& result) const {
  return ref.offset_slot == -1 && ref.dtype == result.dtype && ref.sizes == result.sizes && ref.strides == result.strides;
}

// What `ref` is put together of, if that is still there.
const Distributor::Parts* Distributor::PartsOf(const TensorRef& ref) const {
  const auto found = parts_of_.find(ref.storage);
  if (found == parts_of_.end() || graph_.contents[ref.storage] != found->second.content) return nullptr;
  for (size_t i = 0; i < found->second.refs.size(); ++i) {
    if (graph_.contents[found->second.refs[i].storage] != found->second.contents[i]) return nullptr;
  }
  return &found->second;
}

// The same, if they have the sizes of `parts`.
const Distributor::Parts* Distributor::PartsLike(const TensorRef& ref, const Parts& parts) const {
  const Parts* const own = PartsOf(ref);
  const auto same = [](const TensorRef& a, const TensorRef& b) { return a.sizes == b.sizes; };
  if (own == nullptr || own->dim != parts.dim) return nullptr;
  return std::equal(own->refs.begin(), own->refs.end(), parts.refs.begin(), parts.refs.end(), same) ? own : nullptr;
}

std::vector<TraceOp> Distributor::Distribute(const TraceOp& op) {
  in_parts_.clear();
  std::vector<TraceOp> ops = DistributePointwise(op);
  return ops.empty() ? DistributeReduction(op) : ops;
}

std::vector<TraceOp> Distributor::DistributePointwise(const TraceOp& given) {
  std::vector<TraceOp> ops;
  if (parts_of_.empty()) return ops;
  const TraceOp op = Functional(given);
  if (!IsPointwise(op)) return ops;
  const TensorRef& result = op.results[0];
  if (!graph_.IsAllOfFreshMemory(result) || (graph_.symbols.HasSymbol(result.strides) && !result.is_contiguous())) return ops;
  for (const TraceArg& arg : op.args) {
    for (const TensorRef& ref : arg.tensors) {
      const Parts* const found = ref.defined() && ref.sizes == result.sizes ? PartsOf(ref) : nullptr;
      if (found == nullptr || !CanSplit(op, result, *found, 0)) continue;
      const Parts parts = *found;
      TraceOp cat = Cat(Split(op, result, parts, &ops), static_cast<int64_t>(parts.dim), result);
      cat.index = op.index;
      cat.device = op.device;
      cat.default_dtype = op.default_dtype;
      ops.push_back(std::move(cat));
      return ops;
    }
  }
  return ops;
}

std::vector<TraceOp> Distributor::DistributeReduction(const TraceOp& op) {
  std::vector<TraceOp> ops;
  const std::optional<SmallReduction> reduction = FindSmallReduction(op, graph_.symbols);
  if (!reduction.has_value()) return ops;
  const TensorRef& self = op.args[0].tensors[0];
  if (MakerOf(self, self) == nullptr || (graph_.symbols.HasSymbol(self.strides) && !self.is_contiguous())) return ops;
  Parts parts;
  parts.dim = reduction->dim;
  parts.again = true;
  parts.refs.assign(static_cast<size_t>(reduction->count), self);
  for (TensorRef& ref : parts.refs) ref.sizes[parts.dim] = 1;
  if (!CanSplit(op, self, parts, 0) || !ReadsLittle(op, self, parts)) return ops;
  std::vector<TensorRef> operands = SplitOperand(self, self, parts, &ops);
  AppendReduction(
      op, *reduction, std::move(operands), [&](const TensorRef& like) { return AddTensor(&graph_, like, like.sizes); }, &ops);
  return ops;
}

// Whether all that is read of memory to make `result` of `op` in parts is much less than one part.
bool Distributor::ReadsLittle(const TraceOp& op, const TensorRef& result, const Parts& parts) const {
  const int64_t part = graph_.symbols.Hint(result.numel()) / static_cast<int64_t>(parts.refs.size());
  for (const TraceArg& arg : op.args) {
    for (const TensorRef& ref : arg.tensors) {
      const Node* const maker = ref.defined() ? MakerOf(ref, result) : nullptr;
      if (maker != nullptr ? !ReadsLittle(AsInTrace(*maker), ref, parts) : ref.defined() && graph_.symbols.Hint(ref.numel()) > part / 4) {
        return false;
      }
    }
  }
  return true;
}

// The kernel's node that makes `ref`, an operand for `result`. None where it is in memory anyway, or may as well be: what is broadcast is
// small.
const Node* Distributor::MakerOf(const TensorRef& ref, const TensorRef& result) const {
  if (ref.sizes != result.sizes) return nullptr;
  const ValueId content = graph_.contents[ref.storage];
  const NodeId producer = content == kNoValue ? kNoNode : graph_.values[content].producer;
  return producer == kNoNode || graph_.nodes[producer].kind != Node::Kind::kCompute ? nullptr : &graph_.nodes[producer];
}

// Whether all operands of `op` are there in parts like `parts`, can be made so, or lie in memory.
bool Distributor::CanSplit(const TraceOp& op, const TensorRef& result, const Parts& parts, int depth) const {
  if (depth > kMaxDepth) return false;
  for (const TraceArg& arg : op.args) {
    for (const TensorRef& ref : arg.tensors) {
      if (!ref.defined() || DimIn(ref, result, parts.dim) < 0) continue;
      const Node* const maker = PartsLike(ref, parts) != nullptr ? nullptr : MakerOf(ref, result);
      if (maker == nullptr) continue;
      const auto storage = static_cast<size_t>(ref.storage);
      const bool alone = storage < readers_.size() && readers_[storage].size() == 1 && !IsSeenAfter(storage, maker->op.index);
      if ((!alone && !parts.again) || maker->part != 0 || maker->op.info->returns_mutated_self || !IsFreePointwise(maker->row))
        return false;
      if (maker->results.size() != 1 || !IsWhole(ref, maker->op.results[0])) return false;
      bool there = true;  // What it was made of.
      ForEachUse(*maker,
                 [&](const TensorRef& use) { there = there && graph_.contents[graph_.values[use.storage].storage] == use.storage; });
      if (!there || !CanSplit(AsInTrace(*maker), ref, parts, depth + 1)) return false;
    }
  }
  return true;
}

// The operator as in a trace, with storages where the graph has values.
TraceOp Distributor::AsInTrace(const Node& node) const {
  TraceOp op = node.op;
  for (TraceArg& arg : op.args) {
    for (TensorRef& ref : arg.tensors) {
      if (ref.defined()) ref.storage = graph_.values[ref.storage].storage;
    }
  }
  return op;
}

// Adds to `out` what makes `result` of `op` in parts like `parts`.
std::vector<TensorRef> Distributor::Split(const TraceOp& op, const TensorRef& result, const Parts& parts, std::vector<TraceOp>* out) {
  std::vector<std::vector<TensorRef>> operands;  // By tensor of `op`: in parts.
  for (const TraceArg& arg : op.args) {
    for (const TensorRef& ref : arg.tensors) {
      operands.push_back(SplitOperand(ref, result, parts, out));
    }
  }
  std::vector<TensorRef> results;
  for (size_t i = 0; i < parts.refs.size(); ++i) {
    TraceOp part = op;
    size_t ordinal = 0;
    for (TraceArg& arg : part.args) {
      for (TensorRef& ref : arg.tensors) ref = operands[ordinal++][i];
    }
    c10::DimVector sizes = result.sizes;
    sizes[parts.dim] = parts.refs[i].sizes[parts.dim];
    part.results = {AddTensor(&graph_, result, sizes)};
    results.push_back(part.results[0]);
    out->push_back(std::move(part));
  }
  return results;
}

// Operand `ref` for `result` in parts like `parts`, all of it in each if it is broadcast along them; adds to `out` what makes them.
std::vector<TensorRef> Distributor::SplitOperand(const TensorRef& ref, const TensorRef& result, const Parts& parts,
                                                 std::vector<TraceOp>* out) {
  const bool along = ref.defined() && DimIn(ref, result, parts.dim) >= 0;
  if (!along) return std::vector<TensorRef>(parts.refs.size(), ref);
  if (const Parts* own = PartsLike(ref, parts); own != nullptr) return own->refs;
  if (const Node* maker = MakerOf(ref, result); maker != nullptr) {
    const auto found = in_parts_.find(ref.storage);
    if (found != in_parts_.end()) return found->second;
    std::vector<TensorRef> made = Split(AsInTrace(*maker), ref, parts, out);
    in_parts_[ref.storage] = made;
    return made;
  }
  std::vector<TensorRef> windows;
  for (size_t i = 0; i < parts.refs.size(); ++i) windows.push_back(Narrow(ref, result, parts, i));
  return windows;
}

// The part of `ref` beside part `part` of `result`.
TensorRef Distributor::Narrow(const TensorRef& ref, const TensorRef& result, const Parts& parts, size_t part) {
  const auto dim = static_cast<size_t>(DimIn(ref, result, parts.dim));
  TensorRef window = ref;
  window.sizes[dim] = parts.refs[part].sizes[parts.dim];
  std::vector<int64_t> terms;
  for (size_t i = 0; i < part; ++i) terms.push_back(parts.refs[i].sizes[parts.dim] * ref.strides[dim]);
  window.SetOffset(AddOffset(&graph_, ref.offset_slot, terms));
  return window;
}

}  // namespace lazuli::codegen
