// Pooling: each element of the result looks at a window of self, where it lies; each element of a gradient at the windows that hold it.
#include <array>
#include <vector>

#include "codegen/lower_index.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

constexpr int64_t kMaxWindow = 16;  // Elements; larger ones make long kernels.

// The numbers of one of the two dimensions.
struct Window {
  int64_t kernel, stride, padding;
};

// Of list `arg`, in which one number stands for both dimensions.
int64_t NumberOf(const TraceOp& op, int arg, size_t dim) {
  const std::vector<int64_t> numbers = op.args[arg].value.toIntVector();
  return numbers.empty() ? 0 : numbers[numbers.size() == 1 ? 0 : dim];
}

// (self, kernel_size, stride, padding, ...). No stride is the kernel's size.
Window WindowOf(const TraceOp& op, size_t dim) {
  const bool has_stride = !op.args[2].value.toIntVector().empty();
  return {NumberOf(op, 1, dim), NumberOf(op, has_stride ? 2 : 1, dim), NumberOf(op, 3, dim)};
}

bool IsIntList(const TraceArg& arg) { return arg.kind == TraceArg::Kind::kConst && arg.value.isIntList(); }
bool IsBool(const TraceArg& arg) { return arg.kind == TraceArg::Kind::kConst && arg.value.isBool(); }
bool IsFalse(const TraceArg& arg) { return IsBool(arg) && !arg.value.toBool(); }

// `types`: that it may have.
bool IsPool(const TraceOp& op, uint8_t types) {
  if (!IsTensor(op.args[0]) || !IsIntList(op.args[1]) || !IsIntList(op.args[2]) || !IsIntList(op.args[3])) return false;
  const TensorRef& self = op.args[0].tensors[0];
  if (!HasType(types, self.dtype, op) || (Rank(self) != 3 && Rank(self) != 4)) return false;
  return WindowOf(op, 0).kernel * WindowOf(op, 1).kernel <= kMaxWindow;
}

// Whether argument `arg`, the dilation, is 1.
bool IsUndilated(const TraceOp& op, int arg) { return IsIntList(op.args[arg]) && NumberOf(op, arg, 0) == 1 && NumberOf(op, arg, 1) == 1; }

// (..., dilation, ceil_mode)
bool AcceptsMaxPool(const OpRow&, const TraceOp& op) { return IsPool(op, kFloats) && IsUndilated(op, 4) && IsFalse(op.args[5]); }

// (..., ceil_mode, count_include_pad, divisor_override), from argument `first` on.
bool IsAverage(const TraceOp& op, int first) {
  const TraceArg& divisor = op.args[first + 2];
  if (divisor.kind != TraceArg::Kind::kConst || (!divisor.value.isNone() && !divisor.value.isInt())) return false;
  return IsBool(op.args[first]) && IsBool(op.args[first + 1]);
}

bool AcceptsAvgPool(const OpRow&, const TraceOp& op) { return IsPool(op, kFloats) && IsAverage(op, 4); }

// Of the two dimensions that windows lie in.
void AddCoordinates(Iteration* it) {
  const size_t rank = it->sizes.size();
  for (size_t dim : {rank - 2, rank - 1}) {
    it->coordinates.emplace_back(rank, 0);
    it->coordinates.back()[dim] = it->sizes[dim] == 1 ? 0 : 1;
  }
}

Iteration IteratePool(const OpRow&, const Node& node) {
  const TensorRef& self = node.op.args[0].tensors[0];
  const size_t rank = self.sizes.size();
  Iteration it;
  for (const TensorRef& result : node.op.results) {
    if (result.defined()) it.sizes = result.sizes;
  }
  it.reduced.assign(rank, false);
  for (const TensorRef& result : node.op.results) {
    it.results.push_back(result.defined() ? BroadcastStrides(result, it.sizes) : c10::DimVector());
  }
  c10::DimVector source = StridesOf(it.sizes, self.strides);
  source[rank - 2] = source[rank - 1] = 0;
  AddCoordinates(&it);
  it.uses.push_back(std::move(source));
  return it;
}

