// Pointwise operators over what cat or stack puts together become the same over its parts: f(cat(a, b), c) is cat(f(a, c's part beside a),
// f(b, the rest of c)). What makes a part is then fused with what is computed of it, and writes its place in the result; what only
// pointwise operators read is never put together at all. Likewise a reduction of a few elements each, of what is computed from much smaller
// tensors, is that of its parts, one after the other: pairwise distances are pointwise then.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "codegen/ir/graph.h"

namespace lazuli::codegen {

// Works beside the builder of a graph, which asks about each operator of the trace in turn, before it adds it.
class Distributor {
 public:
  // Of `trace`, while `graph` is built of it. Both must outlive it.
  Distributor(const Trace& trace, Graph* graph);

  // The operators to add in place of `op`: one for each part, some that make operands in parts, and one that puts the results together.
  // Empty when `op` stays as it is. They have storages and offsets of their own, which are then in the graph.
  std::vector<TraceOp> Distribute(const TraceOp& op);

  // To be told of each operator that was added.
  void Added(const TraceOp& op);

 private:
  // Tensors along dimension `dim`, of which a result is put together.
  struct Parts {
    size_t dim = 0;
    std::vector<TensorRef> refs;    // Of the result's rank.
    std::vector<ValueId> contents;  // Of their storages, then.
    ValueId content = kNoValue;     // Of the result's storage, then.
    bool again = false;             // Others may read what is made in parts: it is made whole for them.
  };

  std::vector<TraceOp> DistributePointwise(const TraceOp& op);
  std::vector<TraceOp> DistributeReduction(const TraceOp& op);
  bool ReadsLittle(const TraceOp& op, const TensorRef& result, const Parts& parts) const;
  std::vector<TensorRef> SplitOperand(const TensorRef& ref, const TensorRef& result, const Parts& parts, std::vector<TraceOp>* out);
  bool IsOnlyReadPointwise(const TraceOp& op) const;
  bool IsSeenAfter(size_t storage, int32_t index) const;
  const Parts* PartsOf(const TensorRef& ref) const;
  const Parts* PartsLike(const TensorRef& ref, const Parts& parts) const;
  bool IsWhole(const TensorRef& ref, const TensorRef& result) const;
  const Node* MakerOf(const TensorRef& ref, const TensorRef& result) const;
  bool CanSplit(const TraceOp& op, const TensorRef& result, const Parts& parts, int depth) const;
  std::vector<TensorRef> Split(const TraceOp& op, const TensorRef& result, const Parts& parts, std::vector<TraceOp>* out);
  TraceOp AsInTrace(const Node& node) const;
  TensorRef Narrow(const TensorRef& ref, const TensorRef& result, const Parts& parts, size_t part);

  const Trace& trace_;
  Graph& graph_;
  std::vector<std::vector<int32_t>> readers_;       // By storage: operators of the trace that read it, by their place.
  absl::flat_hash_map<StorageId, Parts> parts_of_;  // By storage of the result.
  // What was made in parts for the operator that is asked about, by storage.
  absl::flat_hash_map<StorageId, std::vector<TensorRef>> in_parts_;
};

}  // namespace lazuli::codegen
