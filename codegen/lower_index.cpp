// Rows that read where indices say: embedding, index_select, gather and index.
#include <algorithm>

#include "codegen/lower_index.h"

namespace lazuli::codegen {

using c10::ScalarType;

bool IsIndex(const TensorRef& ref) { return ref.dtype == ScalarType::Long || ref.dtype == ScalarType::Int; }

bool IsTensor(const TraceArg& arg) { return arg.kind == TraceArg::Kind::kTensor && !arg.tensors.empty() && arg.tensors[0].defined(); }

int64_t Rank(const TensorRef& ref) { return static_cast<int64_t>(ref.sizes.size()); }

int64_t DimArg(const TraceOp& op, int arg, const TensorRef& ref) {
  if (op.args[arg].kind != TraceArg::Kind::kConst || !op.args[arg].value.isInt()) return -1;
  const int64_t dim = op.args[arg].value.toInt();
  return dim < 0 ? dim + Rank(ref) : dim;
}

Expr InRange(Expr index, int64_t size) { return (index >= Like(index, 0)) & (index < index.emitter->Size(ScalarType::Long, size)); }

Expr Steps(Expr index, int64_t stride) {
  const Expr wide = index.emitter->Cast(index, ScalarType::Long);
  return stride == 1 ? wide : wide * index.emitter->Size(ScalarType::Long, stride);
}

Expr CheckedSteps(OpEmitter& e, Expr index, const TensorRef& ref, int64_t dim, bool wraps, Expr* all_valid) {
  const int64_t size = ref.sizes[dim];
  if (wraps) index = Select(index < 0, index + e.emitter().Size(ScalarType::Long, size), index);
  const Expr valid = InRange(index, size);
  e.Check(valid);
  if (all_valid != nullptr) *all_valid = all_valid->emitter == nullptr ? valid : *all_valid & valid;
  return Steps(Select(valid, index, Like(index, 0)), ref.strides[dim]);
}

c10::DimVector StridesOf(const c10::DimVector& sizes, c10::DimVector strides) {
  for (size_t d = 0; d < sizes.size(); ++d) strides[d] = sizes[d] == 1 ? 0 : strides[d];
  return strides;
}

Iteration Whole(const TensorRef& result) {
  Iteration it;
  it.sizes = result.sizes;
  it.reduced.assign(it.sizes.size(), false);
  it.results.push_back(BroadcastStrides(result, it.sizes));
  return it;
}

c10::DimVector Along(const c10::DimVector& sizes, int64_t dim) {
  c10::DimVector steps(sizes.size(), 0);
  if (sizes[dim] != 1) steps[dim] = 1;
  return steps;
}

int IndexArg(const OpRow& row) { return (row.index_args & 2) != 0 ? 1 : 2; }

const std::vector<TensorRef>& IndicesOf(const TraceOp& op, const OpRow& row) { return op.args[IndexArg(row)].tensors; }

LookUp LookUpOf(const TraceOp& op, const OpRow& row) {
  LookUp look_up;
  const std::vector<TensorRef>& indices = IndicesOf(op, row);
  if (op.args[1].kind != TraceArg::Kind::kTensorList) {
    const bool is_embedding = IndexArg(row) == 1;
    look_up.dims = {is_embedding ? 0 : DimArg(op, 1, op.args[0].tensors[0])};
    look_up.items = {0};
    look_up.index_rank = is_embedding ? Rank(indices[0]) : 1;
    look_up.at = look_up.dims[0];
    return look_up;
  }
  for (size_t i = 0; i < indices.size(); ++i) {
    if (!indices[i].defined()) continue;
    look_up.dims.push_back(static_cast<int64_t>(i));
    look_up.items.push_back(static_cast<int>(i));
    look_up.index_rank = std::max(look_up.index_rank, Rank(indices[i]));
  }
  // Indices with a slice between them have their dimensions first.
  const bool together = look_up.dims.back() - look_up.dims.front() + 1 == static_cast<int64_t>(look_up.dims.size());
  look_up.at = together ? look_up.dims.front() : 0;
  return look_up;
}

bool IsLookUp(const OpRow& row, const TraceOp& op) {
  if (!IsTensor(op.args[0])) return false;
  const TensorRef& self = op.args[0].tensors[0];
  bool any = false;
  for (const TensorRef& index : IndicesOf(op, row)) {
    if (index.defined() && !IsIndex(index)) return false;
    any = any || index.defined();
  }
  if (!any) return false;
  for (const int64_t dim : LookUpOf(op, row).dims) {
    if (dim < 0 || dim >= Rank(self)) return false;
  }
  return true;
}

Expr LookedUpSteps(OpEmitter& e, Expr* valid) {
  const OpRow& row = *e.node().row;
  const LookUp look_up = LookUpOf(e.op(), row);
  const bool wraps = e.op().args[1].kind == TraceArg::Kind::kTensorList;
  Expr offset;
  for (size_t i = 0; i < look_up.dims.size(); ++i) {
    const Expr index = e.emitter().Cast(e.Load(IndexArg(row), look_up.items[i]), ScalarType::Long);
    const Expr steps = CheckedSteps(e, index, e.op().args[0].tensors[0], look_up.dims[i], wraps, valid);
    offset = i == 0 ? steps : offset + steps;
  }
  return offset;
}

c10::DimVector LookedUpStrides(const TensorRef& self, const LookUp& look_up) {
  c10::DimVector strides;
  for (int64_t d = 0; d < Rank(self); ++d) {
    if (std::find(look_up.dims.begin(), look_up.dims.end(), d) == look_up.dims.end())
      strides.push_back(self.sizes[d] == 1 ? 0 : self.strides[d]);
  }
  strides.insert(strides.begin() + look_up.at, look_up.index_rank, 0);
  return strides;
}

c10::DimVector IndexStrides(const TensorRef& index, const LookUp& look_up, size_t rank) {
  c10::DimVector strides(rank, 0);
  const int64_t first = look_up.at + look_up.index_rank - Rank(index);
  for (int64_t d = 0; d < Rank(index); ++d) strides[first + d] = index.sizes[d] == 1 ? 0 : index.strides[d];
  return strides;
}

namespace {

bool AcceptsLookUp(const OpRow& row, const TraceOp& op) {
  if (!IsLookUp(row, op) || op.results[0].dtype != op.args[0].tensors[0].dtype) return false;
  const LookUp look_up = LookUpOf(op, row);
  return Rank(op.results[0]) == Rank(op.args[0].tensors[0]) - static_cast<int64_t>(look_up.dims.size()) + look_up.index_rank;
}

Iteration IterateLookUp(const OpRow& row, const Node& node) {
  Iteration it = Whole(node.op.results[0]);
  const LookUp look_up = LookUpOf(node.op, row);
  it.uses.push_back(LookedUpStrides(node.op.args[0].tensors[0], look_up));
  for (const TensorRef& index : IndicesOf(node.op, row)) {
    if (index.defined()) it.uses.push_back(IndexStrides(index, look_up, it.sizes.size()));
  }
  return it;
}

void EmitLookUp(OpEmitter& e) { e.Result(0, e.LoadAt(0, LookedUpSteps(e))); }

bool AcceptsGather(const OpRow& row, const TraceOp& op) {
  if (!IsTensor(op.args[0]) || !IsTensor(op.args[2])) return false;
  const TensorRef& self = op.args[0].tensors[0];
  const TensorRef& index = op.args[2].tensors[0];
  const int64_t dim = DimArg(op, 1, self);
  return index.dtype == ScalarType::Long && Rank(self) == Rank(index) && dim >= 0 && dim < Rank(self) && op.results[0].dtype == self.dtype;
}

Iteration IterateGather(const OpRow& row, const Node& node) {
  Iteration it = Whole(node.op.results[0]);
  const TensorRef& self = node.op.args[0].tensors[0];
  c10::DimVector source(self.strides.begin(), self.strides.end());
  source[DimArg(node.op, 1, self)] = 0;
  for (size_t d = 0; d < source.size(); ++d) source[d] = it.sizes[d] == 1 ? 0 : source[d];
  it.uses.push_back(std::move(source));
  it.uses.push_back(BroadcastStrides(node.op.args[2].tensors[0], it.sizes));
  return it;
}

void EmitGather(OpEmitter& e) {
  const TensorRef& self = e.op().args[0].tensors[0];
  const Expr index = e.Arg(2, ScalarType::Long);
  e.Result(0, e.LoadAt(0, CheckedSteps(e, index, self, DimArg(e.op(), 1, self), /*wraps=*/false)));
}

}  // namespace

OpRow LookUpRow(int index_arg) {
  OpRow row;
  row.index_args = uint64_t{1} << index_arg;
  row.indexed_args = 1;
  row.accepts = &AcceptsLookUp;
  row.iterate = &IterateLookUp;
  row.emit = &EmitLookUp;
  return row;
}

OpRow GatherRow() {
  OpRow row = LookUpRow(2);
  row.accepts = &AcceptsGather;
  row.iterate = &IterateGather;
  row.emit = &EmitGather;
  return row;
}

}  // namespace lazuli::codegen