Expr Int(OpEmitter& e, int64_t number) { return e.emitter().ConstInt(ScalarType::Long, number); }

// An element of a window, along one dimension. What is not inside of self is at a place that is, and not `valid`.
struct Place {
  Expr at;
  Expr valid;  // None: always.
};

// The elements of a window that begins at `first`, before padding, along a dimension of `size`. In ceil mode it may reach beyond the
// padding.
std::vector<Place> PlacesFrom(OpEmitter& e, Expr first, const Window& window, int64_t size, bool ceil_mode) {
  const Expr end = e.emitter().Size(ScalarType::Long, size), zero = Int(e, 0);
  std::vector<Place> places;
  for (int64_t i = -window.padding; i < window.kernel - window.padding; ++i) {
    const Expr at = i == 0 ? first : first + Int(e, i);
    const bool before = i < 0, after = ceil_mode || (window.padding > 0 && i >= 0);
    Place place{at, Expr()};
    if (before) place = {Max(at, zero), at >= zero};
    if (after) place = {Min(place.at, end - Int(e, 1)), before ? place.valid & (at < end) : at < end};
    places.push_back(place);
  }
  return places;
}

// Of the window at a point of the result of an operator on self, along dimension `dim` of two.
std::vector<Place> PlacesOf(OpEmitter& e, size_t dim, bool ceil_mode) {
  const TensorRef& self = e.op().args[0].tensors[0];
  const Window window = WindowOf(e.op(), dim);
  const Expr first = e.Coordinate(static_cast<int>(dim)) * Int(e, window.stride);
  return PlacesFrom(e, first, window, self.sizes[self.sizes.size() - 2 + dim], ceil_mode);
}

// Where along dimension `dim` of two element `at` is in window `window` of a pool, numbers of windows and elements being Long.
Expr PlaceIn(OpEmitter& e, Expr window, const Window& numbers, Expr at) {
  return e.emitter().Cast(at - (window * Int(e, numbers.stride) - Int(e, numbers.padding)), ScalarType::Int);
}

// The first largest element, or the last NaN. Its place is said in self, or by a byte in the window.
void EmitMaxPool(OpEmitter& e) {
  const TensorRef& self = e.op().args[0].tensors[0];
  const size_t rank = self.sizes.size();
  const std::vector<Place> rows = PlacesOf(e, 0, false), columns = PlacesOf(e, 1, false);
  const bool wants_index = e.WantsResult(1), in_window = e.op().results[1].dtype == ScalarType::Byte;
  const std::array<Window, 2> window = {WindowOf(e.op(), 0), WindowOf(e.op(), 1)};
  const auto place_of = [&](Expr row, Expr column) {
    if (!in_window) return Steps(row, self.sizes[rank - 1]) + column;
    const Expr columns_before = PlaceIn(e, e.Coordinate(0), window[0], row) * e.emitter().ConstInt(ScalarType::Int, window[1].kernel);
    return columns_before + PlaceIn(e, e.Coordinate(1), window[1], column);
  };
  Expr largest, index;
  for (const Place& row : rows) {
    for (const Place& column : columns) {
      // What is outside stands for the nearest element inside, which the window holds too.
      const Expr value = e.LoadAt(0, Steps(row.at, self.strides[rank - 2]) + Steps(column.at, self.strides[rank - 1]));
      const Expr place = wants_index ? place_of(row.at, column.at) : Expr();
      const Expr number = e.emitter().Cast(value, OpMathType(self.dtype));
      if (largest.emitter == nullptr) {
        largest = number, index = place;
        continue;
      }
      const Expr better = (number > largest) | IsNan(number);
      largest = Select(better, number, largest);
      if (wants_index) index = Select(better, place, index);
    }
  }
  if (e.WantsResult(0)) e.Result(0, largest);
  if (wants_index) e.Result(1, index);
}

