// Results that are put together from windows: cat, stack, padding, roll, flip, the gradients of select and slice. Each dimension of the
// result falls into segments that walk the source forward or backward, or hold one number; each window is a segment in every dimension.
// Windows are written by updates, so that what makes an operand can write it where it belongs. GPUs read what is rolled and flipped where
// each point comes from instead, in the kernels that use it.
#include <algorithm>
#include <utility>
#include <vector>

#include "codegen/lower_moved.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;
using Terms = std::vector<int64_t>;  // Of a sum.

constexpr size_t kMaxOperands = 1024;
constexpr size_t kMaxSmallOperands = 16;  // Of fewer elements than kSmall: kernels that make many of them are run together instead.
constexpr int64_t kSmall = 64;
constexpr int kMaxWindows = 9;
// The part of a row that is the result before anything is written.
constexpr int kEmpty = 1;
// The part that is all of the result, each point read where it comes from.
constexpr int kMoved = 2;

bool IsPlain(const TensorRef& ref) { return ref.defined() && TypeBit(ref.dtype) != 0; }

bool IsPlainResult(const TraceOp& op) {
  const TensorRef& result = op.results[0];
  return IsPlain(result) && result.numel() != 0 && IsDense(result);
}

bool IsIntList(const TraceArg& arg) { return arg.kind == TraceArg::Kind::kConst && arg.value.isIntList(); }

void AddEmpty(const TraceOp& op, Expansion* out) {
  Expansion::Piece piece;
  piece.op = op;
  for (TraceArg& arg : piece.op.args) {
    if (arg.kind != TraceArg::Kind::kConst) arg = TraceArg();
  }
  piece.part = kEmpty;
  out->pieces.push_back(std::move(piece));
}

void AddWindow(const TensorRef& window, const TensorRef& source, Expansion* out) {
  Expansion::Piece piece;
  for (const TensorRef& ref : {window, source}) {
    TraceArg arg;
    arg.kind = TraceArg::Kind::kTensor;
    arg.tensors = {ref};
    arg.tensors[0].wrapped_number = false;
    piece.op.args.push_back(std::move(arg));
  }
  out->pieces.push_back(std::move(piece));
}

bool AcceptsCat(const OpRow&, const TraceOp& op) {
  const std::vector<TensorRef>& operands = op.args[0].tensors;
  if (!IsPlainResult(op) || operands.empty() || operands.size() > kMaxOperands || DimArg(op, 1, op.results[0]) < 0) return false;
  const auto is_small = [](const TensorRef& operand) { return operand.numel() < kSmall; };
  if (operands.size() > kMaxSmallOperands && std::any_of(operands.begin(), operands.end(), is_small)) return false;
  return std::all_of(operands.begin(), operands.end(), IsPlain);
}

void ExpandCat(const TraceOp& op, Expansion* out) {
  AddEmpty(op, out);
  const int64_t dim = DimArg(op, 1, op.results[0]);
  Terms before;
  for (const TensorRef& operand : op.args[0].tensors) {
    if (operand.numel() == 0) continue;
    TensorRef window = op.results[0];
    window.sizes = operand.sizes;
    window.SetOffset(out->Offset(-1, before));
    AddWindow(window, operand, out);
    before.push_back(operand.sizes[dim] * window.strides[dim]);
  }
}

void ExpandStack(const TraceOp& op, Expansion* out) {
  AddEmpty(op, out);
  const int64_t dim = DimArg(op, 1, op.results[0]);
  int64_t place = 0;
  for (const TensorRef& operand : op.args[0].tensors) {
    TensorRef window = op.results[0];
    window.SetOffset(out->Offset(-1, {place++ * window.strides[dim]}));
    window.sizes.erase(window.sizes.begin() + dim);
    window.strides.erase(window.strides.begin() + dim);
    AddWindow(window, operand, out);
  }
}

// Part of one dimension of a result.
struct Segment {
  Terms begin;
  int64_t size = 0;
  Terms source;      // Where its first element comes from.
  int64_t step = 1;  // How far on the next one lies: 1 or -1.
  bool filled = false;
  int64_t every = 1;  // It takes one place of the result out of so many.
};
using Segments = std::vector<std::vector<Segment>>;

// `size` elements of the source between filled ones.
std::vector<Segment> Padded(int64_t before, int64_t size, int64_t after) {
  return {{{}, before, {}, 1, true}, {{before}, size, {}, 1, false}, {{before, size}, after, {}, 1, true}};
}

// All of self, everywhere.
Segments Whole(const TraceOp& op) {
  Segments segments;
  for (const int64_t size : op.args[0].tensors[0].sizes) segments.push_back({{{}, size, {}, 1, false}});
  return segments;
}

