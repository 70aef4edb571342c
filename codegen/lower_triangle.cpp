// What keeps a triangle of the last two dimensions: tril and triu.
#include "codegen/lower_index.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

constexpr int kRow = 0, kColumn = 1;  // Coordinates.

bool AcceptsTriangle(const OpRow&, const TraceOp& op) {
  return IsTensor(op.args[0]) && op.args[1].kind == TraceArg::Kind::kConst && op.args[1].value.isInt() && Rank(op.args[0].tensors[0]) >= 2;
}

Iteration IterateTriangle(const OpRow&, const Node& node) {
  Iteration it = Whole(node.op.results[0]);
  ForEachUse(node, [&](const TensorRef& use) { it.uses.push_back(BroadcastStrides(use, it.sizes)); });
  const int64_t rank = Rank(node.op.results[0]);
  it.coordinates = {Along(it.sizes, rank - 2), Along(it.sizes, rank - 1)};
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