// Both, where both are asked for.
Expr Both(Expr a, Expr b) { return a.emitter == nullptr ? b : b.emitter == nullptr ? a : a & b; }
Expr OrZero(Expr valid, Expr value) { return valid.emitter == nullptr ? value : Select(valid, value, Like(value, 0)); }

// What the sum over a window is divided by: the flags are from argument `flags` on; along each dimension of `sizes` the window begins at
// `first`, before padding.
Expr Divisor(OpEmitter& e, int flags, const std::array<Expr, 2>& first, const std::array<Window, 2>& window,
             const std::array<int64_t, 2>& sizes, ScalarType type) {
  const TraceArg& divisor = e.op().args[flags + 2];
  if (!divisor.value.isNone()) return e.emitter().Const(type, static_cast<double>(divisor.value.toInt()));
  const bool ceil_mode = !IsFalse(e.op().args[flags]), counts_padding = !IsFalse(e.op().args[flags + 1]);
  Expr count;
  for (size_t d = 0; d < 2; ++d) {
    Expr here = Int(e, window[d].kernel);
    const int64_t padding = window[d].padding;
    if (ceil_mode || (!counts_padding && padding > 0)) {
      const Expr size = e.emitter().Size(ScalarType::Long, sizes[d]);
      const Expr end = Min(first[d] + Int(e, window[d].kernel - padding), counts_padding ? size + Int(e, padding) : size);
      const Expr begin = first[d] - Int(e, padding);
      here = end - (counts_padding ? begin : Max(begin, Int(e, 0)));
    }
    count = d == 0 ? here : count * here;
  }
  return e.emitter().Cast(count, type);
}

// In the order in which ATen adds them up, from zero on.
void EmitAvgPool(OpEmitter& e) {
  constexpr int kFlags = 4;
  const TensorRef& self = e.op().args[0].tensors[0];
  const size_t rank = self.sizes.size();
  const ScalarType type = OpMathType(self.dtype);
  const std::array<Window, 2> window = {WindowOf(e.op(), 0), WindowOf(e.op(), 1)};
  const bool ceil_mode = !IsFalse(e.op().args[kFlags]);
  const std::vector<Place> rows = PlacesOf(e, 0, ceil_mode), columns = PlacesOf(e, 1, ceil_mode);
  Expr sum = e.emitter().Const(type, 0);
  for (const Place& row : rows) {
    for (const Place& column : columns) {
      const Expr value = e.LoadAt(0, Steps(row.at, self.strides[rank - 2]) + Steps(column.at, self.strides[rank - 1]));
      sum = sum + OrZero(Both(row.valid, column.valid), e.emitter().Cast(value, type));
    }
  }
  const std::array<Expr, 2> first = {e.Coordinate(0) * Int(e, window[0].stride), e.Coordinate(1) * Int(e, window[1].stride)};
  e.Result(0, sum / Divisor(e, kFlags, first, window, {self.sizes[rank - 2], self.sizes[rank - 1]}, type));
}

// Gradients: (gradient of the result, self, kernel_size, stride, padding, ...).
TraceOp WithoutSelf(const TraceOp& op) {
  TraceOp pool = op;
  pool.args.erase(pool.args.begin() + 1);
  return pool;
}

bool IsGradient(const TraceOp& op, uint8_t types) { return IsTensor(op.args[0]) && IsPool(WithoutSelf(op), types); }

// ATen rounds each quotient of a half.
bool AcceptsAvgPoolBackward(const OpRow&, const TraceOp& op) { return IsGradient(op, kWide) && IsAverage(op, 5); }

