#include "codegen/graph_builder.h"

#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/distribute.h"
#include "codegen/lower.h"

namespace lazuli::codegen {
namespace {

class Builder {
 public:
  Builder(const Trace& trace, const BuildOptions& options) : trace_(trace), options_(options), distributor_(trace, &graph_) {
    graph_.storages = trace.storages;
    graph_.contents.assign(trace.storages.size(), kNoValue);
    graph_.num_scalars = trace.num_scalars;
    graph_.num_offsets = trace.num_offsets;
    graph_.symbols = trace.symbols;
    graph_.nodes.reserve(trace.ops.size() + trace.ops.size() / 2);
  }

  absl::StatusOr<Graph> Build() {
    for (const TraceOp& op : trace_.ops) {
      if (auto status = AddOp(op); !status.ok()) return status;
    }
    for (size_t s = 0; s < graph_.storages.size(); ++s) {
      if (!graph_.IsVisible(static_cast<StorageId>(s))) graph_.contents[s] = kNoValue;
    }
    return std::move(graph_);
  }

 private:
  absl::StatusOr<ValueId> Content(StorageId storage) {
    ValueId& content = graph_.contents[storage];
    if (content == kNoValue) {
      if (!graph_.storages[storage].is_input) return absl::InternalError(absl::StrCat("storage ", storage, " is read before it exists"));
      content = AddValue({kNoNode, storage, kNoValue, {}});
    }
    return content;
  }

  ValueId AddValue(Value value) {
    reads_.emplace_back();
    return graph_.AddValue(std::move(value));
  }

  bool UsesRows(const TraceOp& op) const {
    return options_.use_rows && (options_.rows_of_ops.empty() || options_.rows_of_ops[static_cast<size_t>(op.index)]);
  }

  absl::Status AddOp(const TraceOp& op) {
    if (UsesRows(op) && CanGenerate(op)) {
      const std::vector<TraceOp> parts = distributor_.Distribute(op);
      for (const TraceOp& part : parts) {
        if (auto status = AddOpItself(part); !status.ok()) return status;
      }
      if (!parts.empty()) return absl::OkStatus();
    }
    return AddOpItself(op);
  }

  absl::Status AddOpItself(const TraceOp& op) {
    auto status = AddNodes(op);
    distributor_.Added(op);
    return status;
  }

  absl::Status AddNodes(const TraceOp& op) {
    const auto index = static_cast<size_t>(op.index);
    const OpRow* row = UsesRows(op) && CanGenerate(op) ? FindRow(op) : nullptr;
    if (row != nullptr && !Pays(*row, op)) row = nullptr;
    if (row != nullptr && row->expand != nullptr) return AddPieces(op, row, row->expand);
    const bool placed = row != nullptr && index < options_.placed_ops.size() && options_.placed_ops[index];
    return placed && KnowsSizes(*row, op) ? AddPieces(op, row, row->place) : AddNode(op, row, /*part=*/0);
  }

  // Kernels run on one device, and read memory that is there.
  bool CanGenerate(const TraceOp& op) const {
    if (op.device.is_cpu()) return true;
    if (!options_.gpu_kernels) return false;
    return std::all_of(op.args.begin(), op.args.end(), [&](const TraceArg& arg) {
      return std::all_of(arg.tensors.begin(), arg.tensors.end(),
                         [&](const TensorRef& ref) { return !ref.defined() || graph_.storages[ref.storage].device == op.device; });
    });
  }

  // What a row knows too little to decide for itself.
  bool Pays(const OpRow& row, const TraceOp& op) const {
    if (!KnowsSizes(row, op)) return false;
    if (row.expand == nullptr) return row.target_arg < 0 || !IsReadElsewhere(op, row.target_arg);
    return !row.only_computed || MostAreComputed(op) || IsInAnotherOrder(op) || (!op.device.is_cpu() && MostHaveGaps(op));
  }