class WindowWriter {
 public:
  // Argument `number` of `op` fills what is filled.
  WindowWriter(const TraceOp& op, Segments segments, int number, Expansion* out)
      : op_(op), segments_(std::move(segments)), number_(number), out_(out) {}

  void Write() {
    const TensorRef& source = op_.args[0].tensors[0];
    const auto whole = [](const std::vector<Segment>& segments) { return segments.size() == 1 && !segments[0].filled; };
    whole_ = std::all_of(segments_.begin(), segments_.end(), whole);
    if (!whole_) AddEmpty(op_, out_);
    Write(0, op_.results[0], {}, source, {});
  }

 private:
  void Write(size_t dim, const TensorRef& window, const Terms& to, const TensorRef& source, const Terms& from) {
    if (dim == segments_.size()) return WriteFrom(window, to, source, from);
    for (const Segment& segment : segments_[dim]) {
      if (segment.size == 0) continue;
      TensorRef part = window, origin = source;
      Terms next_to = to, next_from = from;
      part.sizes[dim] = segment.size;
      part.strides[dim] *= segment.every;
      for (const int64_t term : segment.begin) next_to.push_back(term * window.strides[dim]);
      if (segment.filled) {
        part.SetOffset(out_->Offset(-1, next_to));
        AddWindow(part, Number(part.sizes), out_);
        continue;
      }
      origin.sizes[dim] = segment.size;
      origin.strides[dim] *= segment.step;
      for (const int64_t term : segment.source) next_from.push_back(term * source.strides[dim]);
      Write(dim + 1, part, next_to, origin, next_from);
    }
  }

  void WriteFrom(TensorRef window, const Terms& to, TensorRef source, const Terms& from) {
    window.SetOffset(out_->Offset(-1, to));
    source.SetOffset(out_->Offset(source.offset_slot, from));
    if (!whole_) return AddWindow(window, source, out_);
    Expansion::Piece copy;
    copy.op.info = FindOpInfo("aten::clone");
    copy.op.args.resize(2);
    copy.op.args[0].kind = TraceArg::Kind::kTensor;
    copy.op.args[0].tensors = {std::move(source)};
    copy.op.results = op_.results;
    out_->pieces.push_back(std::move(copy));
  }

  TensorRef Number(const c10::DimVector& sizes) {
    if (!made_number_) filling_ = out_->Number(op_, number_, op_.results[0].dtype, sizes);
    made_number_ = true;
    filling_.sizes = sizes;
    return filling_;
  }

  const TraceOp& op_;
  const Segments segments_;
  const int number_;
  Expansion* out_;
  bool whole_ = false;
  bool made_number_ = false;
  TensorRef filling_;
};

// Of self and a list of ints: a result of self's type and rank.
bool AcceptsMove(const TraceOp& op) {
  return IsTensor(op.args[0]) && IsPlainResult(op) && op.args[0].tensors[0].dtype == op.results[0].dtype &&
         Rank(op.args[0].tensors[0]) == Rank(op.results[0]) && op.args[0].tensors[0].numel() != 0 && IsIntList(op.args[1]);
}

bool AcceptsPad(const OpRow&, const TraceOp& op) {
  if (!AcceptsMove(op)) return false;
  const std::vector<int64_t> pads = op.args[1].value.toIntVector();
  const bool grows = std::all_of(pads.begin(), pads.end(), [](int64_t pad) { return pad >= 0; });
  return grows && static_cast<int64_t>(pads.size()) <= 2 * Rank(op.results[0]);
}

// The last dimension's padding comes first.
void ExpandPad(const TraceOp& op, Expansion* out) {
  Segments segments = Whole(op);
  const std::vector<int64_t> pads = op.args[1].value.toIntVector();
  for (size_t i = 0; i + 1 < pads.size(); i += 2) {
    std::vector<Segment>& here = segments[segments.size() - 1 - i / 2];
    here = Padded(pads[i], here[0].size, pads[i + 1]);
  }
  WindowWriter(op, std::move(segments), 2, out).Write();
}

// The dimensions that argument `arg` lists; empty where one comes twice.
std::vector<int64_t> Dims(const TraceOp& op, int arg) {
  std::vector<int64_t> dims = op.args[arg].value.toIntVector();
  for (int64_t& dim : dims) dim += dim < 0 ? Rank(op.results[0]) : 0;
  std::vector<int64_t> sorted = dims;
  std::sort(sorted.begin(), sorted.end());
  const bool twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  return twice || (!sorted.empty() && (sorted.front() < 0 || sorted.back() >= Rank(op.results[0]))) ? std::vector<int64_t>() : dims;
}

void AddMoved(const TraceOp& op, Expansion* out) { out->pieces.push_back({op, kMoved}); }