// (..., dilation, ceil_mode, indices). Where windows overlap, several have to be looked at, which on a CPU only pays where vectors lie
// across channels; there ATen rounds sums of halves at every addition, too.
bool AcceptsMaxPoolBackward(const OpRow&, const TraceOp& op) {
  const TraceOp pool = WithoutSelf(op);
  if (!IsGradient(op, kWideOnCpu) || !IsTensor(op.args[1])) return false;
  for (size_t dim : {0, 1}) {
    if (op.device.is_cpu() && op.results[0].strides.back() == 1 && WindowOf(pool, dim).kernel > WindowOf(pool, dim).stride) return false;
  }
  return IsUndilated(op, 5) && IsTensor(op.args[7]) && Rank(op.args[7].tensors[0]) == Rank(op.results[0]);
}

// Indices that this very pooling made: each lies in its window.
bool AreIndicesOf(const TraceOp& op, const TraceOp& maker) {
  const bool in_window = op.info->name == "lazuli::_max_pool2d_with_offsets_backward";
  if (maker.info->name != (in_window ? "lazuli::_max_pool2d_with_offsets" : "aten::max_pool2d_with_indices") || !IsPool(maker, kFloats) ||
      !IsUndilated(maker, 4))
    return false;
  const TraceOp pool = WithoutSelf(op);
  const c10::DimVector &to = op.results[0].sizes, &from = maker.args[0].tensors[0].sizes;
  for (size_t dim : {0, 1}) {
    const Window a = WindowOf(pool, dim), b = WindowOf(maker, dim);
    if (a.kernel != b.kernel || a.stride != b.stride || a.padding != b.padding) return false;
  }
  return to == from;
}

Iteration IteratePoolBackward(const OpRow&, const Node& node) {
  Iteration it = codegen::Whole(node.op.results[0]);
  const size_t rank = it.sizes.size();
  ForEachArgUse(node, [&](size_t arg, const TensorRef& use) {
    it.uses.push_back(StridesOf(it.sizes, use.strides));
    if (arg != 1) it.uses.back()[rank - 2] = it.uses.back()[rank - 1] = 0;
  });
  AddCoordinates(&it);
  return it;
}

// A number from 0 to 2^50 divided by a constant, rounded down.
Expr DividedBy(OpEmitter& e, Expr number, int64_t divisor) {
  if (divisor == 1) return number;
  if (e.op().device.is_cuda()) return number / Int(e, divisor);
  const Expr middle = e.emitter().Cast(number, ScalarType::Double) + 0.5;  // Far from where the quotient is whole.
  return e.emitter().Cast(Floor(middle * (1.0 / static_cast<double>(divisor))), ScalarType::Long);
}

// The windows that may hold the element at a point, along dimension `dim` of two, first ones first.
std::vector<Place> WindowsAround(OpEmitter& e, size_t dim, const Window& window) {
  const TensorRef& gradient = e.op().args[0].tensors[0];
  const Expr count = e.emitter().Size(ScalarType::Long, gradient.sizes[gradient.sizes.size() - 2 + dim]);
  const Expr zero = Int(e, 0), place = e.Coordinate(static_cast<int>(dim)) + Int(e, window.padding);
  const Expr last = DividedBy(e, place, window.stride);
  std::vector<Place> windows;
  for (int64_t back = (window.kernel - 1) / window.stride; back >= 0; --back) {
    const Expr at = last - Int(e, back);
    Place here{Min(at, count - Int(e, 1)), at < count};
    if (back > 0) here = {Max(here.at, zero), here.valid & (at >= zero)};
    const int64_t furthest = (back + 1) * window.stride - 1;  // From where that window begins.
    if (furthest >= window.kernel) here.valid = here.valid & (place - at * Int(e, window.stride) < Int(e, window.kernel));
    windows.push_back(here);
  }
  return windows;
}

// Adds up `value(row, column)` of each window that may hold the element.
template <class ValueFn>
void EmitPoolBackward(OpEmitter& e, const ValueFn& value) {
  const TraceOp pool = WithoutSelf(e.op());
  const std::vector<Place> rows = WindowsAround(e, 0, WindowOf(pool, 0)), columns = WindowsAround(e, 1, WindowOf(pool, 1));
  Expr sum = e.emitter().Const(OpMathType(e.op().results[0].dtype), 0);
  for (const Place& row : rows) {
    for (const Place& column : columns) sum = sum + value(row, column);
  }
  e.Result(0, sum);
}

