// The negative log likelihood loss and its gradient.
#include <utility>

#include "codegen/lower_index.h"
#include "codegen/lower_pieces.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

constexpr int64_t kNone = 0, kMean = 1;

// The arguments of the loss and its gradient, by position.
struct NllArgs {
  int self, target, weight, reduction, ignore_index;
};
constexpr NllArgs kForward{0, 1, 2, 3, 4};
constexpr NllArgs kBackward{1, 2, 3, 4, 5};

// Parts of the loss. Self is the targets' log-probabilities in the second, and absent in the third.
constexpr int kPick = 0;
constexpr int kLoss = 1;
constexpr int kTotal = 2;      // Of weights.
constexpr int kPickInRow = 3;  // What kPick does, going through all classes.

// The classes lie along dimension 1, or along the only one. The others are samples: one dimension, or in the 2d forms three.
size_t ClassDim(const TensorRef& self) { return self.sizes.size() == 1 ? 0 : 1; }

c10::DimVector SamplesOf(const c10::DimVector& dims, const TensorRef& self) {
  c10::DimVector samples = dims;
  samples.erase(samples.begin() + static_cast<std::ptrdiff_t>(ClassDim(self)));
  return samples;
}

// Whether there is a loss for each sample.
bool IsBySample(const TraceOp& op, const NllArgs& args) {
  return op.args[args.reduction].value.toInt() == kNone && op.args[args.self].tensors[0].sizes.size() > 1;
}

bool AcceptsNll(const TraceOp& op, const NllArgs& args, uint8_t types) {
  if (!IsTensor(op.args[args.self]) || !IsTensor(op.args[args.target])) return false;
  const TensorRef& self = op.args[args.self].tensors[0];
  for (size_t i = 0; i < op.args.size(); ++i) {
    const ScalarType wanted = static_cast<int>(i) == args.target ? ScalarType::Long : self.dtype;
    for (const TensorRef& ref : op.args[i].tensors) {
      if (ref.defined() && ref.dtype != wanted) return false;
    }
  }
  const bool plain = op.args[args.reduction].kind == TraceArg::Kind::kConst && op.args[args.ignore_index].kind == TraceArg::Kind::kConst;
  if (!plain || (TypeBit(self.dtype) & types) == 0 || self.sizes.empty()) return false;
  // ATen's 2d forms find out themselves that sizes do not fit.
  if (IsTensor(op.args[args.weight]) && op.args[args.weight].tensors[0].sizes != c10::DimVector{self.sizes[ClassDim(self)]}) return false;
  return op.args[args.target].tensors[0].sizes == SamplesOf(self.sizes, self);
}

// Expanded ops are to be looked at here alone.
bool AcceptsNllForward(const OpRow& row, const TraceOp& op) {
  if (!HasPlainTypes(op)) return false;
  // ATen adds up losses in their own type.
  return AcceptsNll(op, kForward, IsTensor(op.args[0]) && op.args[3].value.isInt() && IsBySample(op, kForward) ? kFloats : kWide);
}

bool AcceptsNllBackward(const OpRow& row, const TraceOp& op) {
  if (!AcceptsNll(op, kBackward, kFloats)) return false;
  const TensorRef& grad = op.args[0].tensors[0];
  if (IsBySample(op, kBackward) ? grad.sizes != op.args[kBackward.target].tensors[0].sizes : grad.numel() != 1) return false;
  return IsContiguous(op.results[0]);
}

// One sample's target out of `classes`: its class, 0 where it is ignored or no class at all, which is the op's error.
struct NllTarget {
  NllTarget(OpEmitter& e, const NllArgs& args, int64_t classes, bool check) {
    target = e.Arg(args.target, ScalarType::Long);
    counts = target != e.emitter().Size(ScalarType::Long, e.Int(args.ignore_index));
    const Expr valid = InRange(target, classes);
    if (check) e.Check(Not(counts) | valid);
    index = Select(counts & valid, target, Like(target, 0));
  }
  Expr target, counts, index;
};

