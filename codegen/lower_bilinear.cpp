// Images enlarged or made smaller by linear interpolation along both dimensions, and their gradient: each point is read where it comes
// from, each of the gradient's adds up the points that it went to. Where a point comes from is as ATen has it
// (aten/src/ATen/native/UpSample.h: area_pixel_compute_scale, area_pixel_compute_source_index).
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "codegen/lower_moved.h"
#include "codegen/lower_pieces.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

constexpr size_t kFirstDim = 2;         // Of the two of [N, C, H, W].
constexpr int64_t kMostPoints = 64;     // That one of the source may go to.
constexpr int64_t kMostSize = 1 << 20;  // Of a dimension of a gradient: places are numbers of type float.

// Of arguments from `align` on, which are align_corners and the scales along both dimensions: the one along dimension `i`, if it counts.
std::optional<double> GivenScale(const TraceOp& op, int align, size_t i) {
  const c10::IValue& scale = op.args[align + 1 + static_cast<int>(i)].value;
  if (op.args[align].value.toBool() || scale.isNone() || scale.toDouble() <= 0) return std::nullopt;
  return scale.toDouble();
}

// Interpolation along dimension `i` of the two.
struct Axis {
  Axis(OpEmitter& emitter, const TensorRef& source, const TensorRef& result, int align, size_t i)
      : e(emitter),
        align_corners(e.op().args[align].value.toBool()),
        scale(GivenScale(e.op(), align, i)),
        from(source.sizes[kFirstDim + i]),
        to(result.sizes[kFirstDim + i]),
        other_from(source.sizes[kFirstDim + 1 - i]),
        other_to(result.sizes[kFirstDim + 1 - i]) {
    const auto& symbols = e.emitter().kernel().symbols;
    const auto is_short = [&](int64_t size) { return !symbols.IsSymbolic(size) && size <= kMostSize; };
    index = is_short(from) && is_short(to) ? ScalarType::Int : ScalarType::Long;
  }

  // The type that places are computed in.
  ScalarType type() const { return OpMathType(e.op().results[0].dtype); }
  Expr Constant(double value) const { return e.emitter().Const(type(), value); }
  Expr Size(int64_t size) const { return e.emitter().Size(index, size); }
  Expr Index(Expr value) const { return e.emitter().Cast(value, index); }
  Expr Float(Expr value) const { return e.emitter().Cast(value, type()); }

  // How far a step along the result leads along the source.
  Expr Ratio() const {
    if (align_corners) return to == 1 ? Constant(0) : (Float(Size(from)) - 1) / (Float(Size(to)) - 1);
    return scale.has_value() ? Select(Copies(), Constant(1), Constant(1 / *scale)) : Float(Size(from)) / Float(Size(to));
  }

  // Whether the scale does not count, because ATen copies: on a CPU what is as large as before along this dimension, on a GPU along both.
  Expr Copies() const {
    const Expr same = Size(from) == Size(to);
    return e.op().device.is_cpu() ? same : same & (Size(other_from) == Size(other_to));
  }

  OpEmitter& e;
  bool align_corners;
  std::optional<double> scale;
  int64_t from, to, other_from, other_to;
  ScalarType index;  // The type that whole places are counted in.
};

// The two places that a point of the result lies between, and how much it has of each.
struct Between {
  Between(const Axis& axis, Expr at) {
    const Expr place = axis.Float(at), ratio = axis.Ratio();
    const Expr source = axis.align_corners ? ratio * place : Max(ratio * (place + 0.5) - 0.5, axis.Constant(0));
    const Expr last = axis.Size(axis.from) - axis.Size(1);
    first = Min(axis.Index(Floor(Min(source, axis.Float(last)))), last);
    second = Min(first + axis.Size(1), last);
    of_second = Min(source - axis.Float(first), axis.Constant(1));
    of_first = 1.0 - of_second;
  }

  Expr first, second, of_first, of_second;
};

// What argument 0 has there, in the type that it is computed in.
Expr PixelAt(OpEmitter& e, Expr row, Expr column) {
  const TensorRef& source = RefOf(e.op(), 0);
  const Expr value = e.LoadAt(0, Steps(row, source.strides[kFirstDim]) + Steps(column, source.strides[kFirstDim + 1]));
  return e.emitter().Cast(value, OpMathType(source.dtype));
}

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

