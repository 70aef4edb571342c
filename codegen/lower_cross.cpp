// Cross products on GPUs: each element of a result is made of the two beside it, around the three, in either operand. On the CPU ATen's
// loop reads them one after the other, which is faster than where vectors gather them.
#include "codegen/lower_index.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

int64_t CrossDim(const TraceOp& op) { return DimArg(op, 2, op.results[0]); }

bool AcceptsCross(const OpRow&, const TraceOp& op) {
  if (!op.device.is_cuda() || !IsTensor(op.args[0]) || !IsTensor(op.args[1])) return false;
  const TensorRef &a = op.args[0].tensors[0], &b = op.args[1].tensors[0], &result = op.results[0];
  const int64_t dim = CrossDim(op);
  return a.dtype == result.dtype && b.dtype == result.dtype && (TypeBit(result.dtype) & (kWide | kInts)) != 0 && dim >= 0 &&
         dim < Rank(result) && Rank(a) == Rank(result) && Rank(b) == Rank(result) && a.sizes[dim] == 3 && b.sizes[dim] == 3;
}

Iteration IterateCross(const OpRow&, const Node& node) {
  Iteration it = Whole(node.op.results[0]);
  const auto dim = static_cast<size_t>(CrossDim(node.op));
  for (const int arg : {0, 1}) {
    it.uses.push_back(BroadcastStrides(node.op.args[arg].tensors[0], it.sizes));
    it.uses.back()[dim] = 0;
  }
  it.coordinates = {Along(it.sizes, CrossDim(node.op))};
  return it;
}

void EmitCross(OpEmitter& e) {
  const int64_t dim = CrossDim(e.op());
  const Expr at = e.Coordinate(0), first = Like(at, 0), second = Like(at, 1), third = Like(at, 2);
  const Expr next = Select(at == third, first, at + second), last = Select(at == first, third, at - second);
  const auto load = [&](int arg, Expr place) { return e.LoadAt(arg, Steps(place, e.op().args[arg].tensors[0].strides[dim])); };
  const Expr subtracted = load(0, last) * load(1, next);
  e.Result(0, Fma(load(0, next), load(1, last), -subtracted));
}

}  // namespace

OpRow CrossRow() {
  OpRow row;
  row.indexed_args = 0b11;
  row.accepts = &AcceptsCross;
  row.iterate = &IterateCross;
  row.emit = &EmitCross;
  return row;
}

}  // namespace lazuli::codegen