// The class's weight.
Expr NllWeight(OpEmitter& e, const NllArgs& args, const NllTarget& target, ScalarType type) {
  return e.emitter().Cast(e.LoadAt(args.weight, Steps(target.index, RefOf(e.op(), args.weight).strides[0])), type);
}

// Of a tensor with a number for each sample, where classes are dimension `classes`.
c10::DimVector StridesBySample(const TensorRef& ref, std::ptrdiff_t classes) {
  c10::DimVector strides = StridesOf(ref.sizes, ref.strides);
  strides.insert(strides.begin() + classes, 0);
  return strides;
}

Iteration IteratePickInRow(const Node& node) {
  const TensorRef& self = RefOf(node.op, kForward.self);
  const auto classes = static_cast<std::ptrdiff_t>(ClassDim(self));
  Iteration it;
  it.sizes = self.sizes;
  it.reduced.assign(it.sizes.size(), false);
  it.reduced[classes] = true;
  it.uses = {StridesOf(it.sizes, self.strides), StridesBySample(RefOf(node.op, kForward.target), classes)};
  it.results.push_back(StridesBySample(node.op.results[0], classes));
  it.coordinates.push_back(Along(it.sizes, classes));
  return it;
}

// By samples.
Iteration IterateNllForward(const OpRow& row, const Node& node) {
  if (node.part == kPickInRow) return IteratePickInRow(node);
  Iteration it;
  const bool by_sample = node.part == kPick || (node.part == kLoss && node.op.args[kForward.reduction].value.toInt() == kNone);
  it.sizes = RefOf(node.op, kForward.target).sizes;
  it.reduced.assign(it.sizes.size(), !by_sample);
  const c10::DimVector nowhere(it.sizes.size(), 0);
  ForEachArgUse(node, [&](size_t arg, const TensorRef& use) {
    if (static_cast<int>(arg) == kForward.weight) return it.uses.push_back(nowhere);
    const bool of_classes = node.part == kPick && static_cast<int>(arg) == kForward.self;
    it.uses.push_back(StridesOf(it.sizes, of_classes ? SamplesOf(use.strides, use) : use.strides));
  });
  it.results.push_back(by_sample ? StridesOf(it.sizes, node.op.results[0].strides) : nowhere);
  return it;
}

void EmitPick(OpEmitter& e) {
  const TensorRef& self = RefOf(e.op(), kForward.self);
  const NllTarget target(e, kForward, self.sizes[ClassDim(self)], /*check=*/true);
  if (e.node().part == kPickInRow) {
    const Expr value = e.Arg(kForward.self, OpMathType(self.dtype));
    return e.Result(0, Sum(Select(e.Coordinate(0) == target.index, value, Like(value, 0))));
  }
  e.Result(0, e.LoadAt(kForward.self, Steps(target.index, self.strides[ClassDim(self)])));
}

void EmitNllForward(OpEmitter& e) {
  if (e.node().part == kPick || e.node().part == kPickInRow) return EmitPick(e);
  const ScalarType type = OpMathType(e.op().results[0].dtype);
  const bool weighted = !e.IsNone(kForward.weight);
  const NllTarget target(e, kForward, weighted ? RefOf(e.op(), kForward.weight).sizes[0] : 1, /*check=*/false);
  const Expr zero = e.emitter().Const(type, 0);
  const Expr weight = weighted ? NllWeight(e, kForward, target, type) : e.emitter().Const(type, 1);
  const auto total = [&] {
    if (weighted) return Sum(Select(target.counts, weight, zero));
    return e.emitter().Cast(Sum(e.emitter().Cast(target.counts, ScalarType::Long)), type);
  };
  if (e.node().part == kTotal) return e.Result(0, total());
  const Expr log_probability = e.Arg(kForward.self, type);
  const Expr loss = Select(target.counts, -(weighted ? log_probability * weight : log_probability), zero);
  const int64_t reduction = e.Int(kForward.reduction);
  if (reduction == kNone) return e.Result(0, loss);
  e.Result(0, reduction == kMean ? Sum(loss) / total() : Sum(loss));
}

