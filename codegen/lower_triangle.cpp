// What keeps a triangle of the last two dimensions: tril and triu.
#include "codegen/lower_rows.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

constexpr int kRow = 0, kColumn = 1;  // Coordinates.

bool AcceptsTriangle(const OpRow&, const TraceOp& op) {
  return op.args[0].kind == TraceArg::Kind::kTensor && op.args[1].kind == TraceArg::Kind::kConst && op.args[1].value.isInt() &&
         op.args[0].tensors[0].sizes.size() >= 2;
}

Iteration IterateTriangle(const OpRow&, const Node& node) {
  Iteration it;
  it.sizes = node.op.results[0].sizes;
  it.reduced.assign(it.sizes.size(), false);
  ForEachUse(node, [&](const TensorRef& use) { it.uses.push_back(BroadcastStrides(use, it.sizes)); });
  it.results.push_back(BroadcastStrides(node.op.results[0], it.sizes));
  const size_t rank = it.sizes.size();
  for (const size_t dim : {rank - 2, rank - 1}) {
    c10::DimVector along(rank, 0);
    along[dim] = 1;
    it.coordinates.push_back(std::move(along));
  }
  return it;
}

template <bool kLower>
void EmitTriangle(OpEmitter& e) {
  const Expr diagonal = e.Coordinate(kColumn) - e.Coordinate(kRow), given = e.emitter().Size(ScalarType::Long, e.Int(1));
  const Expr value = e.Arg(0, OpMathType(e.op().results[0].dtype));
  e.Result(0, Select(kLower ? diagonal <= given : diagonal >= given, value, Like(value, 0)));
}

}  // namespace

OpRow TriangleRow(bool lower) {
  OpRow row = PointwiseRow(TypeRule::kPromote, 1, kAll, lower ? &EmitTriangle<true> : &EmitTriangle<false>);
  row.accepts = &AcceptsTriangle;
  row.iterate = &IterateTriangle;
  return row;
}

}  // namespace lazuli::codegen
