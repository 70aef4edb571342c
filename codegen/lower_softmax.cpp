// Softmax, its logarithm and their gradients. Each formula follows the order of operations of ATen's vectorised CPU kernel.
#include <limits>
#include <utility>

#include "codegen/lower_pieces.h"
#include "codegen/lower_rows.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

// Parts of the logarithm's row.
constexpr int kWhole = 0;
constexpr int kStatistics = 1;  // Of each row: its maximum, and the logarithm of the sum of exponentials.

bool AcceptsSoftmax(const OpRow& row, const TraceOp& op) { return SameFloatTypes(op) && !op.results[0].sizes.empty(); }

// Expanded ops are to be looked at here alone.
bool AcceptsLogSoftmax(const OpRow& row, const TraceOp& op) {
  return HasPlainTypes(op) && op.results[0].defined() && AcceptsSoftmax(row, op);
}

size_t SoftmaxDim(const OpRow& row, const TraceOp& op) {
  const int64_t dim = op.args[row.dims_arg].value.toInt();
  return static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(op.args[0].tensors[0].sizes.size()) : dim);
}

Iteration IterateSoftmax(const OpRow& row, const Node& node) {
  Iteration it;
  it.sizes = node.op.args[0].tensors[0].sizes;
  it.reduced.assign(it.sizes.size(), false);
  it.reduced[SoftmaxDim(row, node.op)] = true;
  ForEachUse(node, [&](const TensorRef& use) { it.uses.push_back(BroadcastStrides(use, it.sizes)); });
  for (const TensorRef& result : node.op.results) it.results.push_back(BroadcastStrides(result, it.sizes));
  return it;
}

Expr Input(OpEmitter& e) { return e.Arg(0, OpMathType(e.op().args[0].tensors[0].dtype)); }

// As aten::sub has it, so that a kernel that holds both computes it once.
Expr Shifted(Expr x, Expr max) { return Fma(max, -Like(x, 1), x); }

void EmitLogSoftmax(OpEmitter& e) {
  const Expr x = Input(e);
  const Expr max = ReduceMax(x);
  const Expr shifted = Shifted(x, max);
  const Expr log_sum = Log(Sum(Exp(shifted)));
  if (e.node().part == kWhole) return e.Result(0, Shifted(shifted, log_sum));
  e.Result(0, max);
  e.Result(1, log_sum);
}

// Two numbers for each row, then two subtractions at every element: what reads the result elsewhere may subtract, too, and read the input.
// Kernels that walk down columns have no good order to store in what they read from another node.
void ExpandLogSoftmax(const TraceOp& op, Expansion* out) {
  const TensorRef& x = op.args[0].tensors[0];
  const size_t dim = SoftmaxDim(*FindRow(op), op);
  if (x.strides[dim] != 1 || op.results[0].strides[dim] != 1) return out->pieces.push_back({op, kWhole});
  const ScalarType type = OpMathType(x.dtype);
  c10::DimVector rows = x.sizes;
  rows[dim] = 1;
  TraceOp statistics = op;
  statistics.results = {out->Temporary(type, rows), out->Temporary(type, rows)};
  TensorRef shifted = out->Temporary(type, x.sizes), result = op.results[0];
  shifted.strides = result.strides;
  if (result.dtype != type) {
    result = out->Temporary(type, x.sizes);
    result.strides = shifted.strides;
  }
  TraceOp shift = Difference(x, statistics.results[0], shifted), normalize = Difference(shifted, statistics.results[1], result);
  out->pieces.push_back({std::move(statistics), kStatistics});
  out->pieces.push_back({std::move(shift), Expansion::kWholeOp});
  out->pieces.push_back({std::move(normalize), Expansion::kWholeOp});
  if (result.dtype == op.results[0].dtype) return;
  out->pieces.push_back({Rounded(result, op.results[0]), Expansion::kWholeOp});
}

}  // namespace

void EmitSoftmax(OpEmitter& e) {
  const Expr x = Input(e);
  const Expr exp = Exp(x - ReduceMax(x));
  e.Result(0, exp / Sum(exp));
}

// A row of which everything is masked out is 0 everywhere.
void EmitSafeSoftmax(OpEmitter& e) {
  const Expr x = Input(e);
  const Expr max = ReduceMax(x);
  const Expr exp = Exp(x - max);
  e.Result(0, Select(max == Like(max, -std::numeric_limits<double>::infinity()), Like(x, 0), exp / Sum(exp)));
}

void EmitSoftmaxBackward(OpEmitter& e) {
  const Expr grad = Input(e), output = e.Arg(1, grad.type());
  e.Result(0, (grad - Sum(grad * output)) * output);
}

void EmitLogSoftmaxBackward(OpEmitter& e) {
  const Expr grad = Input(e), output = e.Arg(1, grad.type());
  e.Result(0, grad - Exp(output) * Sum(grad));
}

OpRow SoftmaxRow(int inputs, void (*emit)(OpEmitter&)) {
  OpRow row;
  row.reducing_parts = 1;
  row.dims_arg = inputs;
  row.emit = emit;
  row.accepts = &AcceptsSoftmax;
  row.iterate = &IterateSoftmax;
  return row;
}

OpRow LogSoftmaxRow() {
  OpRow row = SoftmaxRow(1, &EmitLogSoftmax);
  row.reducing_parts = 1 << kWhole | 1 << kStatistics;
  row.accepts = &AcceptsLogSoftmax;
  row.expand = &ExpandLogSoftmax;
  return row;
}

}  // namespace lazuli::codegen
