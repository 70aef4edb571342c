// Images whose borders are reflected, or that are made larger by repeating pixels: each point is read where it comes from, in the kernels
// that use it.
#include <vector>

#include "codegen/lower_moved.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

// The last two dimensions of [N, C, H, W] or [C, H, W].
std::vector<int64_t> ImageDims(const TraceOp& op) {
  const int64_t rank = Rank(op.results[0]);
  return {rank - 2, rank - 1};
}

bool AcceptsImage(const OpRow&, const TraceOp& op) {
  if (!IsTensor(op.args[0]) || op.args[1].kind != TraceArg::Kind::kConst || !op.args[1].value.isIntList()) return false;
  const TensorRef &self = op.args[0].tensors[0], &result = op.results[0];
  return self.dtype == result.dtype && TypeBit(self.dtype) != 0 && Rank(self) == Rank(result) && Rank(self) >= 3 && self.numel() != 0 &&
         result.numel() != 0 && IsDense(result);
}

Iteration IterateImage(const OpRow&, const Node& node) { return IterateMoved(node, ImageDims(node.op)); }

Expr Number(OpEmitter& e, int64_t value) { return e.emitter().Size(ScalarType::Long, value); }

// Padding of the last dimension comes first: what comes before dimension `i` of ImageDims.
int64_t PadBefore(const OpEmitter& e, size_t i) { return e.op().args[1].value.toIntVector()[i == 1 ? 0 : 2]; }

// On the CPU ATen copies whole rows, which is faster.
bool AcceptsReflectionPad(const OpRow& row, const TraceOp& op) {
  return op.device.is_cuda() && AcceptsImage(row, op) && op.args[1].value.toIntVector().size() == 4;
}

// Before the first and after the last element come those beside it, backward.
void EmitReflectionPad(OpEmitter& e) {
  EmitMoved(e, ImageDims(e.op()), [&](size_t i, Expr at, int64_t size) {
    const Expr place = at - Number(e, PadBefore(e, i)), last = Number(e, size) - Number(e, 1), zero = Number(e, 0);
    const Expr inside = Select(place < zero, zero - place, place);
    return Select(last < inside, last + last - inside, inside);
  });
}

// How far one element of the result, along dimension `i` of ImageDims, is on in the source: 1 over the scale that was given, or the ratio
// of the sizes. As ATen's compute_scales_value (aten/src/ATen/native/UpSample.h) has it in float.
Expr SourceStep(OpEmitter& e, size_t i, int64_t size) {
  Emitter& emitter = e.emitter();
  const TraceArg& scale = e.op().args[2 + i];
  const int64_t to = e.op().results[0].sizes[ImageDims(e.op())[i]];
  const Expr ratio = emitter.Cast(Number(e, size), ScalarType::Float) / emitter.Cast(Number(e, to), ScalarType::Float);
  if (scale.kind == TraceArg::Kind::kConst && scale.value.isNone()) return ratio;
  const Expr given = e.Arg(static_cast<int>(2 + i), ScalarType::Double);
  const Expr step = emitter.Cast(emitter.Const(ScalarType::Double, 1) / given, ScalarType::Float);
  return Select(emitter.Const(ScalarType::Double, 0) < given, step, ratio);
}

bool AcceptsUpsampleNearest(const OpRow& row, const TraceOp& op) { return AcceptsImage(row, op) && Rank(op.results[0]) == 4; }

// The element before or at the point's place in the source.
void EmitUpsampleNearest(OpEmitter& e) {
  EmitMoved(e, ImageDims(e.op()), [&](size_t i, Expr at, int64_t size) {
    Emitter& emitter = e.emitter();
    const Expr place = emitter.Cast(at, ScalarType::Float) * SourceStep(e, i, size);
    return Min(emitter.Cast(Floor(place), ScalarType::Long), Number(e, size) - Number(e, 1));
  });
}

OpRow ImageRow(bool (*accepts)(const OpRow&, const TraceOp&), void (*emit)(OpEmitter&)) {
  OpRow row;
  row.accepts = accepts;
  row.iterate = &IterateImage;
  row.emit = emit;
  row.indexed_args = 1;
  return row;
}

}  // namespace

OpRow ReflectionPadRow() { return ImageRow(&AcceptsReflectionPad, &EmitReflectionPad); }
OpRow UpsampleNearestRow() { return ImageRow(&AcceptsUpsampleNearest, &EmitUpsampleNearest); }

}  // namespace lazuli::codegen
