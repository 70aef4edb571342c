// Images enlarged or made smaller by linear interpolation along both dimensions, and their gradient: each point is read where it comes
// from, each of the gradient's adds up the points that it went to. Where a point comes from is as ATen has it
// (aten/src/ATen/native/UpSample.h: area_pixel_compute_scale, area_pixel_compute_source_index).
#include <algorithm>
#include <cmath>

#include "codegen/lower_index.h"
#include "codegen/lower_pieces.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

constexpr size_t kFirstDim = 2;         // Of the two of [N, C, H, W].
constexpr int64_t kMostPoints = 32;     // That one of the source may go to, along a dimension.
constexpr int64_t kMostSize = 1 << 20;  // Of a dimension: places are numbers of type float.

// Interpolation along one dimension, of which argument `scale` is the scale, if given.
struct Axis {
  Axis(OpEmitter& emitter, bool align, int scale, int64_t from_size, int64_t to_size)
      : e(emitter), align_corners(align), scale_arg(scale), from(from_size), to(to_size) {}

  // The type that places are computed in.
  ScalarType type() const { return OpMathType(e.op().results[0].dtype); }
  Expr Constant(double value) const { return e.emitter().Const(type(), value); }
  Expr Size(int64_t size) const { return e.emitter().Size(ScalarType::Long, size); }
  Expr Float(Expr value) const { return e.emitter().Cast(value, type()); }

  // How far a step along the result leads along the source.
  Expr Ratio() const {
    if (align_corners) return to == 1 ? Constant(0) : (Float(Size(from)) - 1) / (Float(Size(to)) - 1);
    const c10::IValue& scale = e.op().args[scale_arg].value;
    if (!scale.isNone() && scale.toDouble() > 0) return Constant(1 / scale.toDouble());
    return Float(Size(from)) / Float(Size(to));
  }

  OpEmitter& e;
  bool align_corners;
  int scale_arg;
  int64_t from, to;
};

// The two places that a point of the result lies between, and how much it has of each.
struct Between {
  Between(const Axis& axis, Expr at) {
    const Expr place = axis.Float(at), ratio = axis.Ratio();
    const Expr source = axis.align_corners ? ratio * place : Max(ratio * (place + 0.5) - 0.5, axis.Constant(0));
    const Expr last = axis.Size(axis.from) - axis.Size(1);
    first = Min(axis.e.emitter().Cast(Floor(source), ScalarType::Long), last);
    second = Min(first + axis.Size(1), last);
    of_second = Min(source - axis.Float(first), axis.Constant(1));
    of_first = 1.0 - of_second;
  }

  Expr first, second, of_first, of_second;
};

// Both ways: arguments from `align` on are align_corners and the scales.
bool AcceptsBilinear(const TraceOp& op, int align) {
  const TensorRef &self = RefOf(op, 0), &result = op.results[0];
  if (self.dtype != result.dtype || !HasType(kWideOnCpu, self.dtype, op) || Rank(self) != 4 || Rank(result) != 4) return false;
  for (int i = align; i < align + 3; ++i) {
    if (op.args[i].kind != TraceArg::Kind::kConst) return false;
  }
  return op.args[align].value.isBool() && self.numel() != 0 && result.numel() != 0 && IsDense(result);
}

// (self, output_size, align_corners, scales_h, scales_w)
bool AcceptsForward(const OpRow&, const TraceOp& op) { return AcceptsBilinear(op, 2); }

Iteration IterateForward(const OpRow&, const Node& node) {
  Iteration it = Whole(node.op.results[0]);
  const TensorRef& self = RefOf(node.op, 0);
  it.uses.push_back(StridesOf(self.sizes, self.strides));
  for (size_t dim : {kFirstDim, kFirstDim + 1}) {
    it.uses[0][dim] = 0;
    it.coordinates.push_back(Along(it.sizes, static_cast<int64_t>(dim)));
  }
  return it;
}

void EmitForward(OpEmitter& e) {
  const TensorRef& self = RefOf(e.op(), 0);
  const auto between = [&](size_t i) {
    const size_t dim = kFirstDim + i;
    const Axis axis(e, e.op().args[2].value.toBool(), static_cast<int>(3 + i), self.sizes[dim], e.op().results[0].sizes[dim]);
    return Between(axis, e.Coordinate(static_cast<int>(i)));
  };
  const Between rows = between(0), columns = between(1);
  const auto at = [&](Expr row, Expr column) {
    const Expr value = e.LoadAt(0, Steps(row, self.strides[kFirstDim]) + Steps(column, self.strides[kFirstDim + 1]));
    return e.emitter().Cast(value, OpMathType(value.type()));
  };
  const auto across = [&](Expr row) { return columns.of_first * at(row, columns.first) + columns.of_second * at(row, columns.second); };
  e.Result(0, rows.of_first * across(rows.first) + rows.of_second * across(rows.second));
}