// The dimensions that argument `dims_arg` lists have coordinates, in that order.
template <int kDimsArg>
Iteration IterateAlong(const OpRow&, const Node& node) {
  return node.part == kEmpty ? codegen::Whole(node.op.results[0]) : IterateMoved(node, Dims(node.op, kDimsArg));
}

void EmitFlip(OpEmitter& e) {
  if (e.node().part == kEmpty) return;
  EmitMoved(e, Dims(e.op(), 1), [&](size_t, Expr at, int64_t size) { return e.emitter().ConstInt(ScalarType::Long, size - 1) - at; });
}

void EmitRoll(OpEmitter& e) {
  if (e.node().part == kEmpty) return;
  const std::vector<int64_t> shifts = e.op().args[1].value.toIntVector();
  EmitMoved(e, Dims(e.op(), 2), [&](size_t i, Expr at, int64_t size) {
    const auto number = [&](int64_t value) { return e.emitter().ConstInt(ScalarType::Long, value); };
    const int64_t shift = (shifts[i] % size + size) % size;
    return at + Select(at < number(shift), number(size - shift), number(-shift));
  });
}

bool AcceptsRoll(const OpRow&, const TraceOp& op) {
  if (!AcceptsMove(op) || !IsIntList(op.args[2])) return false;
  const std::vector<int64_t> dims = Dims(op, 2);
  return !dims.empty() && dims.size() == op.args[1].value.toIntVector().size() && 1 << std::min<size_t>(dims.size(), 8) <= kMaxWindows;
}

void ExpandRoll(const TraceOp& op, Expansion* out) {
  if (op.device.is_cuda()) return AddMoved(op, out);
  Segments segments = Whole(op);
  const std::vector<int64_t> shifts = op.args[1].value.toIntVector(), dims = Dims(op, 2);
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t size = segments[dims[i]][0].size;
    const int64_t shift = (shifts[i] % size + size) % size;
    if (shift != 0) segments[dims[i]] = {{{}, shift, {size - shift}, 1, false}, {{shift}, size - shift, {}, 1, false}};
  }
  WindowWriter(op, std::move(segments), -1, out).Write();
}

bool AcceptsFlip(const OpRow&, const TraceOp& op) { return AcceptsMove(op) && !Dims(op, 1).empty(); }

void ExpandFlip(const TraceOp& op, Expansion* out) {
  if (op.device.is_cuda()) return AddMoved(op, out);
  Segments segments = Whole(op);
  for (const int64_t dim : Dims(op, 1)) {
    Segment& segment = segments[dim][0];
    if (segment.size == 1) continue;
    segment.source = {segment.size - 1};
    segment.step = -1;
  }
  WindowWriter(op, std::move(segments), -1, out).Write();
}

// The gradients of select and slice: zero, but for one place along dimension `dim` of the result, or for some of them, each a step from the
// next.
int64_t StepOf(const TraceOp& op) {
  constexpr int64_t kFar = int64_t{1} << 40;  // Past any tensor's end, and no less so when it is multiplied by a size.
  return op.args.size() > 4 ? std::min(op.args[5].value.toInt(), kFar) : 1;
}

bool AcceptsSpread(const OpRow& row, const TraceOp& op) {
  if (!IsTensor(op.args[0]) || op.results[0].dtype != op.args[0].tensors[0].dtype) return false;
  for (size_t i = 3; i < op.args.size(); ++i) {
    if (op.args[i].kind != TraceArg::Kind::kConst || !op.args[i].value.isInt()) return false;
  }
  const TensorRef& result = op.results[0];
  const int64_t dim = DimArg(op, 2, result);
  const bool slice = op.args.size() > 4;
  // Where they would begin anywhere in a CPU's vector, or leave gaps there, ATen is faster.
  const bool whole = dim >= 0 && dim < Rank(result) && (result.strides[dim] != 1 || op.device.is_cuda());
  return whole && Rank(op.args[0].tensors[0]) == Rank(result) - (slice ? 0 : 1);
}

Iteration IterateSpread(const OpRow& row, const Node& node) {
  Iteration it = codegen::Whole(node.op.results[0]);
  if (node.part == kEmpty) return it;
  const TensorRef& grad = node.op.args[0].tensors[0];
  const int64_t dim = DimArg(node.op, 2, node.op.results[0]);
  c10::DimVector strides = StridesOf(grad.sizes, grad.strides);
  if (Rank(grad) < Rank(node.op.results[0])) strides.insert(strides.begin() + dim, 0);
  strides[dim] = 0;
  it.uses.push_back(std::move(strides));
  it.coordinates.push_back(Along(it.sizes, dim));
  return it;
}

Expr Spread(OpEmitter& e, Expr value, Expr inside) {
  const Expr wide = e.emitter().Cast(value, OpMathType(value.type()));
  return Select(inside, wide, Like(wide, 0));
}