  bool KnowsSizes(const OpRow& row, const TraceOp& op) const {
    const bool floats = !op.results.empty() && c10::isFloatingType(op.results[0].dtype);
    const uint64_t known_args = row.known_args | (floats ? row.known_args_of_floats : 0);
    for (const TensorRef& result : op.results) {
      if (row.only_known_sizes && graph_.symbols.HasSymbol(result.sizes)) return false;
    }
    for (size_t i = 0; i < op.args.size(); ++i) {
      for (const TensorRef& operand : op.args[i].tensors) {
        if (row.only_known_sizes && operand.defined() && graph_.symbols.HasSymbol(operand.sizes)) return false;
      }
      const c10::IValue& value = op.args[i].value;
      if ((known_args >> i & 1) != 0 &&
          (value.isInt() ? graph_.symbols.IsSymbolic(value.toInt()) : graph_.symbols.HasSymbol(value.toIntVector()))) {
        return false;
      }
    }
    return true;
  }

  // No order that ATen's kernels know: that of a copy that was made of the result (passes/relayout.h).
  bool IsInAnotherOrder(const TraceOp& op) const {
    if (op.results.size() != 1 || graph_.symbols.HasSymbol(op.results[0].strides)) return false;
    const TensorRef& result = op.results[0];
    return !result.is_contiguous() && !c10::is_channels_last_strides_2d(c10::IntArrayRef(result.sizes), c10::IntArrayRef(result.strides));
  }

  // ATen's GPU kernel works every place in such an operand out by divisions.
  bool MostHaveGaps(const TraceOp& op) const {
    int gaps = 0, operands = 0;
    for (const TraceArg& arg : op.args) {
      for (const TensorRef& ref : arg.tensors) {
        ++operands;
        gaps += ref.defined() && !graph_.symbols.HasSymbol(ref.strides) && !ref.is_contiguous() ? 1 : 0;
      }
    }
    return 2 * gaps > operands;
  }

  // Whether an operand shares the memory of argument `target`. ATen checks whether they overlap.
  static bool IsReadElsewhere(const TraceOp& op, int target) {
    int uses = 0;
    for (const TraceArg& arg : op.args) {
      for (const TensorRef& ref : arg.tensors) uses += ref.defined() && ref.storage == op.args[target].tensors[0].storage ? 1 : 0;
    }
    return uses > 1;
  }

  // Whether a kernel makes all of what is in the memory of `ref`.
  bool IsComputed(const TensorRef& ref) const {
    const ValueId content = graph_.contents[ref.storage];
    const NodeId producer = content == kNoValue ? kNoNode : graph_.values[content].producer;
    if (producer == kNoNode || graph_.nodes[producer].kind != Node::Kind::kCompute) return false;
    return ref.offset_slot == -1 && graph_.values[content].layout.numel() == ref.numel();
  }

  // Whether kernels make at least half of the operands, as they are used.
  bool MostAreComputed(const TraceOp& op) const {
    int computed = 0, operands = 0;
    for (const TraceArg& arg : op.args) {
      for (const TensorRef& ref : arg.tensors) {
        ++operands;
        computed += ref.defined() && IsComputed(ref) ? 1 : 0;
      }
    }
    return computed > 0 && 2 * computed >= operands;
  }

  absl::Status AddPieces(const TraceOp& op, const OpRow* row, void (*expand)(const TraceOp&, Expansion*)) {
    Expansion expansion;
    expansion.first_temporary = static_cast<StorageId>(graph_.storages.size());
    expansion.first_offset = graph_.num_offsets + static_cast<int32_t>(graph_.offset_sums.size());
    expand(op, &expansion);
    graph_.offset_sums.insert(graph_.offset_sums.end(), expansion.offset_sums.begin(), expansion.offset_sums.end());
    for (const int64_t bytes : expansion.temporaries) {
      TraceStorage& storage = graph_.storages.emplace_back();
      storage.nbytes = bytes;
      storage.device = op.device;
      graph_.contents.push_back(kNoValue);
    }
    for (Expansion::Piece& piece : expansion.pieces) {
      piece.op.index = op.index;
      piece.op.device = op.device;
      piece.op.default_dtype = op.default_dtype;
      if (piece.op.info == nullptr) continue;  // See below.
      const bool whole = piece.part == Expansion::kWholeOp;
      if (auto status = AddNode(piece.op, whole ? FindRow(piece.op) : row, whole ? 0 : piece.part); !status.ok()) return status;
    }
    return AddWindows(expansion.pieces);
  }

