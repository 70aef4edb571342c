// Who makes and who uses a trace's storages, for what is rewritten before there is a graph.
#pragma once

#include <utility>
#include <vector>

#include "codegen/ir/trace.h"

namespace lazuli::codegen {

struct TraceUses {
  std::vector<int> uses;    // By storage.
  std::vector<int> makers;  // By storage: the operator whose result it is; -1: none.

  explicit TraceUses(const Trace& trace) : uses(trace.storages.size()), makers(trace.storages.size(), -1) {
    for (size_t i = 0; i < trace.ops.size(); ++i) {
      for (const TraceArg& arg : trace.ops[i].args) {
        for (const TensorRef& ref : arg.tensors) {
          if (ref.defined()) ++uses[static_cast<size_t>(ref.storage)];
        }
      }
      for (const TensorRef& result : trace.ops[i].results) {
        if (result.defined()) makers[static_cast<size_t>(result.storage)] = static_cast<int>(i);
      }
    }
  }
};

// Whether `use` is all of what `made` is, as it lies.
inline bool IsAllOf(const TensorRef& use, const TensorRef& made) {
  return use.offset_slot == -1 && use.dtype == made.dtype && use.sizes == made.sizes && use.strides == made.strides;
}

// Whether an operator after `first` and before `last` writes some of `storage`.
inline bool IsWrittenBetween(const Trace& trace, StorageId storage, int first, int last) {
  for (int i = first + 1; i < last; ++i) {
    const TraceOp& op = trace.ops[static_cast<size_t>(i)];
    for (size_t a = 0; a < op.args.size(); ++a) {
      for (const TensorRef& ref : op.args[a].tensors) {
        if ((op.info->mutated_args >> a & 1) != 0 && ref.storage == storage) return true;
      }
    }
  }
  return false;
}

// Drops the operators that are `gone`.
inline void EraseOps(Trace* trace, const std::vector<bool>& gone) {
  std::vector<TraceOp> ops;
  for (size_t i = 0; i < gone.size(); ++i) {
    if (!gone[i]) ops.push_back(std::move(trace->ops[i]));
  }
  trace->ops = std::move(ops);
}

}  // namespace lazuli::codegen
