#include "codegen/reduce_parts.h"

#include <utility>

#include "codegen/lower.h"
#include "codegen/lower_index.h"
#include "codegen/lower_pieces.h"

namespace lazuli::codegen {
namespace {

constexpr int64_t kMaxReduced = 8;

struct Row {
  const char* reduction;
  int dims_arg;
  const char* combine;
  bool begins_with_zero;
  bool of_squares;
};
constexpr Row kRows[] = {
    {"aten::sum.dim_IntList", 1, "aten::add.Tensor", true, false},
    {"aten::amax", 1, "aten::maximum", false, false},
    {"aten::amin", 1, "aten::minimum", false, false},
    {"aten::prod.dim_int", 1, "aten::mul.Tensor", false, false},
    {"aten::linalg_vector_norm", 2, "aten::add.Tensor", false, true},
};

const Row* FindRowOf(const TraceOp& op) {
  for (const Row& row : kRows) {
    if (op.info->name == row.reduction) return &row;
  }
  return nullptr;
}

// The only dimension that `op` reduces; -1 when there are others.
int64_t ReducedDim(const TraceOp& op, const Row& row) {
  const c10::IValue& dims = op.args[static_cast<size_t>(row.dims_arg)].value;
  const int64_t rank = Rank(op.args[0].tensors[0]);
  if (!dims.isInt() && (!dims.isIntList() || dims.toIntVector().size() != 1)) return -1;
  const int64_t dim = dims.isInt() ? dims.toInt() : dims.toIntVector()[0];
  return dim < 0 ? dim + rank : dim;
}

// Calls for the operators that take the place of one.
class Appender {
 public:
  Appender(const TraceOp& op, const std::function<TensorRef(const TensorRef&)>& add, std::vector<TraceOp>* ops)
      : op_(op), add_(add), ops_(*ops) {}

  // Appends `name` of `a` and, if that is defined, `b`, whose third argument, if any, is 1.
  TensorRef Call(const char* name, const TensorRef& a, const TensorRef& b, bool last) {
    TraceOp call = CallOf(name, last ? op_.results[0] : add_(a));
    SetRef(&call, 0, a);
    if (b.defined()) SetRef(&call, 1, b);
    if (call.args.size() > 2) call.args[2].value = int64_t{1};
    call.index = op_.index;
    call.device = op_.device;
    call.default_dtype = op_.default_dtype;
    ops_.push_back(std::move(call));
    return ops_.back().results[0];
  }

  TensorRef AddZero(const TensorRef& a) {
    const TensorRef sum = Call("aten::add.Scalar", a, TensorRef(), /*last=*/false);
    ops_.back().args[1].value = int64_t{0};
    return sum;
  }

 private:
  const TraceOp& op_;
  const std::function<TensorRef(const TensorRef&)>& add_;
  std::vector<TraceOp>& ops_;
};

}  // namespace

std::optional<SmallReduction> FindSmallReduction(const TraceOp& op, const runtime::SymbolTable& symbols) {
  const Row* const row = op.info != nullptr ? FindRowOf(op) : nullptr;
  if (row == nullptr || FindRow(op) == nullptr) return std::nullopt;
  const TensorRef& self = op.args[0].tensors[0];
  const int64_t dim = ReducedDim(op, *row);
  if (dim < 0 || self.dtype != op.results[0].dtype || OpMathType(self.dtype) != self.dtype) return std::nullopt;
  const int64_t count = self.sizes[static_cast<size_t>(dim)];
  if (count < 2 || count > kMaxReduced || symbols.IsSymbolic(count)) return std::nullopt;
  return SmallReduction{static_cast<size_t>(dim), count, row->combine, row->begins_with_zero, row->of_squares};
}

void AppendReduction(const TraceOp& op, const SmallReduction& reduction, std::vector<TensorRef> parts,
                     const std::function<TensorRef(const TensorRef& like)>& add, std::vector<TraceOp>* ops) {
  const auto dim = static_cast<std::ptrdiff_t>(reduction.dim);
  Appender append(op, add, ops);
  for (TensorRef& part : parts) {
    if (Rank(op.results[0]) < Rank(part)) {
      part.sizes.erase(part.sizes.begin() + dim);
      part.strides.erase(part.strides.begin() + dim);
    }
    if (reduction.of_squares) part = append.Call("aten::mul.Tensor", part, part, /*last=*/false);
  }
  TensorRef sum = reduction.begins_with_zero ? append.AddZero(parts[0]) : parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    sum = append.Call(reduction.combine, sum, parts[i], i + 1 == parts.size() && !reduction.of_squares);
  }
  if (reduction.of_squares) append.Call("aten::sqrt", sum, TensorRef(), /*last=*/true);
}

}  // namespace lazuli::codegen
