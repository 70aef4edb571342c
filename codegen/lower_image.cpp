// Images whose borders are reflected or repeated, or that are made larger by repeating pixels: each point is read where it comes from, in
// the kernels that use it. The gradient where each pixel is repeated equally often is a sum of blocks.
#include <cmath>
#include <vector>

#include "codegen/lower_moved.h"
#include "codegen/lower_pieces.h"

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

// Paddings list the last dimension first: so many dimensions, the last ones.
std::vector<int64_t> PaddedDims(const TraceOp& op) {
  const auto padded = static_cast<int64_t>(op.args[1].value.toIntVector().size()) / 2, rank = Rank(op.results[0]);
  std::vector<int64_t> dims;
  for (int64_t dim = rank - padded; dim < rank; ++dim) dims.push_back(dim);
  return dims;
}

// What comes before dimension `i` of PaddedDims.
int64_t PadBefore(const OpEmitter& e, size_t i) {
  const std::vector<int64_t> pads = e.op().args[1].value.toIntVector();
  return pads[pads.size() - 2 - 2 * i];
}

// On the CPU ATen copies whole rows, which is faster.
bool AcceptsPad(const OpRow&, const TraceOp& op) {
  if (!op.device.is_cuda() || !IsTensor(op.args[0]) || op.args[1].kind != TraceArg::Kind::kConst || !op.args[1].value.isIntList())
    return false;
  const TensorRef &self = op.args[0].tensors[0], &result = op.results[0];
  const auto pads = static_cast<int64_t>(op.args[1].value.toIntVector().size());
  return self.dtype == result.dtype && TypeBit(self.dtype) != 0 && Rank(self) == Rank(result) && pads % 2 == 0 && pads / 2 < Rank(self) &&
         self.numel() != 0 && result.numel() != 0 && IsDense(result);
}

Iteration IteratePad(const OpRow&, const Node& node) { return IterateMoved(node, PaddedDims(node.op)); }

// Before the first and after the last element come those beside it, backward.
void EmitReflectionPad(OpEmitter& e) {
  EmitMoved(e, PaddedDims(e.op()), [&](size_t i, Expr at, int64_t size) {
    const Expr place = at - Number(e, PadBefore(e, i)), last = Number(e, size) - Number(e, 1), zero = Number(e, 0);
    const Expr inside = Select(place < zero, zero - place, place);
    return Select(last < inside, last + last - inside, inside);
  });
}

// Before the first and after the last element comes that itself.
void EmitReplicationPad(OpEmitter& e) {
  EmitMoved(e, PaddedDims(e.op()), [&](size_t i, Expr at, int64_t size) {
    return Max(Min(at - Number(e, PadBefore(e, i)), Number(e, size) - Number(e, 1)), Number(e, 0));
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

// Of a gradient of repeated pixels.
constexpr int kScales = 3;                // The first of its arguments that is one.
constexpr int64_t kMostRepeated = 65536;  // Elements of a row or column.

// How often each pixel is repeated along dimension `i` of ImageDims; 0: not equally often. ATen multiplies a place by the inverse of the
// scale, in float, and takes the whole part (aten/src/ATen/native/UpSample.h).
int64_t Repeats(const TraceOp& op, size_t i) {
  const int64_t to = RefOf(op, 0).sizes[2 + i], from = op.results[0].sizes[2 + i];
  const TraceArg& scale = op.args[kScales + i];
  if (scale.kind != TraceArg::Kind::kConst || to % from != 0 || to > kMostRepeated) return 0;
  const int64_t repeats = to / from;
  if (!scale.value.isNone() && scale.value.toDouble() != static_cast<double>(repeats)) return 0;
  const float step = 1 / static_cast<float>(repeats);
  for (int64_t at = 0; at < to; ++at) {
    if (static_cast<int64_t>(std::floor(static_cast<float>(at) * step)) != at / repeats) return 0;
  }
  return repeats;
}

bool AcceptsUpsampleNearestBackward(const OpRow&, const TraceOp& op) {
  const TensorRef &gradient = RefOf(op, 0), &result = op.results[0];
  if (gradient.dtype != result.dtype || TypeBit(result.dtype) == 0 || Rank(gradient) != 4 || Rank(result) != 4) return false;
  return result.numel() != 0 && IsDense(result) && Repeats(op, 0) != 0 && Repeats(op, 1) != 0;
}

// [N, C, H, rows, W, columns], summed over rows and columns of each block.
void ExpandUpsampleNearestBackward(const TraceOp& op, Expansion* out) {
  TensorRef blocks = RefOf(op, 0);
  const c10::DimVector sizes = blocks.sizes, strides = blocks.strides;
  blocks.sizes = {sizes[0], sizes[1]};
  blocks.strides = {strides[0], strides[1]};
  for (size_t i = 0; i < 2; ++i) {
    const int64_t repeats = Repeats(op, i);
    blocks.sizes.append({sizes[2 + i] / repeats, repeats});
    blocks.strides.append({strides[2 + i] * repeats, strides[2 + i]});
  }
  Expansion::Piece sum;
  sum.op = CallOf("aten::sum.dim_IntList", op.results[0]);
  SetRef(&sum.op, 0, blocks);
  sum.op.args[1].value = std::vector<int64_t>{3, 5};
  sum.op.args[2].value = false;
  out->pieces.push_back(std::move(sum));
}

OpRow PadRow(void (*emit)(OpEmitter&)) {
  OpRow row = MovedRow(&AcceptsPad, &IteratePad, emit);
  row.moves = true;
  return row;
}

}  // namespace

OpRow ReflectionPadRow() { return PadRow(&EmitReflectionPad); }
OpRow ReplicationPadRow() { return PadRow(&EmitReplicationPad); }
OpRow UpsampleNearestBackwardRow() {
  OpRow row;
  row.accepts = &AcceptsUpsampleNearestBackward;
  row.expand = &ExpandUpsampleNearestBackward;
  row.only_known_sizes = true;
  return row;
}
OpRow UpsampleNearestRow() { return MovedRow(&AcceptsUpsampleNearest, &IterateImage, &EmitUpsampleNearest); }

}  // namespace lazuli::codegen