// What is picked is a piece of its own: it may be computed anew from what it was made of, for the targets alone.
void ExpandNllForward(const TraceOp& op, Expansion* out) {
  TraceOp pick = op, loss = op, total = op;
  SetRef(&pick, kForward.weight, TensorRef());
  pick.results = {out->Temporary(RefOf(op, kForward.self).dtype, RefOf(op, kForward.target).sizes)};
  SetRef(&loss, kForward.self, pick.results[0]);
  loss.results = {op.results[0]};
  SetRef(&total, kForward.self, TensorRef());
  total.results = {op.results[1]};
  out->pieces.push_back({pick, kPick});
  if (op.results[0].defined()) out->pieces.push_back({std::move(loss), kLoss});
  if (!op.results[1].defined()) return;
  // Nothing is added up where there is a loss for each sample.
  if (IsBySample(op, kForward)) return out->pieces.push_back({NewZeros(pick.results[0], op.results[1]), Expansion::kWholeOp});
  out->pieces.push_back({std::move(total), kTotal});
}

Iteration IterateNllBackward(const OpRow& row, const Node& node) {
  Iteration it = Whole(node.op.results[0]);
  const TensorRef& self = node.op.args[kBackward.self].tensors[0];
  const auto classes = static_cast<std::ptrdiff_t>(ClassDim(self));
  ForEachArgUse(node, [&](size_t arg, const TensorRef& use) {
    const bool by_sample = static_cast<int>(arg) == kBackward.target || (arg == 0 && IsBySample(node.op, kBackward));
    c10::DimVector strides(it.sizes.size(), 0);
    if (static_cast<int>(arg) == kBackward.self) strides = BroadcastStrides(use, it.sizes);
    if (by_sample) strides = StridesBySample(use, classes);
    it.uses.push_back(std::move(strides));
  });
  it.coordinates.push_back(Along(it.sizes, classes));
  return it;
}

void EmitNllBackward(OpEmitter& e) {
  const ScalarType dtype = e.op().results[0].dtype;
  const ScalarType type = OpMathType(dtype);
  const auto round = [&](Expr value) { return e.emitter().Round(value, dtype); };
  // ATen does not look at targets that have a gradient each.
  const TensorRef& self = RefOf(e.op(), kBackward.self);
  const NllTarget target(e, kBackward, self.sizes[ClassDim(self)], /*check=*/!IsBySample(e.op(), kBackward));
  Expr grad = e.Arg(0, type);
  if (e.Int(4) == kMean) grad = round(grad / e.Arg(6, type));
  grad = -grad;
  if (!e.IsNone(3)) grad = round(NllWeight(e, kBackward, target, type) * grad);
  const Expr zero = Like(grad, 0);
  e.Result(0, Select(e.Coordinate(0) == target.target, Select(target.counts, grad, zero), zero));
}

}  // namespace

OpRow NllLossRow() {
  OpRow row;
  row.reducing_parts = 1 << kLoss | 1 << kTotal | 1 << kPickInRow;
  row.index_args = uint64_t{1} << kForward.target;
  row.indexed_args = uint64_t{1} << kForward.weight;
  row.accepts = &AcceptsNllForward;
  row.expand = &ExpandNllForward;
  row.iterate = &IterateNllForward;
  row.emit = &EmitNllForward;
  row.picked_arg = kForward.self;
  row.pick_in_row = kPickInRow;
  row.picked_dim = +[](const TraceOp& op) { return ClassDim(RefOf(op, kForward.self)); };
  return row;
}

OpRow NllLossBackwardRow() {
  OpRow row;
  row.index_args = uint64_t{1} << kBackward.target;
  row.unread_args = uint64_t{1} << kBackward.self;
  row.indexed_args = uint64_t{1} << kBackward.weight;
  row.accepts = &AcceptsNllBackward;
  row.iterate = &IterateNllBackward;
  row.emit = &EmitNllBackward;
  return row;
}

}  // namespace lazuli::codegen