// Arguments of the gradient: (grad_output, output_size, input_size, align_corners, scales_h, scales_w).
enum Gradient { kGrad, kOutputSize, kInputSize, kAlign, kScales };

// How far a step along the result leads along the source: Axis::Ratio of sizes that are known. 0: nowhere.
double RatioOf(const TraceOp& op, size_t i) {
  const double from = static_cast<double>(op.results[0].sizes[kFirstDim + i]), to = static_cast<double>(RefOf(op, 0).sizes[kFirstDim + i]);
  if (op.args[kAlign].value.toBool()) return to == 1 ? 0 : (from - 1) / (to - 1);
  const c10::IValue& scale = op.args[kScales + i].value;
  return !scale.isNone() && scale.toDouble() > 0 ? 1 / scale.toDouble() : from / to;
}

// Of the result's points, those that have anything of one of the source's are less than so many steps of the result apart.
int64_t PointsOf(const TraceOp& op, size_t i) { return static_cast<int64_t>(std::ceil(2 / RatioOf(op, i))); }

bool AcceptsBackward(const OpRow&, const TraceOp& op) {
  if (!AcceptsBilinear(op, kAlign)) return false;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t from = op.results[0].sizes[kFirstDim + i], to = RefOf(op, 0).sizes[kFirstDim + i];
    const double ratio = RatioOf(op, i);
    if (std::max(from, to) > kMostSize || ratio * static_cast<double>(kMostPoints) < 2) return false;
    // With a scale of its own, the last point may come from nearer than the end: all points after it go there, however many.
    if (ratio * (static_cast<double>(to) - 0.5) - 0.5 >= static_cast<double>(from)) return false;
  }
  return true;
}

// [N, C, H, W, points of the result along H, and along W].
Iteration IterateBackward(const OpRow&, const Node& node) {
  const TensorRef &grad = RefOf(node.op, 0), &result = node.op.results[0];
  Iteration it;
  it.sizes = result.sizes;
  it.sizes.append({PointsOf(node.op, 0), PointsOf(node.op, 1)});
  it.reduced = {false, false, false, false, true, true};
  c10::DimVector made = StridesOf(result.sizes, result.strides), read = StridesOf(grad.sizes, grad.strides);
  made.append({0, 0});
  read.append({0, 0});
  for (size_t i = 0; i < 4; ++i) {
    if (i < 2) read[kFirstDim + i] = 0;
    it.coordinates.push_back(Along(it.sizes, static_cast<int64_t>(kFirstDim + i)));
  }
  it.results = {std::move(made)};
  it.uses = {std::move(read)};
  return it;
}

void EmitBackward(OpEmitter& e) {
  const TensorRef& grad = RefOf(e.op(), 0);
  Expr offset = e.emitter().ConstInt(ScalarType::Long, 0), share;
  for (size_t i = 0; i < 2; ++i) {
    const size_t dim = kFirstDim + i;
    const Axis axis(e, e.op().args[kAlign].value.toBool(), static_cast<int>(kScales + i), e.op().results[0].sizes[dim], grad.sizes[dim]);
    const Expr at = e.Coordinate(static_cast<int>(i)), place = axis.Float(at), zero = axis.Size(0);
    // The first point of the result that is less than 1 before `at`.
    const Expr before = axis.align_corners ? (place - 1) / axis.Ratio() : (place - 0.5) / axis.Ratio() - 0.5;
    const Expr first = Max(e.emitter().Cast(Floor(before), ScalarType::Long) + axis.Size(1), zero);
    const Expr point = first + e.Coordinate(static_cast<int>(2 + i));
    const Between between(axis, point);
    const Expr none = axis.Constant(0);
    const Expr of_point = Select(between.first == at, between.of_first, none) + Select(between.second == at, between.of_second, none);
    const Expr of_inside = Select(point < axis.Size(axis.to), of_point, none);
    share = i == 0 ? of_inside : share * of_inside;
    offset = offset + Steps(Min(point, axis.Size(axis.to) - axis.Size(1)), grad.strides[dim]);
  }
  const Expr value = e.LoadAt(0, offset), number = e.emitter().Cast(value, OpMathType(value.type()));
  e.Result(0, Sum(Select(share == Like(share, 0), Like(share, 0), share * number)));
}

}  // namespace

OpRow UpsampleBilinearRow() {
  OpRow row;
  row.accepts = &AcceptsForward;
  row.iterate = &IterateForward;
  row.emit = &EmitForward;
  row.indexed_args = 1;
  row.only_channels_last = true;
  return row;
}

OpRow UpsampleBilinearBackwardRow() {
  OpRow row;
  row.accepts = &AcceptsBackward;
  row.only_known_sizes = true;
  row.iterate = &IterateBackward;
  row.emit = &EmitBackward;
  row.indexed_args = 1;
  row.reducing_parts = 1;
  row.only_channels_last = true;
  return row;
}

}  // namespace lazuli::codegen
