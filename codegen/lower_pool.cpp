// Pooling: each element of the result looks at a window of self, where it lies.
#include <vector>

#include "codegen/lower_index.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

constexpr int64_t kMaxWindow = 16;  // Elements; larger ones make long kernels.

// The numbers of one of the two dimensions.
struct Window {
  int64_t kernel, stride, padding, dilation;
};

// (self, kernel_size, stride, padding, dilation, ceil_mode). One number stands for both dimensions; no stride is the kernel's size.
Window WindowOf(const TraceOp& op, size_t dim) {
  const auto number = [&op, dim](int arg) {
    const std::vector<int64_t> numbers = op.args[arg].value.toIntVector();
    return numbers.empty() ? 0 : numbers[numbers.size() == 1 ? 0 : dim];
  };
  const bool has_stride = !op.args[2].value.toIntVector().empty();
  return {number(1), has_stride ? number(2) : number(1), number(3), number(4)};
}

bool AcceptsMaxPool(const OpRow&, const TraceOp& op) {
  for (int arg = 1; arg <= 4; ++arg) {
    if (op.args[arg].kind != TraceArg::Kind::kConst || !op.args[arg].value.isIntList()) return false;
  }
  if (!IsTensor(op.args[0]) || !op.args[5].value.isBool() || op.args[5].value.toBool()) return false;
  const TensorRef& self = op.args[0].tensors[0];
  if ((TypeBit(self.dtype) & kWide) == 0 || (Rank(self) != 3 && Rank(self) != 4)) return false;
  const Window rows = WindowOf(op, 0), columns = WindowOf(op, 1);
  return rows.dilation == 1 && columns.dilation == 1 && rows.kernel * columns.kernel <= kMaxWindow;
}

Iteration IterateMaxPool(const OpRow&, const Node& node) {
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

}  // namespace

OpRow MaxPoolRow() {
  OpRow row;
  row.indexed_args = 1;
  row.accepts = &AcceptsMaxPool;
  row.iterate = &IterateMaxPool;
  row.emit = &EmitMaxPool;
  return row;
}

}  // namespace lazuli::codegen
