// Changes to a trace before there is a graph: operators that go, and others that come in their place.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "codegen/ir/trace.h"
#include "codegen/lower_rows.h"

namespace lazuli::codegen {

class TraceEditor {
 public:
  // `trace` has to outlive the editor.
  explicit TraceEditor(const Trace& trace) : trace_(trace), gone_(trace.ops.size(), false), before_(trace.ops.size()) {}

  void Drop(size_t op) { gone_[op] = true; }

  // `op` comes before operator `at`, after others that do, as if it had been recorded as that.
  void Insert(TraceOp op, size_t at) {
    op.index = trace_.ops[at].index;
    op.device = trace_.ops[at].device;
    op.default_dtype = trace_.ops[at].default_dtype;
    before_[at].push_back(std::move(op));
  }

  // A contiguous tensor of `sizes` like `like`, in a storage of its own.
  TensorRef NewTensor(const TensorRef& like, const c10::DimVector& sizes) {
    TensorRef made;
    made.storage = static_cast<StorageId>(trace_.storages.size() + storages_.size());
    made.dtype = like.dtype;
    made.sizes = sizes;
    made.strides = ContiguousStrides(sizes);
    TraceStorage storage;
    storage.device = trace_.storages[static_cast<size_t>(like.storage)].device;
    storage.nbytes = made.numel() * static_cast<int64_t>(c10::elementSize(made.dtype));
    storages_.push_back(storage);
    return made;
  }

  // The changed trace.
  Trace Finish() {
    Trace changed = trace_;
    changed.storages.insert(changed.storages.end(), storages_.begin(), storages_.end());
    changed.ops.clear();
    for (size_t i = 0; i < gone_.size(); ++i) {
      std::move(before_[i].begin(), before_[i].end(), std::back_inserter(changed.ops));
      if (!gone_[i]) changed.ops.push_back(trace_.ops[i]);
    }
    return changed;
  }

 private:
  const Trace& trace_;
  std::vector<bool> gone_;                    // By operator.
  std::vector<std::vector<TraceOp>> before_;  // By operator.
  std::vector<TraceStorage> storages_;        // New ones.
};

}  // namespace lazuli::codegen
