// Pooling: each element of the result looks at a window of self, where it lies.
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
bool IsFalse(const TraceArg& arg) { return arg.kind == TraceArg::Kind::kConst && arg.value.isBool() && !arg.value.toBool(); }

bool IsPool(const TraceOp& op) {
  if (!IsTensor(op.args[0]) || !IsIntList(op.args[1]) || !IsIntList(op.args[2]) || !IsIntList(op.args[3])) return false;
  const TensorRef& self = op.args[0].tensors[0];
  if ((TypeBit(self.dtype) & kWide) == 0 || (Rank(self) != 3 && Rank(self) != 4)) return false;
  return WindowOf(op, 0).kernel * WindowOf(op, 1).kernel <= kMaxWindow;
}

// (..., dilation, ceil_mode)
bool AcceptsMaxPool(const OpRow&, const TraceOp& op) {
  return IsPool(op) && IsIntList(op.args[4]) && NumberOf(op, 4, 0) == 1 && NumberOf(op, 4, 1) == 1 && IsFalse(op.args[5]);
}

// (..., ceil_mode, count_include_pad, divisor_override)
bool AcceptsAvgPool(const OpRow&, const TraceOp& op) {
  const bool divides_by_size = op.args[6].kind == TraceArg::Kind::kConst && op.args[6].value.isNone();
  return IsPool(op) && NumberOf(op, 3, 0) == 0 && NumberOf(op, 3, 1) == 0 && IsFalse(op.args[4]) && divides_by_size;
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
  for (size_t dim : {rank - 2, rank - 1}) {
    source[dim] = 0;
    it.coordinates.emplace_back(rank, 0);
    it.coordinates.back()[dim] = it.sizes[dim] == 1 ? 0 : 1;
  }
  it.uses.push_back(std::move(source));
  return it;
}

// Where the window at a point lies along dimension `dim` of two. Padding stands for the nearest element inside, which the window holds too.
std::vector<Expr> PlacesOf(OpEmitter& e, size_t dim) {
  const TensorRef& self = e.op().args[0].tensors[0];
  const Window window = WindowOf(e.op(), dim);
  const Expr first = e.Coordinate(static_cast<int>(dim)) * e.emitter().ConstInt(ScalarType::Long, window.stride);
  const Expr last = e.emitter().Size(ScalarType::Long, self.sizes[self.sizes.size() - 2 + dim]) - e.emitter().ConstInt(ScalarType::Long, 1);
  std::vector<Expr> places;
  for (int64_t i = -window.padding; i < window.kernel - window.padding; ++i) {
    Expr place = i == 0 ? first : first + e.emitter().ConstInt(ScalarType::Long, i);
    if (window.padding > 0 && i < 0) place = Max(place, e.emitter().ConstInt(ScalarType::Long, 0));
    if (window.padding > 0 && i >= 0) place = Min(place, last);
    places.push_back(place);
  }
  return places;
}

// The first largest element, or the last NaN.
void EmitMaxPool(OpEmitter& e) {
  const TensorRef& self = e.op().args[0].tensors[0];
  const size_t rank = self.sizes.size();
  const std::vector<Expr> rows = PlacesOf(e, 0), columns = PlacesOf(e, 1);
  const bool wants_index = e.WantsResult(1);
  Expr largest, index;
  for (const Expr& row : rows) {
    for (const Expr& column : columns) {
      const Expr value = e.LoadAt(0, Steps(row, self.strides[rank - 2]) + Steps(column, self.strides[rank - 1]));
      const Expr place = wants_index ? Steps(row, self.sizes[rank - 1]) + column : Expr();
      if (largest.emitter == nullptr) {
        largest = value, index = place;
        continue;
      }
      const Expr better = (value > largest) | IsNan(value);
      largest = Select(better, value, largest);
      if (wants_index) index = Select(better, place, index);
    }
  }
  if (e.WantsResult(0)) e.Result(0, largest);
  if (wants_index) e.Result(1, index);
}

// In the order in which ATen adds them up, from zero on.
void EmitAvgPool(OpEmitter& e) {
  const TensorRef& self = e.op().args[0].tensors[0];
  const size_t rank = self.sizes.size();
  const std::vector<Expr> rows = PlacesOf(e, 0), columns = PlacesOf(e, 1);
  Expr sum = e.emitter().Const(self.dtype, 0);
  for (const Expr& row : rows) {
    for (const Expr& column : columns) {
      sum = sum + e.LoadAt(0, Steps(row, self.strides[rank - 2]) + Steps(column, self.strides[rank - 1]));
    }
  }
  e.Result(0, sum / static_cast<double>(rows.size() * columns.size()));
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

}  // namespace lazuli::codegen