  // What is computed first is written first, so that it can be written where it is computed; windows of one size next to each other, so
  // that one kernel can write them.
  absl::Status AddWindows(const std::vector<Expansion::Piece>& pieces) {
    std::vector<std::pair<NodeId, const TraceOp*>> writes;
    for (const Expansion::Piece& piece : pieces) {
      if (piece.op.info != nullptr) continue;
      auto content = Content(piece.op.args[1].tensors[0].storage);
      if (!content.ok()) return content.status();
      writes.emplace_back(graph_.values[*content].producer, &piece.op);
    }
    if (!writes.empty()) ++num_families_;
    std::stable_sort(writes.begin(), writes.end(), [](const auto& a, const auto& b) {
      if (a.first != b.first) return a.first < b.first;
      return a.second->args[0].tensors[0].sizes < b.second->args[0].tensors[0].sizes;
    });
    for (const auto& [producer, op] : writes) {
      const TensorRef& source = op->args[1].tensors[0];
      AddUpdate(op->index, op->args[0].tensors[0], graph_.contents[source.storage], source);
      graph_.nodes.back().family = num_families_;
    }
    return absl::OkStatus();
  }

  absl::Status AddNode(const TraceOp& op, const OpRow* row, int part) {
    if (row != nullptr && row->everywhere != nullptr && IsComputed(op.args[row->target_arg].tensors[0])) {
      const TraceOp functional = Functional(op);
      const OpRow* everywhere = graph_.IsAllOfFreshMemory(functional.results[0]) ? row->everywhere(functional) : nullptr;
      if (everywhere != nullptr) return AddNode(functional, everywhere, part);
    }
    const NodeId id = static_cast<NodeId>(graph_.nodes.size());
    Node node;
    node.op = op;
    node.part = part;
    std::vector<StorageId> written;
    for (size_t i = 0; i < node.op.args.size(); ++i) {
      const bool shape_only = row != nullptr && (row->shape_args >> i & 1) != 0;
      for (TensorRef& ref : node.op.args[i].tensors) {
        if (!ref.defined()) continue;
        auto content = Content(ref.storage);
        if (!content.ok()) return content.status();
        if (row == nullptr && (op.info->mutated_args >> i & 1) != 0) written.push_back(ref.storage);
        if (shape_only) {
          ref = TensorRef();
          continue;
        }
        ref.storage = *content;
        reads_[*content].push_back(id);
      }
    }
    if (row == nullptr) {
      AddExtern(std::move(node), written);
    } else if (row->target_arg >= 0) {
      AddScatter(std::move(node), row);
    } else if (op.info->returns_mutated_self) {
      AddInPlace(std::move(node), row, op.args[0].tensors[0]);
    } else {
      AddPure(std::move(node), row);
    }
    return absl::OkStatus();
  }

  void AddExtern(Node node, const std::vector<StorageId>& written) {
    const NodeId id = static_cast<NodeId>(graph_.nodes.size());
    AddResults(&node, id);
    for (size_t i = 0; i < written.size(); ++i) {
      const StorageId storage = written[i];
      bool again = false;
      for (size_t j = 0; j < i; ++j) again = again || written[j] == storage;
      if (again) continue;
      const ValueId version = AddValue({id, storage, graph_.contents[storage], {}});
      graph_.contents[storage] = version;
      node.versions.push_back(version);
    }
    graph_.nodes.push_back(std::move(node));
  }

  void AddResults(Node* node, NodeId id) {
    for (const TensorRef& result : node->op.results) {
      ValueId value = kNoValue;
      if (result.defined()) {
        value = AddValue({id, result.storage, kNoValue, result});
        graph_.contents[result.storage] = value;
      }
      node->results.push_back(value);
    }
  }

  // Rows with several parts become one node for each, of which every one makes only its own results.
  void AddPure(Node node, const OpRow* row) {
    node.kind = Node::Kind::kCompute;
    node.row = row;
    for (int part = 0; part < row->parts; ++part) {
      Node copy = node;
      copy.part += part;
      bool any = false;
      for (size_t i = 0; i < copy.op.results.size(); ++i) {
        if (row->parts > 1 && row->part_of_result[i] != part) copy.op.results[i] = TensorRef();
        any = any || copy.op.results[i].defined();
      }
      if (!any) continue;
      const NodeId id = static_cast<NodeId>(graph_.nodes.size());
      if (part > 0) ForEachUse(copy, [&](const TensorRef& use) { reads_[use.storage].push_back(id); });
      AddResults(&copy, id);
      graph_.nodes.push_back(std::move(copy));
    }
  }

