// Windows of images as columns (unfold), and their sum (fold), on GPUs: each point is read where it comes from, in the kernels that use it.
// ATen's kernels go through one image after another.
#include <array>
#include <vector>

#include "codegen/lower_moved.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

constexpr int64_t kMostTerms = 25;                   // Of a sum over the windows that hold a point.
constexpr int64_t kMostElements = int64_t{1} << 31;  // Places are counted with 32 bits.

// The numbers of one of the two dimensions.
struct FoldWindow {
  int64_t kernel, dilation, padding, stride;
};

// They are arguments from `first` on: (kernel_size, dilation, padding, stride).
std::array<FoldWindow, 2> WindowsOf(const TraceOp& op, size_t first) {
  std::array<FoldWindow, 2> windows{};
  for (size_t dim = 0; dim < 2; ++dim) {
    const auto number = [&](size_t arg) {
      const std::vector<int64_t> numbers = op.args[first + arg].value.toIntVector();
      return numbers[numbers.size() == 1 ? 0 : dim];
    };
    windows[dim] = {number(0), number(1), number(2), number(3)};
  }
  return windows;
}

bool AcceptsWindows(const TraceOp& op, size_t first) {
  if (!op.device.is_cuda() || !IsTensor(op.args[0])) return false;
  for (size_t arg = 1; arg < first + 4; ++arg) {
    const TraceArg& list = op.args[arg];
    if (list.kind != TraceArg::Kind::kConst || !list.value.isIntList() || list.value.toIntVector().empty()) return false;
  }
  const TensorRef &self = op.args[0].tensors[0], &result = op.results[0];
  return self.dtype == result.dtype && (TypeBit(self.dtype) & kFloats) != 0 && self.numel() != 0 && result.numel() != 0 &&
         self.numel() < kMostElements && result.numel() < kMostElements && IsDense(result);
}

// How many windows there are along a dimension of `size`.
int64_t CountOf(const FoldWindow& window, int64_t size) {
  return (size + 2 * window.padding - window.dilation * (window.kernel - 1) - 1) / window.stride + 1;
}

Expr Int32(OpEmitter& e, int64_t number) { return e.emitter().ConstInt(ScalarType::Int, number); }
Expr Coordinate(OpEmitter& e, int index) { return e.emitter().Cast(e.Coordinate(index), ScalarType::Int); }

bool AcceptsIm2Col(const OpRow&, const TraceOp& op) {
  const size_t rank = op.results[0].sizes.size();
  return AcceptsWindows(op, 1) && (rank == 2 || rank == 3) && op.args[0].tensors[0].sizes.size() == rank + 1;
}

// [N,] C * windows' elements, windows.
Iteration IterateIm2Col(const OpRow&, const Node& node) {
  Iteration it = Whole(node.op.results[0]);
  const TensorRef& self = node.op.args[0].tensors[0];
  const size_t rank = it.sizes.size();
  c10::DimVector strides(rank, 0);
  if (rank == 3) strides[0] = it.sizes[0] == 1 ? 0 : self.strides[0];
  it.uses.push_back(std::move(strides));
  for (const size_t dim : {rank - 2, rank - 1}) it.coordinates.push_back(Along(it.sizes, static_cast<int64_t>(dim)));
  return it;
}

void EmitIm2Col(OpEmitter& e) {
  const TensorRef& self = e.op().args[0].tensors[0];
  const size_t rank = self.sizes.size();
  const std::array<FoldWindow, 2> windows = WindowsOf(e.op(), 1);
  const Expr row = Coordinate(e, 0), column = Coordinate(e, 1);
  const Expr columns = Int32(e, windows[1].kernel), across = Int32(e, CountOf(windows[1], self.sizes[rank - 1]));
  const Expr channel = row / Int32(e, windows[0].kernel * windows[1].kernel);
  const std::array<Expr, 2> inside = {Fmod(row / columns, Int32(e, windows[0].kernel)), Fmod(row, columns)};
  const std::array<Expr, 2> window = {column / across, Fmod(column, across)};
  Expr offset = Steps(channel, self.strides[rank - 3]), valid;
  for (size_t d = 0; d < 2; ++d) {
    const FoldWindow& numbers = windows[d];
    const Expr at = window[d] * Int32(e, numbers.stride) + inside[d] * Int32(e, numbers.dilation) - Int32(e, numbers.padding);
    const Expr size = Int32(e, self.sizes[rank - 2 + d]), here = (at >= Int32(e, 0)) & (at < size);
    valid = d == 0 ? here : valid & here;
    offset = offset + Steps(Max(Min(at, size - Int32(e, 1)), Int32(e, 0)), self.strides[rank - 2 + d]);
  }
  const Expr value = e.emitter().Cast(e.LoadAt(0, offset), OpMathType(self.dtype));
  e.Result(0, Select(valid, value, Like(value, 0)));
}

