// Losses that compare two tensors element by element, then add up or average what comes out.
#include <algorithm>

#include "codegen/lower_rows.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

constexpr int64_t kNone = 0, kMean = 1;  // at::Reduction

// ATen looks at what is in [0, 1] with at most this for a logarithm, and at least that for a divisor.
constexpr double kLeastLog = -100, kLeastVariance = 1e-12;

bool AcceptsLoss(const OpRow& row, const TraceOp& op) {
  const auto is_tensor = [&](size_t arg) { return op.args[arg].kind == TraceArg::Kind::kTensor; };
  return is_tensor(0) && is_tensor(1) && SameFloatTypes(op) && (TypeBit(op.results[0].dtype) & kWide) != 0 &&
         op.args[0].tensors[0].sizes == op.args[1].tensors[0].sizes;
}

// ATen computes these by operators on tensors of any floating type.
bool AcceptsWeightedLoss(const OpRow& row, const TraceOp& op) {
  const auto is_tensor = [&](size_t arg) { return op.args[arg].kind == TraceArg::Kind::kTensor; };
  if (!is_tensor(0) || !is_tensor(1) || !SameFloatTypes(op)) return false;
  const c10::DimVector& sizes = op.args[0].tensors[0].sizes;
  if (op.args[1].tensors[0].sizes != sizes) return false;
  for (const size_t weight : {2, 3}) {
    if (!is_tensor(weight) || !op.args[weight].tensors[0].defined()) continue;
    if (!BroadcastsTo(op.args[weight].tensors[0], sizes)) return false;
  }
  return true;
}

Iteration IterateLoss(const OpRow& row, const Node& node) {
  Iteration it;
  it.sizes = node.op.args[0].tensors[0].sizes;
  const bool reduces = node.op.args[row.reduction_arg].value.toInt() != kNone;
  it.reduced.assign(it.sizes.size(), reduces);
  ForEachUse(node, [&](const TensorRef& use) { it.uses.push_back(BroadcastStrides(use, it.sizes)); });
  it.results.push_back(reduces ? c10::DimVector(it.sizes.size(), 0) : BroadcastStrides(node.op.results[0], it.sizes));
  return it;
}

// What a gradient is multiplied by: `number`, or that over the number of elements.
Expr Norm(const Operands& x, int reduction_arg, double number = 1) {
  if (x.emitter().Int(reduction_arg) != kMean) return x.number(number);
  Emitter& emitter = x.emitter().emitter();
  return emitter.Cast(number / emitter.Size(ScalarType::Double, x.emitter().op().args[1].tensors[0].numel()), x.type());
}

}  // namespace

void GiveLoss(OpEmitter& e, Expr value) {
  const int64_t reduction = e.Int(e.node().row->reduction_arg);
  if (reduction == kNone) return e.Result(0, value);
  const Expr count = e.emitter().Size(value.type(), e.op().args[0].tensors[0].numel());
  e.Result(0, reduction == kMean ? Sum(value) / count : Sum(value));
}

OpRow LossRow(int reduction_arg, void (*emit)(OpEmitter&)) {
  OpRow row = PointwiseRow(TypeRule::kPromote, 0b11, kWide, emit);
  row.reducing_parts = 1;
  row.reduction_arg = reduction_arg;
  row.accepts = &AcceptsLoss;
  row.iterate = &IterateLoss;
  return row;
}

OpRow WeightedLossRow(int reduction_arg, void (*emit)(OpEmitter&)) {
  OpRow row = LossRow(reduction_arg, emit);
  row.types = kFloats;
  row.accepts = &AcceptsWeightedLoss;
  return row;
}

OpRow ProbabilityLossRow(int reduction_arg, void (*emit)(OpEmitter&)) {
  OpRow row = LossRow(reduction_arg, emit);
  row.index_args = 1;
  return row;
}

Expr MseBackward(const Operands& x) { return x.step(x.step(Norm(x, 3, 2)) * x.step(x(1) - x(2))) * x(0); }

Expr SmoothL1(const Operands& x) {
  const Expr distance = Abs(x(0) - x(1)), beta = x(3);
  return Select(distance < beta, 0.5 * distance * distance / beta, distance - 0.5 * beta);
}

// The CPU's kernels multiply by the output's gradient last.
Expr SmoothL1Backward(const Operands& x) {
  const Expr difference = x(1) - x(2), beta = x(4), norm = Norm(x, 3), grad = x(0);
  const Expr inside = x.on_cpu() ? difference * norm / beta * grad : norm * difference * grad / beta;
  return Select(difference <= -beta, -norm * grad, Select(difference >= beta, norm * grad, inside));
}

Expr Huber(const Operands& x) {
  const Expr distance = Abs(x(0) - x(1)), delta = x(3);
  return Select(distance < delta, 0.5 * distance * distance, delta * (distance - 0.5 * delta));
}

Expr HuberBackward(const Operands& x) {
  const Expr difference = x(1) - x(2), delta = x(4), norm = Norm(x, 3), grad = x(0);
  const Expr outside = x.on_cpu() ? norm * delta * grad : norm * grad * delta;
  return Select(difference <= -delta, -outside, Select(difference >= delta, outside, norm * difference * grad));
}

Expr BinaryCrossEntropy(const Operands& x) {
  const Expr p = x(0), target = x(1), least = Like(p, kLeastLog);
  const auto is_share = [](Expr value) { return (value >= Like(value, 0)) & (value <= Like(value, 1)); };
  x.emitter().Check(is_share(p) & is_share(target));
  const Expr loss = (target - 1.0) * Max(Log1p(-p), least) - target * Max(Log(p), least);
  return x.emitter().IsNone(2) ? loss : loss * x.wide(2);
}

// By the operators that ATen calls for it, each of which rounds.
Expr BinaryCrossEntropyWithLogits(const Operands& x) {
  const auto step = [&](Expr value) { return x.emitter().emitter().Round(value, x.emitter().op().args[0].tensors[0].dtype); };
  const Expr logits = x(0), target = x(1);
  Expr log_sigmoid = step(LogSigmoid(logits));
  if (!x.emitter().IsNone(3)) log_sigmoid = step(log_sigmoid * step(step(step(x(3) - 1.0) * target) + 1.0));
  const Expr loss = step(step(step(1.0 - target) * logits) - log_sigmoid);
  return x.emitter().IsNone(2) ? loss : step(loss * x(2));
}

Expr BinaryCrossEntropyBackward(const Operands& x) {
  const Expr p = x(1), variance = (1.0 - p) * p;
  Expr grad = x(0) * (p - x(2)) / Max(variance, Like(p, kLeastVariance));
  if (!x.emitter().IsNone(3)) grad = grad * x.wide(3);
  if (x.emitter().Int(4) != kMean) return grad;
  return grad / x.emitter().emitter().Size(x.type(), x.emitter().op().args[1].tensors[0].numel());
}

}  // namespace lazuli::codegen
