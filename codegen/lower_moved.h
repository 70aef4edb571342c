// Results whose points are each read from one place of another tensor, which is worked out of where they are.
#pragma once

#include <vector>

#include "codegen/lower_index.h"

namespace lazuli::codegen {

// The result's points, with coordinates along `dims`, in that order, in place of the operand's strides there.
inline Iteration IterateMoved(const Node& node, const std::vector<int64_t>& dims) {
  Iteration it = Whole(node.op.results[0]);
  const TensorRef& self = node.op.args[0].tensors[0];
  it.uses.push_back(StridesOf(self.sizes, self.strides));
  for (const int64_t dim : dims) {
    it.uses[0][dim] = 0;
    it.coordinates.push_back(Along(it.sizes, dim));
  }
  return it;
}

// `from` says where along its dimension the point with that coordinate comes from: (number of the dimension in `dims`, coordinate, the
// operand's size).
template <class From>
void EmitMoved(OpEmitter& e, const std::vector<int64_t>& dims, const From& from) {
  const TensorRef& self = e.op().args[0].tensors[0];
  Expr offset = e.emitter().ConstInt(c10::ScalarType::Long, 0);
  for (size_t i = 0; i < dims.size(); ++i) {
    offset = offset + Steps(from(i, e.Coordinate(static_cast<int>(i)), self.sizes[dims[i]]), self.strides[dims[i]]);
  }
  const Expr value = e.LoadAt(0, offset);
  e.Result(0, e.emitter().Cast(value, OpMathType(value.type())));
}

// The row of an operator that reads its first argument so.
inline OpRow MovedRow(bool (*accepts)(const OpRow&, const TraceOp&), Iteration (*iterate)(const OpRow&, const Node&),
                      void (*emit)(OpEmitter&)) {
  OpRow row;
  row.accepts = accepts;
  row.iterate = iterate;
  row.emit = emit;
  row.indexed_args = 1;
  return row;
}

}  // namespace lazuli::codegen