void EmitSpread(OpEmitter& e) {
  if (e.node().part == kEmpty) return;
  const TensorRef& grad = e.op().args[0].tensors[0];
  const TensorRef& result = e.op().results[0];
  const int64_t dim = DimArg(e.op(), 2, result);
  const auto number = [&](int64_t value) { return e.emitter().Size(ScalarType::Long, value); };
  const Expr place = e.Coordinate(0);
  // Counted from the end when negative, which a symbol may be, too.
  const Expr given = number(e.Int(3));
  const Expr first = Select(given < 0, Max(given + number(result.sizes[dim]), number(0)), given);
  const bool slice = Rank(grad) == Rank(result);
  if (!slice) return e.Result(0, Spread(e, e.Load(0), place == first));
  const int64_t step = StepOf(e.op());
  const Expr behind = Max(place - first, number(0));
  Expr inside = (place >= first) & (place < first + number(grad.sizes[dim]) * number(step));
  if (step != 1) inside = inside & (Fmod(behind, number(step)) == number(0));
  const Expr at = step == 1 ? behind : behind / number(step);
  e.Result(0, Spread(e, e.LoadAt(0, Steps(Select(inside, at, number(0)), grad.strides[dim])), inside));
}

void PlaceSpread(const TraceOp& op, Expansion* out) {
  TraceOp slice = op;
  TensorRef& grad = slice.args[0].tensors[0];
  const TensorRef& result = op.results[0];
  const int64_t dim = DimArg(op, 2, result), size = result.sizes[dim], given = op.args[3].value.toInt();
  if (Rank(grad) < Rank(result)) {
    grad.sizes.insert(grad.sizes.begin() + dim, 1);
    grad.strides.insert(grad.strides.begin() + dim, 0);
  }
  const int64_t first = given < 0 ? std::max<int64_t>(given + size, 0) : given;
  Segments segments = Whole(slice);
  const int64_t step = StepOf(op), count = grad.sizes[dim];
  // Up to where the last step leads, or the result ends.
  const int64_t end = std::min(size, first + count * step);
  segments[dim] = Padded(first, count, size - end);
  segments[dim][1].every = step;
  segments[dim][2].begin = {end};
  for (int64_t between = 1; between < step && first + between < end; ++between) {
    segments[dim].push_back({{first + between}, (end - first - between + step - 1) / step, {}, 1, true, step});
  }
  WindowWriter(slice, std::move(segments), -1, out).Write();
}

// The piece that is the result before anything is written.
Iteration IterateEmpty(const OpRow&, const Node& node) { return codegen::Whole(node.op.results[0]); }

OpRow WindowsRow(bool (*accepts)(const OpRow&, const TraceOp&), void (*expand)(const TraceOp&, Expansion*)) {
  OpRow row;
  row.moves = true;
  row.accepts = accepts;
  row.expand = expand;
  row.empty_part = kEmpty;
  row.iterate = &IterateEmpty;
  row.emit = [](OpEmitter&) {};
  return row;
}

OpRow MoveRow(bool (*accepts)(const OpRow&, const TraceOp&), void (*expand)(const TraceOp&, Expansion*)) {
  OpRow row = WindowsRow(accepts, expand);
  row.only_known_sizes = true;
  return row;
}

}  // namespace

OpRow CatRow() {
  OpRow row = WindowsRow(&AcceptsCat, &ExpandCat);
  row.only_computed = true;
  return row;
}

OpRow StackRow() {
  OpRow row = WindowsRow(&AcceptsCat, &ExpandStack);
  row.only_computed = true;
  return row;
}

OpRow ConstantPadRow() {
  OpRow row = WindowsRow(&AcceptsPad, &ExpandPad);
  row.known_args = 0b10;
  return row;
}

OpRow RollRow() {
  OpRow row = MoveRow(&AcceptsRoll, &ExpandRoll);
  row.known_args = 0b10;
  row.indexed_args = 1;
  row.iterate = &IterateAlong<2>;
  row.emit = &EmitRoll;
  return row;
}

OpRow SpreadRow() {
  OpRow row;
  row.indexed_args = 1;
  row.accepts = &AcceptsSpread;
  row.iterate = &IterateSpread;
  row.emit = &EmitSpread;
  row.place = &PlaceSpread;
  row.empty_part = kEmpty;
  row.only_known_sizes = true;
  row.known_args = 0b101000;
  return row;
}

OpRow FlipRow() {
  OpRow row = MoveRow(&AcceptsFlip, &ExpandFlip);
  row.indexed_args = 1;
  row.iterate = &IterateAlong<1>;
  row.emit = &EmitFlip;
  return row;
}

}  // namespace lazuli::codegen
