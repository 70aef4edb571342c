#include "codegen/distribute.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "codegen/lower.h"
#include "codegen/lower_index.h"
#include "codegen/lower_pieces.h"

namespace lazuli::codegen {
namespace {

constexpr size_t kMaxParts = 8;
// Operators that are split for the sake of one that reads what they make, one behind the other.
constexpr int kMaxDepth = 8;

bool PutsTogether(const TraceOp& op) { return op.results.size() == 1 && (op.info->name == "aten::cat" || op.info->name == "aten::stack"); }

bool IsPointwise(const OpRow* row) {
  return row != nullptr && row->expand == nullptr && row->shape_args == 0 && !row->uniform && IsPointwise(*row);
}

// Whether the operator computes each element of its only result of those beside it.
bool IsPointwise(const TraceOp& op) { return op.results.size() == 1 && op.results[0].defined() && IsPointwise(FindRow(op)); }

// `op`, or if that overwrites all of what it is called on, the one that makes a result instead, in the same place.
TraceOp Functional(TraceOp op) {
  if (!op.info->returns_mutated_self || op.info->mutated_args != 1) return op;
  const OpInfo* const functional = FunctionalOf(*op.info);
  if (functional == nullptr) return op;
  op.info = functional;
  op.results = {op.args[0].tensors[0]};
  op.results[0].wrapped_number = false;
  return op;
}

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
  if (dim < 0 || dim >= Rank(result) || !IsDense(result) || (HasSymbol(result.strides) && !result.is_contiguous())) return;
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

std::vector<TraceOp> Distributor::Distribute(const TraceOp& given) {
  std::vector<TraceOp> ops;
  if (parts_of_.empty()) return ops;
  const TraceOp op = Functional(given);
  if (!IsPointwise(op)) return ops;
  const TensorRef& result = op.results[0];
  const auto& storage = trace_.storages[static_cast<size_t>(result.storage)];
  const bool fresh = !storage.is_input && result.offset_slot == -1 && IsDense(result) &&
                     result.numel() * static_cast<int64_t>(c10::elementSize(result.dtype)) == storage.nbytes;
  if (!fresh || (HasSymbol(result.strides) && !result.is_contiguous())) return ops;
  for (const TraceArg& arg : op.args) {
    for (const TensorRef& ref : arg.tensors) {
      const Parts* const found = ref.defined() && ref.sizes == result.sizes ? PartsOf(ref) : nullptr;
      if (found == nullptr || !CanSplit(op, result, *found, 0)) continue;
      const Parts parts = *found;
      TraceOp cat = CallOf("aten::cat", result);
      cat.args[0].kind = TraceArg::Kind::kTensorList;
      cat.args[0].tensors = Split(op, result, parts, &ops);
      cat.args[1].value = static_cast<int64_t>(parts.dim);
      cat.index = op.index;
      cat.device = op.device;
      cat.default_dtype = op.default_dtype;
      ops.push_back(std::move(cat));
      return ops;
    }
  }
  return ops;
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
      if (!alone || maker->part != 0 || maker->op.info->returns_mutated_self || !IsPointwise(maker->row)) return false;
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
      std::vector<TensorRef>& in_parts = operands.emplace_back();
      const bool along = ref.defined() && DimIn(ref, result, parts.dim) >= 0;
      const Parts* const own = along ? PartsLike(ref, parts) : nullptr;
      const Node* const maker = along && own == nullptr ? MakerOf(ref, result) : nullptr;
      if (own != nullptr) {
        in_parts = own->refs;
      } else if (maker != nullptr) {
        in_parts = Split(AsInTrace(*maker), ref, parts, out);
      } else {
        for (size_t i = 0; i < parts.refs.size(); ++i) in_parts.push_back(along ? Narrow(ref, result, parts, i) : ref);
      }
    }
  }
  std::vector<TensorRef> results;
  for (size_t i = 0; i < parts.refs.size(); ++i) {
    TraceOp part = op;
    size_t ordinal = 0;
    for (TraceArg& arg : part.args) {
      for (TensorRef& ref : arg.tensors) ref = operands[ordinal++][i];
    }
    part.results = {NewTensor(result, parts, i)};
    results.push_back(part.results[0]);
    out->push_back(std::move(part));
  }
  return results;
}

// The part of `ref` beside part `part` of `result`.
TensorRef Distributor::Narrow(const TensorRef& ref, const TensorRef& result, const Parts& parts, size_t part) {
  const auto dim = static_cast<size_t>(DimIn(ref, result, parts.dim));
  TensorRef window = ref;
  window.sizes[dim] = parts.refs[part].sizes[parts.dim];
  std::vector<int64_t> terms;
  for (size_t i = 0; i < part; ++i) terms.push_back(parts.refs[i].sizes[parts.dim] * ref.strides[dim]);
  window.offset_slot = Offset(ref.offset_slot, terms);
  return window;
}

// For part `part` of `result`, in the same order of dimensions.
TensorRef Distributor::NewTensor(const TensorRef& result, const Parts& parts, size_t part) {
  TensorRef ref = result;
  ref.storage = static_cast<StorageId>(graph_.storages.size());
  ref.sizes[parts.dim] = parts.refs[part].sizes[parts.dim];
  std::vector<size_t> order(ref.sizes.size());
  std::iota(order.rbegin(), order.rend(), 0);
  if (!result.is_contiguous()) {
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return result.strides[a] < result.strides[b]; });
  }
  int64_t stride = 1;
  for (const size_t d : order) {
    ref.strides[d] = stride;
    stride *= ref.sizes[d];
  }
  TraceStorage storage;
  storage.nbytes = stride * static_cast<int64_t>(c10::elementSize(ref.dtype));
  storage.device = graph_.storages[result.storage].device;
  graph_.storages.push_back(storage);
  graph_.contents.push_back(kNoValue);
  return ref;
}

// The graph's slot of a sum, as expansions have theirs.
int32_t Distributor::Offset(int32_t slot, const std::vector<int64_t>& terms) {
  Expansion expansion;
  expansion.first_offset = graph_.num_offsets;
  expansion.offset_sums = std::move(graph_.offset_sums);
  slot = expansion.Offset(slot, terms);
  graph_.offset_sums = std::move(expansion.offset_sums);
  return slot;
}

bool Distributor::HasSymbol(c10::IntArrayRef numbers) const {
  return std::any_of(numbers.begin(), numbers.end(), [&](int64_t number) { return graph_.symbols.IsSymbolic(number); });
}

}  // namespace lazuli::codegen