Expr AtWindow(OpEmitter& e, int arg, const Place& row, const Place& column) {
  const TensorRef& tensor = e.op().args[arg].tensors[0];
  const size_t rank = tensor.sizes.size();
  return e.LoadAt(arg, Steps(row.at, tensor.strides[rank - 2]) + Steps(column.at, tensor.strides[rank - 1]));
}

void EmitAvgPoolBackward(OpEmitter& e) {
  const TraceOp pool = WithoutSelf(e.op());
  const TensorRef& self = e.op().results[0];
  const size_t rank = self.sizes.size();
  const std::array<Window, 2> window = {WindowOf(pool, 0), WindowOf(pool, 1)};
  EmitPoolBackward(e, [&](const Place& row, const Place& column) {
    const std::array<Expr, 2> first = {row.at * Int(e, window[0].stride), column.at * Int(e, window[1].stride)};
    const Expr divisor = Divisor(e, 5, first, window, {self.sizes[rank - 2], self.sizes[rank - 1]}, self.dtype);
    return OrZero(Both(row.valid, column.valid), AtWindow(e, 0, row, column) / divisor);
  });
}

void EmitMaxPoolBackward(OpEmitter& e) {
  const TensorRef& self = e.op().results[0];
  const bool in_window = e.op().args[7].tensors[0].dtype == ScalarType::Byte;
  const TraceOp pool = WithoutSelf(e.op());
  const std::array<Window, 2> window = {WindowOf(pool, 0), WindowOf(pool, 1)};
  const auto place_of = [&](const Place& row, const Place& column) {
    if (!in_window) return Steps(e.Coordinate(0), self.sizes[self.sizes.size() - 1]) + e.Coordinate(1);
    const Expr columns_before = PlaceIn(e, row.at, window[0], e.Coordinate(0)) * e.emitter().ConstInt(ScalarType::Int, window[1].kernel);
    return e.emitter().Cast(columns_before + PlaceIn(e, column.at, window[1], e.Coordinate(1)), ScalarType::Byte);
  };
  EmitPoolBackward(e, [&](const Place& row, const Place& column) {
    const Expr chosen = AtWindow(e, 7, row, column) == place_of(row, column);
    const Expr gradient = e.emitter().Cast(AtWindow(e, 0, row, column), OpMathType(self.dtype));
    return OrZero(Both(Both(row.valid, column.valid), chosen), gradient);
  });
}

}  // namespace

OpRow MaxPoolRow() {
  OpRow row;
  row.indexed_args = 1;
  row.accepts = &AcceptsMaxPool;
  row.iterate = &IteratePool;
  row.emit = &EmitMaxPool;
  return row;
}

OpRow AvgPoolRow() {
  OpRow row = MaxPoolRow();
  row.accepts = &AcceptsAvgPool;
  row.emit = &EmitAvgPool;
  return row;
}

OpRow AvgPoolBackwardRow() {
  OpRow row;
  row.indexed_args = 1;
  row.shape_args = 0b10;
  row.accepts = &AcceptsAvgPoolBackward;
  row.iterate = &IteratePoolBackward;
  row.emit = &EmitAvgPoolBackward;
  return row;
}

OpRow MaxPoolBackwardRow() {
  OpRow row = AvgPoolBackwardRow();
  row.shape_args = 0;
  row.only_fused = true;
  row.made_arg = 7;
  row.made_by = &AreIndicesOf;
  row.indexed_args = uint64_t{1} | uint64_t{1} << 7;
  row.accepts = &AcceptsMaxPoolBackward;
  row.emit = &EmitMaxPoolBackward;
  return row;
}

}  // namespace lazuli::codegen
