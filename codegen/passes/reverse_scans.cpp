#include "codegen/passes/reverse_scans.h"

#include <utility>
#include <vector>

#include "codegen/lower.h"
#include "codegen/passes/trace_uses.h"

namespace lazuli::codegen {
namespace {

bool IsIntConstant(const TraceArg& arg) { return arg.kind == TraceArg::Kind::kConst && arg.value.isInt(); }

class ReverseScanJoiner {
 public:
  explicit ReverseScanJoiner(const Trace& trace) : trace_(trace), uses_(trace) {}

  std::optional<Trace> Run() {
    std::vector<bool> gone(trace_.ops.size(), false);
    std::optional<Trace> changed;
    for (size_t last = 0; last < trace_.ops.size(); ++last) {
      const std::optional<int64_t> dim = FlippedDim(trace_.ops[last]);
      const int middle = dim.has_value() ? MakerForOne(trace_.ops[last].args[0]) : -1;
      if (middle < 0 || !IsCumsum(trace_.ops[static_cast<size_t>(middle)], *dim)) continue;
      const TraceOp& sum = trace_.ops[static_cast<size_t>(middle)];
      const int first = MakerForOne(sum.args[0]);
      if (first < 0 || FlippedDim(trace_.ops[static_cast<size_t>(first)]) != dim) continue;
      const TraceArg& source = trace_.ops[static_cast<size_t>(first)].args[0];
      if (IsWrittenBetween(trace_, source.tensors[0].storage, first, static_cast<int>(last))) continue;
      TraceOp joined = sum;
      joined.info = FindOpInfo("lazuli::_reverse_cumsum");
      joined.args[0] = source;
      joined.results = trace_.ops[last].results;
      if (FindRow(joined) == nullptr) continue;
      if (!changed.has_value()) changed = trace_;
      changed->ops[last] = std::move(joined);
      gone[static_cast<size_t>(first)] = gone[static_cast<size_t>(middle)] = true;
    }
    if (changed.has_value()) EraseOps(&*changed, gone);
    return changed;
  }

 private:
  // Counted from 0. None: `op` is no flip of one dimension.
  static std::optional<int64_t> FlippedDim(const TraceOp& op) {
    if (op.info->name != "aten::flip" || op.args[1].kind != TraceArg::Kind::kConst || !op.args[1].value.isIntList()) return std::nullopt;
    const std::vector<int64_t> dims = op.args[1].value.toIntVector();
    const auto rank = static_cast<int64_t>(op.args[0].tensors[0].sizes.size());
    return dims.size() == 1 && rank > 0 ? std::optional((dims[0] + rank) % rank) : std::nullopt;
  }

  static bool IsCumsum(const TraceOp& op, int64_t dim) {
    if (op.info->name != "aten::cumsum" || !IsIntConstant(op.args[1])) return false;
    const auto rank = static_cast<int64_t>(op.args[0].tensors[0].sizes.size());
    return (op.args[1].value.toInt() + rank) % rank == dim;
  }

  // The operator whose whole result `operand` is, if nobody else sees that; -1: there is none.
  int MakerForOne(const TraceArg& operand) const {
    const TensorRef& use = operand.tensors[0];
    const auto storage = static_cast<size_t>(use.storage);
    const int maker = uses_.makers[storage];
    if (maker < 0 || uses_.uses[storage] != 1 || trace_.storages[storage].live_out) return -1;
    const TraceOp& op = trace_.ops[static_cast<size_t>(maker)];
    return op.results.size() == 1 && IsAllOf(use, op.results[0]) ? maker : -1;
  }

  const Trace& trace_;
  const TraceUses uses_;
};

}  // namespace

std::optional<Trace> JoinReverseScans(const Trace& trace) { return ReverseScanJoiner(trace).Run(); }

}  // namespace lazuli::codegen
