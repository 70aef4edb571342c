// Rows that write where indices say: index_add, scatter, index_put and their like, and the gradient of embedding. Each walks the points of
// what is written, the dimensions that indices stand for reduced: what meets in one place comes one after another, in eager's order (on a
// GPU in any), and the rest of the dimensions in parallel.
#include <algorithm>
#include <string>

#include "codegen/lower_index.h"
#include "codegen/lower_pieces.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

constexpr int kSelf = 0, kDim = 1, kIndexArg = 2, kSource = 3, kAlpha = 4;

bool IsConstInt(const TraceArg& arg, int64_t value) {
  return arg.kind == TraceArg::Kind::kConst && arg.value.isInt() && arg.value.toInt() == value;
}

// index_add, index_copy: index has one dimension, and the source is all of what it names. On a CPU ATen is as fast at single numbers.
bool AcceptsSlices(const OpRow& row, const TraceOp& op) {
  const TensorRef& self = op.args[kSelf].tensors[0];
  if (!IsTensor(op.args[kIndexArg]) || !IsTensor(op.args[kSource])) return false;
  const TensorRef& index = op.args[kIndexArg].tensors[0];
  const TensorRef& source = op.args[kSource].tensors[0];
  const int64_t dim = DimArg(op, kDim, self);
  return dim >= 0 && dim < Rank(self) && (Rank(self) > 1 || op.device.is_cuda()) && IsIndex(index) && Rank(index) == 1 &&
         Rank(source) == Rank(self) && source.dtype == self.dtype && (TypeBit(self.dtype) & row.types) != 0;
}

// Whether all of a row of self, where it is contiguous, goes to one place.
bool GoesTogether(const TensorRef& self, const TensorRef& index, int64_t dim) {
  for (int64_t d = 0; d < Rank(self); ++d) {
    if (d != dim && self.strides[d] == 1 && index.sizes[d] != 1 && index.strides[d] == 0) return true;
  }
  return false;
}

// scatter: an index for each element. On a CPU, again, whole rows only.
bool AcceptsElements(const OpRow& row, const TraceOp& op) {
  const TensorRef& self = op.args[kSelf].tensors[0];
  if (!IsTensor(op.args[kIndexArg])) return false;
  const TensorRef& index = op.args[kIndexArg].tensors[0];
  const int64_t dim = DimArg(op, kDim, self);
  if (dim < 0 || dim >= Rank(self) || index.dtype != ScalarType::Long || Rank(index) != Rank(self)) return false;
  if (op.device.is_cpu() && index.sizes[dim] != 1 && !GoesTogether(self, index, dim)) return false;
  if (IsTensor(op.args[kSource])) {
    const TensorRef& source = op.args[kSource].tensors[0];
    if (source.dtype != self.dtype || Rank(source) != Rank(self)) return false;
  }
  return (TypeBit(self.dtype) & row.types) != 0;
}

// Over the source (`slices`: of which the index names slices) or over the index.
template <bool slices>
Iteration IterateAlong(const OpRow&, const Node& node) {
  const TensorRef& self = node.op.args[kSelf].tensors[0];
  const TensorRef& index = node.op.args[kIndexArg].tensors[0];
  const int64_t dim = DimArg(node.op, kDim, self);
  Iteration it;
  it.sizes = slices ? node.op.args[kSource].tensors[0].sizes : index.sizes;
  it.reduced.assign(it.sizes.size(), false);
  it.reduced[dim] = true;
  c10::DimVector target = StridesOf(it.sizes, self.strides);
  target[dim] = 0;
  c10::DimVector along(it.sizes.size(), 0);
  if (it.sizes[dim] != 1) along[dim] = index.strides[0];
  it.uses = {target, slices ? along : StridesOf(it.sizes, index.strides)};
  if (IsTensor(node.op.args[kSource])) it.uses.push_back(StridesOf(it.sizes, node.op.args[kSource].tensors[0].strides));
  it.results = {std::move(target)};
  return it;
}

