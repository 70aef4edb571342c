// Running sums and products along one dimension.
#include <ATen/core/Tensor.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/flip.h>
#include <torch/library.h>

#include <optional>

#include "codegen/lower_expr.h"
#include "codegen/lower_group.h"
#include "codegen/lower_rows.h"

namespace lazuli::codegen {
namespace {

using c10::ScalarType;

ScalarType ResultType(const TraceOp& op) { return op.results.empty() ? op.args[0].tensors[0].dtype : op.results[0].dtype; }

bool AcceptsCumulative(const OpRow& row, const TraceOp& op) {
  if (!HasPlainTypes(op) || op.args[0].tensors[0].sizes.empty()) return false;
  const ScalarType type = ResultType(op);
  // ATen throws where it is to put numbers of one type in the place of another's.
  if (op.args[2].value.isInt() && static_cast<ScalarType>(op.args[2].value.toInt()) != type) return false;
  return (TypeBit(type) & kFloats) != 0 || type == ScalarType::Long || type == ScalarType::Int;
}

// The CPU's kernels accumulate as at::acc_type says.
ScalarType AccumulatedType(const TraceOp& op) {
  const ScalarType type = ResultType(op);
  return type == ScalarType::Float && op.device.is_cpu() ? ScalarType::Double : OpMathType(type);
}

template <KOp op>
void EmitCumulative(OpEmitter& e) {
  const Expr x = e.emitter().Cast(e.Load(0), ResultType(e.op()));
  e.Result(0, Scan(op, e.emitter().Cast(x, AccumulatedType(e.op())), ScanOf(e.node())));
}

at::Tensor ReverseCumsum(const at::Tensor& self, int64_t dim, std::optional<at::ScalarType> dtype) {
  return at::flip(at::cumsum(at::flip(self, dim), dim, dtype), dim);
}

TORCH_LIBRARY_FRAGMENT(lazuli, m) { m.def("_reverse_cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor"); }
TORCH_LIBRARY_IMPL(lazuli, CPU, m) { m.impl("_reverse_cumsum", &ReverseCumsum); }
TORCH_LIBRARY_IMPL(lazuli, CUDA, m) { m.impl("_reverse_cumsum", &ReverseCumsum); }

}  // namespace

OpRow CumulativeRow(KOp scan, ScanDirection direction) {
  OpRow row = SoftmaxRow(1, scan == KOp::kScanProd ? &EmitCumulative<KOp::kScanProd> : &EmitCumulative<KOp::kScanSum>);
  row.scans = direction;
  row.accepts = &AcceptsCumulative;
  return row;
}

}  // namespace lazuli::codegen
