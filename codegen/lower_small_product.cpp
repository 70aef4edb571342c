// Products of matrices of a few rows or columns that add up a few numbers, on GPUs: transforms of points, filters' states. A library's
// tiles are mostly empty there, so each element is added up where it is used. On CPUs products/ has code for them.
#include "codegen/lower_index.h"

namespace lazuli::codegen {
namespace {

constexpr int64_t kFew = 8;

// mm and bmm: matrices are the last two dimensions.
bool AcceptsSmallProduct(const OpRow&, const TraceOp& op) {
  if (!op.device.is_cuda() || !IsTensor(op.args[0]) || !IsTensor(op.args[1])) return false;
  const TensorRef &x = op.args[0].tensors[0], &y = op.args[1].tensors[0], &result = op.results[0];
  const int64_t rank = Rank(result);
  const bool types = x.dtype == result.dtype && y.dtype == result.dtype && (TypeBit(result.dtype) & kFloats) != 0;
  if (!types || Rank(x) != rank || Rank(y) != rank || result.numel() == 0) return false;
  const int64_t inner = x.sizes[rank - 1];
  return inner >= 1 && inner <= kFew && (result.sizes[rank - 2] <= kFew || result.sizes[rank - 1] <= kFew);
}

Iteration IterateSmallProduct(const OpRow&, const Node& node) {
  Iteration it = Whole(node.op.results[0]);
  const size_t row = it.sizes.size() - 2, column = row + 1;
  for (const int arg : {0, 1}) {
    const TensorRef& ref = node.op.args[arg].tensors[0];
    it.uses.push_back(StridesOf(ref.sizes, ref.strides));
    it.uses.back()[arg == 0 ? column : row] = 0;
  }
  return it;
}

void EmitSmallProduct(OpEmitter& e) {
  const TensorRef &x = e.op().args[0].tensors[0], &y = e.op().args[1].tensors[0];
  const size_t row = x.sizes.size() - 2, column = row + 1;
  const c10::ScalarType type = OpMathType(x.dtype);
  const auto load = [&](int arg, int64_t at, int64_t stride) {
    const Expr place = e.emitter().ConstInt(c10::ScalarType::Long, at);
    return e.emitter().Cast(e.LoadAt(arg, Steps(place, stride)), type);
  };
  // From 0 on, as libraries do: a sum of negative zeros is none.
  Expr sum = e.emitter().Const(type, 0);
  for (int64_t k = 0; k < x.sizes[column]; ++k) sum = Fma(load(0, k, x.strides[column]), load(1, k, y.strides[row]), sum);
  e.Result(0, sum);
}

}  // namespace

OpRow SmallProductRow() {
  OpRow row;
  row.moves = true;
  row.indexed_args = 0b11;
  row.accepts = &AcceptsSmallProduct;
  row.iterate = &IterateSmallProduct;
  row.emit = &EmitSmallProduct;
  return row;
}

}  // namespace lazuli::codegen