void ScatterAlong(OpEmitter& e, KOp op, Expr source) {
  const TensorRef& self = e.op().args[kSelf].tensors[0];
  const int64_t dim = DimArg(e.op(), kDim, self);
  Expr valid;
  const Expr steps = CheckedSteps(e, e.Arg(kIndexArg, ScalarType::Long), self, dim, /*wraps=*/false, &valid);
  e.Scatter(op, source, steps, valid, {dim});
}

// In self's type.
Expr Source(OpEmitter& e) {
  const ScalarType dtype = e.op().args[kSelf].tensors[0].dtype;
  return IsTensor(e.op().args[kSource]) ? e.Load(kSource) : e.emitter().Cast(e.Arg(kSource, OpMathType(dtype)), dtype);
}

void EmitIndexAdd(OpEmitter& e) {
  Expr source = e.Load(kSource);
  if (!IsConstInt(e.op().args[kAlpha], 1)) source = source * e.Arg(kAlpha, source.type());
  ScatterAlong(e, KOp::kScatterAdd, source);
}

bool Accumulates(const TraceOp& op) { return op.args[3].value.toBool(); }

bool AcceptsIndexPut(const OpRow& row, const TraceOp& op) {
  if (!IsLookUp(row, op) || !IsTensor(op.args[2]) || op.args[3].kind != TraceArg::Kind::kConst) return false;
  const TensorRef& self = op.args[kSelf].tensors[0];
  const LookUp look_up = LookUpOf(op, row);
  const int64_t rank = Rank(self) - static_cast<int64_t>(look_up.dims.size()) + look_up.index_rank;
  if (op.args[2].tensors[0].dtype != self.dtype || Rank(op.args[2].tensors[0]) > rank) return false;
  return (TypeBit(self.dtype) & (Accumulates(op) ? kWide | kInts : kAll)) != 0;
}

Iteration IterateIndexPut(const OpRow& row, const Node& node) {
  const TensorRef& self = node.op.args[kSelf].tensors[0];
  const LookUp look_up = LookUpOf(node.op, row);
  Iteration it;
  for (int64_t d = 0; d < Rank(self); ++d) {
    if (std::find(look_up.dims.begin(), look_up.dims.end(), d) == look_up.dims.end()) it.sizes.push_back(self.sizes[d]);
  }
  it.sizes.insert(it.sizes.begin() + look_up.at, look_up.index_rank, 1);
  it.reduced.assign(it.sizes.size(), false);
  for (int64_t d = 0; d < look_up.index_rank; ++d) it.reduced[look_up.at + d] = true;
  it.results = {LookedUpStrides(self, look_up)};
  it.uses = it.results;
  for (const TensorRef& index : IndicesOf(node.op, row)) {
    if (!index.defined()) continue;
    const int64_t first = look_up.at + look_up.index_rank - Rank(index);
    for (int64_t d = 0; d < Rank(index); ++d) {
      if (index.sizes[d] != 1) it.sizes[first + d] = index.sizes[d];
    }
    it.uses.push_back(IndexStrides(index, look_up, it.sizes.size()));
  }
  it.uses.push_back(BroadcastStrides(node.op.args[2].tensors[0], it.sizes));
  return it;
}

void EmitIndexPut(OpEmitter& e) {
  Expr valid;
  const Expr steps = LookedUpSteps(e, &valid);
  e.Scatter(Accumulates(e.op()) ? KOp::kScatterAdd : KOp::kScatter, e.Load(2), steps, valid, LookUpOf(e.op(), *e.node().row).dims);
}

// scatter and scatter_add of one element to each row along the dimension: the row's elements are compared with the index.
Iteration IterateEverywhere(const OpRow&, const Node& node) {
  const TensorRef& index = node.op.args[kIndexArg].tensors[0];
  const int64_t dim = DimArg(node.op, kDim, index);
  Iteration it = Whole(node.op.results[0]);
  it.uses = {BroadcastStrides(node.op.args[kSelf].tensors[0], it.sizes), StridesOf(index.sizes, index.strides)};
  if (IsTensor(node.op.args[kSource])) {
    it.uses.push_back(StridesOf(it.sizes, node.op.args[kSource].tensors[0].strides));
    it.uses.back()[dim] = 0;
  }
  it.coordinates = {Along(it.sizes, dim)};
  return it;
}

