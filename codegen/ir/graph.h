// The graph: a trace in SSA form. What the passes rewrite and what lowering reads.
//
// A *value* is the content of a memory at one point of the trace: an input storage as the trace finds it, a dense tensor that a node
// makes, or a new version of some memory after a node wrote part of it. A *use* is a strided window over a value, written as a
// TensorRef whose `storage` field holds a ValueId. Nodes stand in program order, which is a valid order to run them in.
//
// Versions that follow one another through Value::previous live in one memory, named by its first value (MemoryOf). So a node that
// makes a version must run after every reader of the version before it; Predecessors() includes those edges.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codegen/ir/trace.h"

namespace lazuli::codegen {

struct OpRow;  // codegen/lower.h

using ValueId = int32_t;
using NodeId = int32_t;
constexpr ValueId kNoValue = -1;
constexpr NodeId kNoNode = -1;

struct Value {
  NodeId producer = kNoNode;       // kNoNode: an input storage's content before the trace.
  StorageId storage = kNoStorage;  // The storage whose content this is, or would have been.
  ValueId previous = kNoValue;     // The content that this one overwrites in place.
  // The dense tensor, offset 0, `storage` field unused. Undefined dtype for inputs and for versions that updates and extern nodes make,
  // which have no layout of their own.
  TensorRef layout;

  bool has_layout() const { return layout.dtype != c10::ScalarType::Undefined; }
};

struct Node {
  enum class Kind : uint8_t {
    kCompute,  // A pure op that `row` can lower. Never writes memory by itself.
    kUpdate,   // Writes through the window Target(), whose value is the content overwritten: args[1] (a use), or what `row` says.
    kExtern,   // Left to ATen; writes its mutated arguments in place.
  };
  Kind kind = Kind::kExtern;
  const OpRow* row = nullptr;  // kCompute, and a kUpdate that writes where indices say.
  int part = 0;                // kCompute: which of the row's independent parts (layer norm's backward has two).
  // Uses in place of storages. `results` is the trace's. Arguments only looked at for their shape are undefined.
  TraceOp op;
  std::vector<ValueId> results;   // Parallel to op.results; kNoValue where undefined or dead. kUpdate: the one new version.
  std::vector<ValueId> versions;  // kExtern: new contents of the memories written, one for each storage.
  // kUpdate: updates with the same number, if any, fill windows of one fresh memory that do not meet. Nobody sees what is between them.
  int32_t family = 0;
  // kCompute: computes for one node, next of those that are not like this, what others could have stored for it. Fuses with that one first.
  bool again = false;

  bool is_scatter() const { return kind == Kind::kUpdate && row != nullptr; }
  // kUpdate: the argument that is the window.
  int target_arg() const;
  const TensorRef& Target() const { return op.args[target_arg()].tensors[0]; }
};

// How one node lies in its group's iteration space: strides over the group's dimensions of each use (in ForEachUse's order) and of each
// result (parallel to Node::results). An update's first use and its result are the window it writes.
struct Placement {
  std::vector<c10::DimVector> uses;
  std::vector<c10::DimVector> results;
  std::vector<c10::DimVector> coordinates;  // See Iteration.
};

// Nodes that run as one step: compute and update nodes that become one kernel, or one extern node.
struct Group {
  std::vector<NodeId> nodes;  // Ascending.
  // The kernel's iteration space, outermost first, without dimensions of size 1, and which of them are reduced.
  c10::DimVector sizes;
  std::vector<bool> reduced;
  std::vector<Placement> placements;  // Parallel to nodes; empty for an extern node.

  bool is_kernel() const { return !placements.empty(); }
};

// Whether `ref` covers each element of one dense block once, in whatever order of dimensions.
bool IsDense(const TensorRef& ref);

struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<TraceStorage> storages;
  std::vector<ValueId> contents;  // By storage: its content after the trace. kNoValue when never touched or not visible.
  std::vector<Group> groups;      // Empty until fuse; then every node is in exactly one, and they stand in an order to run them in.
  int32_t num_scalars = 0;
  int32_t num_offsets = 0;
  // Offset slots are the trace's, and from `num_offsets` on these. Different slots may then mean equal offsets.
  std::vector<runtime::OffsetSum> offset_sums;
  runtime::SymbolTable symbols;  // The trace's.

  ValueId AddValue(Value value) {
    values.push_back(std::move(value));
    return static_cast<ValueId>(values.size()) - 1;
  }
  // The first value of the memory that `value` lives in.
  ValueId MemoryOf(ValueId value) const {
    while (values[value].previous != kNoValue) value = values[value].previous;
    return value;
  }
  // Whether `ref` is all there is of a memory that the trace makes.
  bool IsAllOfFreshMemory(const TensorRef& ref) const {
    const TraceStorage& storage = storages[ref.storage];
    const int64_t bytes = ref.numel() * static_cast<int64_t>(c10::elementSize(ref.dtype));
    return !storage.is_input && ref.offset_slot == -1 && bytes == storage.nbytes && IsDense(ref);
  }
  // Whether the storage's content outlives the trace.
  bool IsVisible(StorageId storage) const { return storages[storage].is_input || storages[storage].live_out; }
};

// Calls `fn(argument, TensorRef&)` for each defined use of `node`, in argument order.
template <class NodeT, class Fn>
void ForEachArgUse(NodeT& node, const Fn& fn) {
  for (size_t i = 0; i < node.op.args.size(); ++i) {
    for (auto& ref : node.op.args[i].tensors) {
      if (ref.defined()) fn(i, ref);
    }
  }
}

// Calls `fn(TensorRef&)` for each of them.
template <class NodeT, class Fn>
void ForEachUse(NodeT& node, const Fn& fn) {
  ForEachArgUse(node, [&](size_t, auto& ref) { fn(ref); });
}

// Calls `fn(ValueId)` for each value that `node` makes.
template <class Fn>
void ForEachDef(const Node& node, const Fn& fn) {
  for (ValueId value : node.results) {
    if (value != kNoValue) fn(value);
  }
  for (ValueId value : node.versions) fn(value);
}

// For each node the nodes that must run before it: makers of what it reads, and readers of what it overwrites. Sorted, no duplicates.
std::vector<std::vector<NodeId>> Predecessors(const Graph& graph);

// Removes the nodes for which `keep` is false, and groups that then have none, and renumbers producers and groups' nodes. Values stay.
void EraseNodes(Graph* graph, const std::vector<bool>& keep);

// The device of the memory that `value` is in.
inline c10::Device DeviceOf(const Graph& graph, ValueId value) { return graph.storages[graph.values[value].storage].device; }

// Structure, order, types of uses. Run between passes; the message names the node.
absl::Status VerifyGraph(const Graph& graph);

// Text form; ParseGraph(PrintGraph(g)) prints the same. See graph_text.cpp for the grammar.
std::string PrintGraph(const Graph& graph);
absl::StatusOr<Graph> ParseGraph(const std::string& text);

// A dense tensor of type and order of dimensions as `like`, in a storage of its own on `device`.
TensorRef AddTensor(Graph* graph, const TensorRef& like, const c10::DimVector& sizes, c10::Device device);
// On the device of `like`, whose `storage` field holds a storage.
TensorRef AddTensor(Graph* graph, const TensorRef& like, const c10::DimVector& sizes);

// Strides of the dense layout nearest to `ref`'s: `ref`'s own when dense, otherwise contiguous.
c10::DimVector DenseStrides(const TensorRef& ref);

}  // namespace lazuli::codegen
