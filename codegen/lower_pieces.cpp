#include "codegen/lower_pieces.h"

#include <utility>

namespace lazuli::codegen {
namespace {

// `name`: add or sub, of tensors.
TraceOp Combined(const char* name, const TensorRef& a, const TensorRef& b, const TensorRef& result) {
  TraceOp op = CallOf(name, result);
  SetRef(&op, 0, a);
  SetRef(&op, 1, b);
  op.args[2].value = int64_t{1};
  return op;
}

}  // namespace

const TensorRef& RefOf(const TraceOp& op, int arg) {
  static const TensorRef absent;
  return op.args[arg].tensors.empty() ? absent : op.args[arg].tensors[0];
}

void SetRef(TraceOp* op, int arg, TensorRef ref) {
  op->args[arg] = TraceArg();
  op->args[arg].kind = TraceArg::Kind::kTensor;
  op->args[arg].tensors = {std::move(ref)};
}

TraceOp CallOf(const char* name, const TensorRef& result) {
  TraceOp op;
  op.info = FindOpInfo(name);
  op.args.resize(static_cast<size_t>(op.info->num_args));
  op.results = {result};
  return op;
}

bool PutsTogether(const TraceOp& op) { return op.info->name == "aten::cat" || op.info->name == "aten::stack"; }

TraceOp Cat(std::vector<TensorRef> parts, int64_t dim, const TensorRef& result) {
  TraceOp op = CallOf("aten::cat", result);
  op.args[0].kind = TraceArg::Kind::kTensorList;
  op.args[0].tensors = std::move(parts);
  op.args[1].value = dim;
  return op;
}

TraceOp NewZeros(const TensorRef& like, const TensorRef& result) {
  TraceOp op = CallOf("aten::new_zeros", result);
  SetRef(&op, 0, like);
  op.args[1].value = std::vector<int64_t>(result.sizes.begin(), result.sizes.end());
  op.args[2].value = static_cast<int64_t>(result.dtype);
  return op;
}

TraceOp Sum(const TensorRef& a, const TensorRef& b, const TensorRef& result) { return Combined("aten::add.Tensor", a, b, result); }

TraceOp Difference(const TensorRef& a, const TensorRef& b, const TensorRef& result) { return Combined("aten::sub.Tensor", a, b, result); }

TraceOp Rounded(const TensorRef& source, const TensorRef& result) {
  TraceOp op = CallOf("aten::_to_copy", result);
  SetRef(&op, 0, source);
  op.args[1].value = static_cast<int64_t>(result.dtype);
  op.args[5].value = false;
  return op;
}

}  // namespace lazuli::codegen