template <bool adds>
void EmitEverywhere(OpEmitter& e) {
  const TensorRef& self = e.op().args[kSelf].tensors[0];
  const Expr index = e.Arg(kIndexArg, ScalarType::Long);
  e.Check(InRange(index, self.sizes[DimArg(e.op(), kDim, self)]));
  const ScalarType type = OpMathType(self.dtype);
  const Expr before = e.Arg(kSelf, type);
  Expr source = e.Arg(kSource, type);
  if (adds) source = before + source;
  e.Result(0, Select(e.Coordinate(0) == index, source, before));
}

template <bool adds>
const OpRow* EverywhereRow(const TraceOp& op) {
  const TensorRef& self = op.args[kSelf].tensors[0];
  const TensorRef& index = op.args[kIndexArg].tensors[0];
  const int64_t dim = DimArg(op, kDim, self);
  for (int64_t d = 0; d < Rank(self); ++d) {
    if (index.sizes[d] != (d == dim ? 1 : self.sizes[d])) return nullptr;
  }
  static const OpRow* const made = [] {
    auto* row = new OpRow;
    row->index_args = uint64_t{1} << kIndexArg;
    row->iterate = &IterateEverywhere;
    row->emit = &EmitEverywhere<adds>;
    return row;
  }();
  return made;
}

// "aten::scatter.src" -> "aten::scatter_.src".
std::string InPlaceName(const std::string& name) {
  const size_t dot = name.find('.');
  return dot == std::string::npos ? name + "_" : name.substr(0, dot) + "_" + name.substr(dot);
}

// The in-place op that does to a copy of self what `op` does.
TraceOp InPlace(const TraceOp& op) {
  TraceOp in_place = op;
  in_place.info = FindOpInfo(InPlaceName(op.info->name));
  in_place.args[kSelf].tensors[0] = op.results[0];
  in_place.results.clear();
  return in_place;
}

bool AcceptsCopyAnd(const OpRow&, const TraceOp& op) {
  if (!HasPlainTypes(op) || !op.results[0].defined() || op.results[0].dtype != op.args[kSelf].tensors[0].dtype) return false;
  return FindRow(InPlace(op)) != nullptr;
}

void ExpandCopyAnd(const TraceOp& op, Expansion* out) {
  Expansion::Piece copy;
  copy.op.info = FindOpInfo("aten::clone");
  copy.op.args = {op.args[kSelf], TraceArg()};
  copy.op.results = op.results;
  out->pieces.push_back(std::move(copy));
  out->pieces.push_back({InPlace(op)});
}

// Arguments of embedding_dense_backward. Its piece has the result in place of the number of rows.
enum Embedding { kGrad, kIndices, kTable, kPadding, kByFrequency };

bool AcceptsEmbeddingBackward(const OpRow&, const TraceOp& op) {
  if (!HasPlainTypes(op) || !IsTensor(op.args[kGrad]) || !IsTensor(op.args[kIndices]) || !op.results[0].defined()) return false;
  const TensorRef& grad = op.args[kGrad].tensors[0];
  const TensorRef& indices = op.args[kIndices].tensors[0];
  const bool plain = op.args[kPadding].kind == TraceArg::Kind::kConst && op.args[kByFrequency].kind == TraceArg::Kind::kConst;
  return plain && !op.args[kByFrequency].value.toBool() && IsIndex(indices) && Rank(grad) == Rank(indices) + 1 &&
         op.results[0].dtype == grad.dtype && (TypeBit(grad.dtype) & (op.device.is_cuda() ? kFloats : kWide)) != 0;
}

// Halves are added up as floats, and rounded once.
void ExpandEmbeddingBackward(const TraceOp& op, Expansion* out) {
  const TensorRef& result = op.results[0];
  const bool wide = OpMathType(result.dtype) == result.dtype;
  const TensorRef table = wide ? result : out->Temporary(OpMathType(result.dtype), result.sizes);
  out->Number(op, -1, table.dtype, {});
  out->pieces.back().op.results = {table};
  Expansion::Piece scatter;
  scatter.op = op;
  SetRef(&scatter.op, kTable, table);
  scatter.op.results.clear();
  scatter.part = 0;
  out->pieces.push_back(std::move(scatter));
  if (!wide) out->pieces.push_back({Rounded(table, result), Expansion::kWholeOp});
}

