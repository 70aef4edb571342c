#include "codegen/passes/cse.h"

#include <cstring>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "codegen/passes/value_uses.h"

namespace lazuli::codegen {
namespace {

void AppendInt(std::string* key, int64_t value) { key->append(reinterpret_cast<const char*>(&value), sizeof(value)); }

void AppendDims(std::string* key, const c10::DimVector& dims) {
  AppendInt(key, static_cast<int64_t>(dims.size()));
  for (int64_t dim : dims) AppendInt(key, dim);
}

void AppendRef(std::string* key, const TensorRef& ref) {
  AppendInt(key, ref.storage);
  AppendInt(key, static_cast<int64_t>(ref.dtype) << 1 | (ref.wrapped_number ? 1 : 0));
  AppendInt(key, ref.offset_slot);
  AppendDims(key, ref.sizes);
  AppendDims(key, ref.strides);
}

// False for a kind of constant without a simple encoding.
bool AppendConst(std::string* key, const c10::IValue& value) {
  if (value.isNone()) {
    key->push_back('n');
  } else if (value.isBool()) {
    key->push_back(value.toBool() ? 't' : 'f');
  } else if (value.isInt()) {
    key->push_back('i');
    AppendInt(key, value.toInt());
  } else if (value.isDouble()) {
    key->push_back('d');
    const double number = value.toDouble();
    key->append(reinterpret_cast<const char*>(&number), sizeof(number));
  } else if (value.isIntList()) {
    key->push_back('l');
    const auto list = value.toIntVector();
    AppendInt(key, static_cast<int64_t>(list.size()));
    for (int64_t item : list) AppendInt(key, item);
  } else if (value.isString()) {
    key->push_back('s');
    AppendInt(key, static_cast<int64_t>(value.toStringRef().size()));
    key->append(value.toStringRef());
  } else if (value.isDevice()) {
    key->push_back('D');
  } else {
    return false;
  }
  return true;
}

// Two nodes with equal keys compute equal results. Empty: not to be merged. In-place forms compute what functional ones do.
std::string KeyOf(const Node& node) {
  std::string key;
  if (node.kind != Node::Kind::kCompute) return key;
  AppendInt(&key, reinterpret_cast<intptr_t>(node.row));
  AppendInt(&key, node.part);
  // What fills memory need not say where: that is with the operator, not with its arguments.
  AppendInt(&key, static_cast<int64_t>(node.op.device.type()));
  AppendInt(&key, node.op.device.index());
  for (const TraceArg& arg : node.op.args) {
    AppendInt(&key, static_cast<int64_t>(arg.kind));
    if (arg.kind == TraceArg::Kind::kScalar) {
      AppendInt(&key, arg.slot);
      AppendInt(&key, static_cast<int64_t>(arg.scalar_type));
    }
    for (const TensorRef& ref : arg.tensors) AppendRef(&key, ref);
    if (arg.kind == TraceArg::Kind::kConst && !AppendConst(&key, arg.value)) return "";
  }
  for (size_t i = 0; i < node.op.results.size(); ++i) {
    const TensorRef& result = node.op.results[i];
    AppendInt(&key, static_cast<int64_t>(result.dtype));
    AppendDims(&key, result.sizes);
    AppendDims(&key, result.strides);
  }
  return key;
}

}  // namespace

absl::StatusOr<Graph> EliminateCommonSubexpressions(Graph graph) {
  const std::vector<bool> pinned = PinnedValues(graph);
  const std::vector<bool> overwritten = OverwrittenValues(graph);
  std::vector<ValueId> replacement(graph.values.size());
  for (size_t v = 0; v < replacement.size(); ++v) replacement[v] = static_cast<ValueId>(v);
  absl::flat_hash_map<std::string, NodeId> seen;
  std::vector<bool> keep(graph.nodes.size(), true);
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes.size()); ++n) {
    Node& node = graph.nodes[n];
    ForEachUse(node, [&](TensorRef& use) { use.storage = replacement[use.storage]; });
    std::string key = KeyOf(node);
    if (key.empty()) continue;
    const auto [it, inserted] = seen.try_emplace(std::move(key), n);
    if (inserted) continue;
    const Node& first = graph.nodes[it->second];
    bool mergeable = true;
    for (size_t i = 0; i < node.results.size(); ++i) {
      if (node.results[i] == kNoValue) continue;
      mergeable = mergeable && first.results[i] != kNoValue && !pinned[node.results[i]] && !overwritten[node.results[i]] &&
                  !overwritten[first.results[i]];
    }
    if (!mergeable) continue;
    for (size_t i = 0; i < node.results.size(); ++i) {
      if (node.results[i] != kNoValue) replacement[node.results[i]] = first.results[i];
    }
    keep[n] = false;
  }
  EraseNodes(&graph, keep);
  return graph;
}

}  // namespace lazuli::codegen