// Both ways: over the result, of which each point is read from several.
Iteration IterateBilinear(const OpRow&, const Node& node) { return IterateMoved(node, {kFirstDim, kFirstDim + 1}); }

void EmitForward(OpEmitter& e) {
  const auto between = [&](size_t i) {
    const Axis axis(e, RefOf(e.op(), 0), e.op().results[0], /*align=*/2, i);
    return Between(axis, axis.Index(e.Coordinate(static_cast<int>(i))));
  };
  const Between rows = between(0), columns = between(1);
  const auto across = [&](Expr row) {
    return columns.of_first * PixelAt(e, row, columns.first) + columns.of_second * PixelAt(e, row, columns.second);
  };
  e.Result(0, rows.of_first * across(rows.first) + rows.of_second * across(rows.second));
}

// Arguments of the gradient: (grad_output, output_size, input_size, align_corners, scales_h, scales_w).
constexpr int kAlign = 3;

// How far a step along the result leads along the source: Axis::Ratio of sizes that are known. 0: nowhere.
double RatioOf(const TraceOp& op, size_t i) {
  const TensorRef &source = op.results[0], &result = RefOf(op, 0);
  const double from = static_cast<double>(source.sizes[kFirstDim + i]), to = static_cast<double>(result.sizes[kFirstDim + i]);
  if (op.args[kAlign].value.toBool()) return to == 1 ? 0 : (from - 1) / (to - 1);
  const std::optional<double> scale = GivenScale(op, kAlign, i);
  const bool copies = op.device.is_cpu() ? from == to : source.sizes == result.sizes;
  return scale.has_value() && !copies ? 1 / *scale : from / to;
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
  return PointsOf(op, 0) * PointsOf(op, 1) <= kMostPoints;
}

// A point of the gradient, along one dimension, and how much of it comes from the place that is asked for. Where that is nothing, it may be
// any point.
struct Share {
  Expr point, share, is_any;
};

std::vector<Share> SharesOf(OpEmitter& e, size_t i) {
  const Axis axis(e, e.op().results[0], RefOf(e.op(), 0), kAlign, i);
  const Expr at = axis.Index(e.Coordinate(static_cast<int>(i))), place = axis.Float(at), none = axis.Constant(0);
  // Its first point is the first that is less than 1 before it in the source.
  const Expr before = axis.align_corners ? (place - 1) / axis.Ratio() : (place - 0.5) / axis.Ratio() - 0.5;
  const Expr first = Max(axis.Index(Floor(before)) + axis.Size(1), axis.Size(0));
  std::vector<Share> shares;
  for (int64_t k = 0; k < PointsOf(e.op(), i); ++k) {
    const Expr point = first + axis.Size(k);
    const Between between(axis, point);
    const Expr of_first = Select(between.first == at, between.of_first, none);
    const Expr share = Select(point < axis.Size(axis.to), of_first + Select(between.second == at, between.of_second, none), none);
    shares.push_back({Min(point, axis.Size(axis.to) - axis.Size(1)), share, share == none});
  }
  return shares;
}

void EmitBackward(OpEmitter& e) {
  const std::vector<Share> rows = SharesOf(e, 0), columns = SharesOf(e, 1);
  const Expr none = Like(rows[0].share, 0);
  Expr sum = none;
  for (const Share& row : rows) {
    Expr across = none;
    for (const Share& column : columns) {
      across = across + column.share * Select(column.is_any, none, PixelAt(e, row.point, column.point));
    }
    sum = sum + Select(row.is_any, none, row.share * across);
  }
  e.Result(0, sum);
}

OpRow BilinearRow(bool (*accepts)(const OpRow&, const TraceOp&), void (*emit)(OpEmitter&)) {
  OpRow row;
  row.accepts = accepts;
  row.iterate = &IterateBilinear;
  row.emit = emit;
  row.indexed_args = 1;
  row.only_channels_last = true;
  return row;
}

}  // namespace

OpRow UpsampleBilinearRow() { return BilinearRow(&AcceptsForward, &EmitForward); }

OpRow UpsampleBilinearBackwardRow() {
  OpRow row = BilinearRow(&AcceptsBackward, &EmitBackward);
  row.only_known_sizes = true;
  return row;
}

}  // namespace lazuli::codegen