Iteration IterateEmbeddingBackward(const OpRow&, const Node& node) {
  const TensorRef& grad = node.op.args[kGrad].tensors[0];
  const TensorRef& table = node.op.args[kTable].tensors[0];
  Iteration it;
  it.sizes = grad.sizes;
  it.reduced.assign(it.sizes.size(), true);
  it.reduced.back() = false;
  c10::DimVector indices = StridesOf(node.op.args[kIndices].tensors[0].sizes, node.op.args[kIndices].tensors[0].strides);
  indices.push_back(0);
  c10::DimVector target(it.sizes.size(), 0);
  target.back() = it.sizes.back() == 1 ? 0 : table.strides[1];
  it.uses = {StridesOf(it.sizes, grad.strides), std::move(indices), target};
  it.results = {std::move(target)};
  return it;
}

// ATen skips indices that name no row.
void EmitEmbeddingBackward(OpEmitter& e) {
  const TensorRef& table = e.op().args[kTable].tensors[0];
  const Expr index = e.Arg(kIndices, ScalarType::Long);
  Expr counts = InRange(index, table.sizes[0]);
  if (e.Int(kPadding) >= 0) counts = counts & (index != e.emitter().ConstInt(ScalarType::Long, e.Int(kPadding)));
  e.Scatter(KOp::kScatterAdd, e.emitter().Cast(e.Load(kGrad), table.dtype), Steps(Select(counts, index, Like(index, 0)), table.strides[0]),
            counts, {0});
}

// Of ops that write into argument `target` where indices say.
OpRow RowInto(int target, bool (*accepts)(const OpRow&, const TraceOp&), Iteration (*iterate)(const OpRow&, const Node&),
              void (*emit)(OpEmitter&)) {
  OpRow row;
  row.moves = true;
  row.target_arg = target;
  row.writes_at_indices = true;
  row.reducing_parts = 1;
  row.accepts = accepts;
  row.iterate = iterate;
  row.emit = emit;
  return row;
}

OpRow RowAlong(uint8_t types, bool slices, void (*emit)(OpEmitter&)) {
  OpRow row = RowInto(kSelf, slices ? &AcceptsSlices : &AcceptsElements, slices ? &IterateAlong<true> : &IterateAlong<false>, emit);
  row.types = types;
  row.index_args = uint64_t{1} << kIndexArg;
  return row;
}

void EmitAdd(OpEmitter& e) { ScatterAlong(e, KOp::kScatterAdd, Source(e)); }

void EmitStore(OpEmitter& e) { ScatterAlong(e, KOp::kScatter, Source(e)); }

}  // namespace

OpRow IndexAddRow() { return RowAlong(kWide | kInts, /*slices=*/true, &EmitIndexAdd); }

OpRow IndexCopyRow() { return RowAlong(kAll, /*slices=*/true, &EmitStore); }

OpRow ScatterAddRow() {
  OpRow row = RowAlong(kWide | kInts, /*slices=*/false, &EmitAdd);
  row.everywhere = &EverywhereRow</*adds=*/true>;
  return row;
}

OpRow ScatterRow() {
  OpRow row = RowAlong(kAll, /*slices=*/false, &EmitStore);
  row.everywhere = &EverywhereRow</*adds=*/false>;
  return row;
}

OpRow IndexPutRow() {
  OpRow row = RowInto(kSelf, &AcceptsIndexPut, &IterateIndexPut, &EmitIndexPut);
  row.index_args = 0b10;
  return row;
}

OpRow CopyAndRow() {
  OpRow row;
  row.moves = true;
  row.writes_at_indices = true;
  row.expand = &ExpandCopyAnd;
  row.accepts = &AcceptsCopyAnd;
  return row;
}

OpRow EmbeddingBackwardRow() {
  OpRow row = RowInto(kTable, &AcceptsEmbeddingBackward, &IterateEmbeddingBackward, &EmitEmbeddingBackward);
  row.expand = &ExpandEmbeddingBackward;
  return row;
}

}  // namespace lazuli::codegen