  // The new content of `self` is computed as a fresh dense tensor, then written through the window, unless the window is all there is.
  void AddInPlace(Node node, const OpRow* row, const TensorRef& self) {
    const NodeId id = static_cast<NodeId>(graph_.nodes.size());
    node.kind = Node::Kind::kCompute;
    node.row = row;
    TensorRef layout = self;
    layout.strides = DenseStrides(self);
    layout.SetOffset(-1);
    layout.wrapped_number = false;
    const ValueId result = AddValue({id, self.storage, kNoValue, layout});
    node.op.results = {layout};
    node.results = {result};
    graph_.nodes.push_back(std::move(node));
    if (graph_.IsAllOfFreshMemory(self)) {
      graph_.contents[self.storage] = result;
      return;
    }
    AddUpdate(graph_.nodes.back().op.index, self, result, layout);
  }

  void AddScatter(Node node, const OpRow* row) {
    const NodeId id = static_cast<NodeId>(graph_.nodes.size());
    node.kind = Node::Kind::kUpdate;
    node.row = row;
    node.op.results.clear();
    const ValueId content = node.Target().storage;
    const StorageId storage = graph_.values[content].storage;
    node.results = {AddValue({id, storage, content, {}})};
    graph_.contents[storage] = node.results[0];
    graph_.nodes.push_back(std::move(node));
  }

  // For operator `index` of the trace.
  void AddUpdate(int32_t index, const TensorRef& self, ValueId source, const TensorRef& source_layout) {
    ValueId content = graph_.contents[self.storage];
    content = DropOverwritten(self, content);
    const NodeId id = static_cast<NodeId>(graph_.nodes.size());
    Node node;
    node.kind = Node::Kind::kUpdate;
    node.op.index = index;
    node.op.device = graph_.storages[self.storage].device;
    node.op.args.resize(2);
    for (TraceArg& arg : node.op.args) arg.kind = TraceArg::Kind::kTensor;
    TensorRef window = self;
    window.storage = content;
    window.wrapped_number = false;
    TensorRef use = source_layout;
    use.storage = source;
    node.op.args[0].tensors = {window};
    node.op.args[1].tensors = {use};
    reads_[content].push_back(id);
    reads_[source].push_back(id);
    const ValueId version = AddValue({id, self.storage, content, {}});
    node.results = {version};
    graph_.contents[self.storage] = version;
    graph_.nodes.push_back(std::move(node));
  }

  // When `content` was made by an update through the very window about to be overwritten, and everybody who read it read that window,
  // they can read the update's source instead and the update is void. Returns what the window is over then.
  ValueId DropOverwritten(const TensorRef& self, ValueId content) {
    const NodeId producer = graph_.values[content].producer;
    if (producer == kNoNode || graph_.nodes[producer].kind != Node::Kind::kUpdate || graph_.nodes[producer].row != nullptr) {
      return content;
    }
    const TensorRef old_window = graph_.nodes[producer].op.args[0].tensors[0];
    const TensorRef source = graph_.nodes[producer].op.args[1].tensors[0];
    if (!SameWindow(old_window, self)) return content;
    for (NodeId reader : reads_[content]) {
      bool same = graph_.nodes[reader].kind == Node::Kind::kCompute;
      ForEachUse(graph_.nodes[reader],
                 [&](const TensorRef& use) { same = same && (use.storage != content || SameWindow(use, old_window)); });
      if (!same) return content;
    }
    for (NodeId reader : reads_[content]) {
      ForEachUse(graph_.nodes[reader], [&](TensorRef& use) {
        if (use.storage == content) use = source;
      });
      reads_[source.storage].push_back(reader);
    }
    reads_[content].clear();
    return old_window.storage;
  }

  static bool SameWindow(const TensorRef& a, const TensorRef& b) {
    return a.dtype == b.dtype && a.offset_slot == b.offset_slot && a.sizes == b.sizes && a.strides == b.strides;
  }

  const Trace& trace_;
  const BuildOptions options_;
  Graph graph_;
  Distributor distributor_;
  std::vector<std::vector<NodeId>> reads_;  // By value: the nodes that use it.
  int32_t num_families_ = 0;
};

}  // namespace

absl::StatusOr<Graph> BuildGraph(const Trace& trace, const BuildOptions& options) { return Builder(trace, options).Build(); }

}  // namespace lazuli::codegen