bool AcceptsCol2Im(const OpRow&, const TraceOp& op) {
  const size_t rank = op.results[0].sizes.size();
  if (!AcceptsWindows(op, 2) || (rank != 3 && rank != 4) || op.args[0].tensors[0].sizes.size() != rank - 1) return false;
  const std::array<FoldWindow, 2> windows = WindowsOf(op, 2);
  return windows[0].kernel * windows[1].kernel <= kMostTerms;
}

// [N,] C, H, W.
Iteration IterateCol2Im(const OpRow&, const Node& node) {
  Iteration it = Whole(node.op.results[0]);
  const TensorRef& self = node.op.args[0].tensors[0];
  const std::array<FoldWindow, 2> windows = WindowsOf(node.op, 2);
  const size_t rank = it.sizes.size(), rows = self.sizes.size() - 2;
  c10::DimVector strides(rank, 0);
  if (rank == 4 && it.sizes[0] != 1) strides[0] = self.strides[0];
  if (it.sizes[rank - 3] != 1) strides[rank - 3] = self.strides[rows] * windows[0].kernel * windows[1].kernel;
  it.uses.push_back(std::move(strides));
  for (const size_t dim : {rank - 2, rank - 1}) it.coordinates.push_back(Along(it.sizes, static_cast<int64_t>(dim)));
  return it;
}

// A window that may hold the point, along one dimension: whether it does.
struct Holder {
  Expr window, valid;
};

// For each element of a window, the last one first, as ATen adds them up: the window in which that is the point with coordinate `index`.
std::vector<Holder> Holders(OpEmitter& e, int index, const FoldWindow& numbers, int64_t count) {
  const Expr at = Coordinate(e, index) + Int32(e, numbers.padding), stride = Int32(e, numbers.stride), zero = Int32(e, 0);
  std::vector<Holder> holders;
  for (int64_t i = numbers.kernel; i-- > 0;) {
    const Expr begin = at - Int32(e, i * numbers.dilation), last = Int32(e, (count - 1) * numbers.stride);
    const Expr inside = Max(Min(begin, last), zero);
    const Expr valid = (begin >= zero) & (begin <= last);
    holders.push_back({inside / stride, numbers.stride == 1 ? valid : valid & (Fmod(inside, stride) == zero)});
  }
  return holders;
}

void EmitCol2Im(OpEmitter& e) {
  const TensorRef &self = e.op().args[0].tensors[0], &result = e.op().results[0];
  const size_t rank = result.sizes.size(), rows = self.sizes.size() - 2;
  const std::array<FoldWindow, 2> windows = WindowsOf(e.op(), 2);
  const std::array<int64_t, 2> counts = {CountOf(windows[0], result.sizes[rank - 2]), CountOf(windows[1], result.sizes[rank - 1])};
  const std::vector<Holder> down = Holders(e, 0, windows[0], counts[0]), across = Holders(e, 1, windows[1], counts[1]);
  Expr sum = e.emitter().Const(OpMathType(self.dtype), 0);
  for (int64_t i = 0; i < windows[0].kernel; ++i) {
    for (int64_t j = 0; j < windows[1].kernel; ++j) {
      const Holder &y = down[static_cast<size_t>(i)], &x = across[static_cast<size_t>(j)];
      const int64_t element = (windows[0].kernel - 1 - i) * windows[1].kernel + windows[1].kernel - 1 - j;
      const Expr offset =
          Steps(Int32(e, element), self.strides[rows]) + Steps(y.window * Int32(e, counts[1]) + x.window, self.strides[rows + 1]);
      const Expr value = e.emitter().Cast(e.LoadAt(0, offset), OpMathType(self.dtype));
      sum = sum + Select(y.valid & x.valid, value, Like(value, 0));
    }
  }
  e.Result(0, sum);
}

OpRow UnfoldRow(bool (*accepts)(const OpRow&, const TraceOp&), Iteration (*iterate)(const OpRow&, const Node&), void (*emit)(OpEmitter&)) {
  OpRow row = MovedRow(accepts, iterate, emit);
  row.moves = true;
  row.only_known_sizes = true;
  return row;
}

}  // namespace

OpRow Im2ColRow() { return UnfoldRow(&AcceptsIm2Col, &IterateIm2Col, &EmitIm2Col); }
OpRow Col2ImRow() { return UnfoldRow(&AcceptsCol2Im, &IterateCol2Im, &EmitCol2Im); }

}  // namespace lazuli::codegen
