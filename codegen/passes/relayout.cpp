#include "codegen/passes/relayout.h"

#include <optional>
#include <utility>
#include <vector>

#include "codegen/lower_pieces.h"
#include "codegen/passes/trace_uses.h"

namespace lazuli::codegen {
namespace {

// The tensor that `op` copies as it is; null when it does something else.
const TensorRef* CopiedAsItIs(const TraceOp& op) {
  const TensorRef* const source = CopiedBy(op);
  return source != nullptr && source->offset_slot == -1 && source->dtype == op.results[0].dtype ? source : nullptr;
}

// The strides of `result` with which its memory is in the order of `copy`, which reads it as `window`. None where a dimension of the
// window is not one or several of the result's.
std::optional<c10::DimVector> StridesAs(const TensorRef& result, const TensorRef& window, const TensorRef& copy) {
  c10::DimVector strides(result.sizes.size(), 1);
  std::vector<bool> found(result.sizes.size(), false);
  int64_t elements = 1;
  if (result.numel() == 0) return std::nullopt;
  for (size_t j = 0; j < window.sizes.size(); ++j) {
    int64_t stride = window.strides[j], to = copy.strides[j], left = window.sizes[j];
    elements *= left;
    // From the innermost one of them on.
    while (left != 1) {
      size_t d = 0;
      while (d < strides.size() && (found[d] || result.sizes[d] == 1 || result.strides[d] != stride)) ++d;
      if (d == strides.size() || left % result.sizes[d] != 0) return std::nullopt;
      found[d] = true;
      strides[d] = to;
      stride *= result.sizes[d];
      to *= result.sizes[d];
      left /= result.sizes[d];
    }
  }
  return elements == result.numel() ? std::optional(strides) : std::nullopt;
}

class Relayouter {
 public:
  explicit Relayouter(const Trace& trace) : trace_(trace), uses_(trace) {}

  std::optional<Trace> Run() {
    std::vector<bool> gone(trace_.ops.size(), false);
    std::optional<Trace> changed;
    for (size_t i = 0; i < trace_.ops.size(); ++i) {
      const TensorRef* const source = CopiedAsItIs(trace_.ops[i]);
      if (source == nullptr || uses_.uses[static_cast<size_t>(source->storage)] != 1) continue;
      const int maker = uses_.makers[static_cast<size_t>(source->storage)];
      if (maker < 0 || trace_.storages[static_cast<size_t>(source->storage)].live_out) continue;
      const TraceOp& op = trace_.ops[static_cast<size_t>(maker)];
      if (!PutsTogether(op)) continue;  // Its result can have any dense layout.
      const TensorRef& copy = trace_.ops[i].results[0];
      const auto strides = StridesAs(op.results[0], *source, copy);
      if (!strides.has_value()) continue;
      if (!changed.has_value()) changed = trace_;
      TensorRef& result = changed->ops[static_cast<size_t>(maker)].results[0];
      result.storage = copy.storage;
      result.strides = *strides;
      gone[i] = true;
    }
    if (changed.has_value()) EraseOps(&*changed, gone);
    return changed;
  }

 private:
  const Trace& trace_;
  const TraceUses uses_;
};

}  // namespace

std::optional<Trace> Relayout(const Trace& trace) { return Relayouter(trace).Run(); }

}  // namespace lazuli::codegen
