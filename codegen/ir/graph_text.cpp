// Graphs as text. PrintGraph(ParseGraph(text)) is text.
//
// clang-format off
//   graph      = "graph scalars=" INT "offsets=" INT { line }              one a line; blank lines and "//" lines are skipped
//   offset     = "offset" INT "=" [ INT "+" ] ints                          a slot after the trace's own: the sum of a slot's and numbers
//   storage    = "storage" ID ":" ( "input" | "fresh" ) INT "bytes" DEVICE [ "live" ] [ "mutated" ]
//   input      = "input" ID "of" ID                                        a storage's content before the trace: value, storage
//   compute    = "compute" [ "again" ] [ "part" INT ] "into" homes ":" tensors "=" call
//   homes      = ( "undef" | ID [ "over" ID ] ) { "," ... }                of each result: its storage, and the content overwritten
//   extern     = "extern" "into" homes ":" tensors "=" call [ "writes" version { "," version } ]
//   update     = "update" [ "family" INT ] version ":" tensor "<-" tensor  the window written, what is written
//   scatter    = "scatter" version "=" call                                writes where indices say
//   version    = ID "of" ID "over" ID                                      value, storage, content overwritten
//   content    = "content" ID "=" ID                                       of a storage after the trace
//   group      = "group" ints [ "sizes" ints "reduced" ints ]              node numbers; the iteration space; 0/1 by dimension
//   place      = "place" INT "uses" { ints } "results" { ints } [ "coordinates" { ints } ]   a node's strides in the last group's space
//
// Tensors and calls are as in traces, with values in place of storages. Nodes are numbered in order, from 0. A result that nothing uses
// keeps its type but has no value: "dead" before it.
// clang-format on
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "codegen/ir/graph.h"
#include "codegen/ir/trace_text.h"
#include "codegen/lower.h"

namespace lazuli::codegen {
namespace {

template <class List>
std::string Ints(const List& list) {
  return absl::StrCat("[", absl::StrJoin(list, ","), "]");
}

class Printer {
 public:
  explicit Printer(const Graph& graph) : graph_(graph) {}

  std::string Print() {
    absl::StrAppend(&text_, "graph scalars=", graph_.num_scalars, " offsets=", graph_.num_offsets, "\n");
    for (size_t i = 0; i < graph_.offset_sums.size(); ++i) {
      const runtime::OffsetSum& sum = graph_.offset_sums[i];
      absl::StrAppend(&text_, "offset ", static_cast<size_t>(graph_.num_offsets) + i, " = ",
                      sum.slot < 0 ? "" : absl::StrCat(sum.slot, " + "), Ints(sum.terms), "\n");
    }
    for (size_t s = 0; s < graph_.storages.size(); ++s) PrintStorage(s);
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const Value& value = graph_.values[v];
      if (value.producer == kNoNode && value.previous == kNoValue && !value.has_layout()) {
        absl::StrAppend(&text_, "input %", v, " of %", value.storage, "\n");
      }
    }
    for (const Node& node : graph_.nodes) PrintNode(node);
    for (size_t s = 0; s < graph_.contents.size(); ++s) {
      if (graph_.contents[s] != kNoValue) absl::StrAppend(&text_, "content %", s, " = %", graph_.contents[s], "\n");
    }
    for (const Group& group : graph_.groups) PrintGroup(group);
    return std::move(text_);
  }

 private:
  void PrintStorage(size_t s) {
    const TraceStorage& storage = graph_.storages[s];
    absl::StrAppend(&text_, "storage %", s, ": ", storage.is_input ? "input " : "fresh ", storage.nbytes, " bytes ", storage.device.str(),
                    storage.live_out ? " live" : "", storage.mutated ? " mutated" : "", "\n");
  }

  std::string Version(ValueId value) const {
    return absl::StrCat("%", value, " of %", graph_.values[value].storage, " over %", graph_.values[value].previous);
  }

  static std::string Home(const Value& value) {
    return absl::StrCat("%", value.storage, value.previous != kNoValue ? absl::StrCat(" over %", value.previous) : "");
  }

  void PrintNode(const Node& node) {
    if (node.is_scatter()) {
      absl::StrAppend(&text_, "scatter ", Version(node.results[0]), " = ", CallText(node.op), "\n");
      return;
    }
    if (node.kind == Node::Kind::kUpdate) {
      absl::StrAppend(&text_, "update ", node.family != 0 ? absl::StrCat("family ", node.family, " ") : "", Version(node.results[0]), ": ",
                      TensorText(node.op.args[0].tensors[0]), " <- ", TensorText(node.op.args[1].tensors[0]), "\n");
      return;
    }
    absl::StrAppend(&text_, node.kind == Node::Kind::kCompute ? "compute" : "extern");
    if (node.again) absl::StrAppend(&text_, " again");
    if (node.part != 0) absl::StrAppend(&text_, " part ", node.part);
    std::vector<std::string> homes, tensors;
    for (size_t i = 0; i < node.op.results.size(); ++i) {
      TensorRef ref = node.op.results[i];
      if (!ref.defined() && node.results[i] == kNoValue) {
        homes.push_back("undef");
        tensors.push_back("undef");
        continue;
      }
      const bool dead = node.results[i] == kNoValue;
      homes.push_back(dead ? "undef" : Home(graph_.values[node.results[i]]));
      ref.storage = dead ? 0 : node.results[i];
      tensors.push_back(absl::StrCat(dead ? "dead " : "", TensorText(ref)));
    }
    absl::StrAppend(&text_, " into ", absl::StrJoin(homes, ","), ": ", absl::StrJoin(tensors, ", "), " = ", CallText(node.op));
    for (size_t i = 0; i < node.versions.size(); ++i) absl::StrAppend(&text_, i == 0 ? " writes " : ", ", Version(node.versions[i]));
    absl::StrAppend(&text_, "\n");
  }

  void PrintGroup(const Group& group) {
    absl::StrAppend(&text_, "group ", Ints(group.nodes));
    if (!group.is_kernel()) {
      absl::StrAppend(&text_, "\n");
      return;
    }
    std::vector<int> reduced(group.reduced.begin(), group.reduced.end());
    absl::StrAppend(&text_, " sizes ", Ints(group.sizes), " reduced ", Ints(reduced), "\n");
    for (size_t i = 0; i < group.nodes.size(); ++i) {
      absl::StrAppend(&text_, "place ", group.nodes[i], " uses");
      for (const auto& strides : group.placements[i].uses) absl::StrAppend(&text_, " ", Ints(strides));
      absl::StrAppend(&text_, " results");
      for (const auto& strides : group.placements[i].results) absl::StrAppend(&text_, " ", Ints(strides));
      if (!group.placements[i].coordinates.empty()) absl::StrAppend(&text_, " coordinates");
      for (const auto& strides : group.placements[i].coordinates) absl::StrAppend(&text_, " ", Ints(strides));
      absl::StrAppend(&text_, "\n");
    }
  }

  const Graph& graph_;
  std::string text_;
};

class Parser {
 public:
  absl::StatusOr<Graph> Parse(const std::string& text) {
    int line_number = 0;
    const std::vector<std::string> lines = absl::StrSplit(text, '\n');
    for (const std::string& line : lines) {
      TextReader reader(line, ++line_number);
      if (reader.AtEnd() || reader.Accept("//")) continue;
      ReadLine(&reader) && reader.ExpectEnd();
      if (reader.failed()) return reader.status();
    }
    SetDevices();
    return std::move(graph_);
  }

 private:
  bool ReadLine(TextReader* reader) {
    if (reader->Accept("graph")) return ReadHeader(reader);
    if (reader->Accept("offset")) return ReadOffset(reader);
    if (reader->Accept("storage")) return ReadStorage(reader);
    if (reader->Accept("input")) return ReadInput(reader);
    if (reader->Accept("compute")) return ReadNode(reader, Node::Kind::kCompute);
    if (reader->Accept("extern")) return ReadNode(reader, Node::Kind::kExtern);
    if (reader->Accept("update")) return ReadUpdate(reader);
    if (reader->Accept("scatter")) return ReadScatter(reader);
    if (reader->Accept("content")) return ReadContent(reader);
    if (reader->Accept("group")) return ReadGroup(reader);
    if (reader->Accept("place")) return ReadPlace(reader);
    return reader->Fail("a line of a graph");
  }

  bool ReadHeader(TextReader* reader) {
    int64_t scalars = 0, offsets = 0;
    if (!reader->Expect("scalars=") || !reader->ReadInt(&scalars) || !reader->Expect("offsets=") || !reader->ReadInt(&offsets))
      return false;
    graph_.num_scalars = static_cast<int32_t>(scalars);
    graph_.num_offsets = static_cast<int32_t>(offsets);
    return true;
  }

  bool ReadOffset(TextReader* reader) {
    int64_t slot, other;
    runtime::OffsetSum sum;
    if (!reader->ReadInt(&slot) || !reader->Expect("=")) return false;
    if (slot != graph_.num_offsets + static_cast<int64_t>(graph_.offset_sums.size()))
      return reader->Reject("offsets are numbered in order");
    if (reader->AtInt()) {
      if (!reader->ReadInt(&other) || !reader->Expect("+")) return false;
      sum.slot = static_cast<int32_t>(other);
    }
    if (!ReadInts(reader, &sum.terms)) return false;
    graph_.offset_sums.push_back(std::move(sum));
    return true;
  }

  bool ReadStorage(TextReader* reader) {
    StorageId id;
    TraceStorage storage;
    if (!reader->ReadStorageId(&id) || !reader->Expect(":")) return false;
    if (id != static_cast<StorageId>(graph_.storages.size())) return reader->Reject("storages are numbered in order");
    storage.is_input = reader->Accept("input");
    if (!storage.is_input && !reader->Expect("fresh")) return false;
    if (!reader->ReadInt(&storage.nbytes) || !reader->Expect("bytes") || !reader->ReadDevice(&storage.device)) return false;
    storage.live_out = reader->Accept("live");
    storage.mutated = reader->Accept("mutated");
    graph_.storages.push_back(storage);
    graph_.contents.push_back(kNoValue);
    return true;
  }

  Value& MakeValue(ValueId id) {
    if (id >= static_cast<ValueId>(graph_.values.size())) graph_.values.resize(id + 1, DeadValue());
    return graph_.values[id];
  }

  // Numbers that no line mentions belong to values that passes removed; a layout tells them from inputs.
  static Value DeadValue() {
    Value value;
    value.layout.dtype = c10::ScalarType::Byte;
    return value;
  }

  bool ReadHome(TextReader* reader, StorageId* storage) {
    if (!reader->ReadStorageId(storage)) return false;
    return *storage < static_cast<StorageId>(graph_.storages.size()) || reader->Reject("no such storage");
  }

  bool ReadInput(TextReader* reader) {
    ValueId id;
    StorageId storage;
    if (!reader->ReadStorageId(&id) || !reader->Expect("of") || !ReadHome(reader, &storage)) return false;
    MakeValue(id) = {kNoNode, storage, kNoValue, {}};
    return true;
  }

  bool ReadVersion(TextReader* reader, ValueId* id) {
    StorageId storage;
    ValueId previous;
    if (!reader->ReadStorageId(id) || !reader->Expect("of") || !ReadHome(reader, &storage) || !reader->Expect("over") ||
        !reader->ReadStorageId(&previous)) {
      return false;
    }
    MakeValue(*id) = {static_cast<NodeId>(graph_.nodes.size()), storage, previous, {}};
    return true;
  }

  bool ReadNode(TextReader* reader, Node::Kind kind) {
    Node node;
    node.kind = kind;
    int64_t part = 0;
    node.again = reader->Accept("again");
    if (reader->Accept("part") && !reader->ReadInt(&part)) return false;
    node.part = static_cast<int>(part);
    if (!reader->Expect("into")) return false;
    std::vector<Home> homes;
    while (!reader->Accept(":")) {
      if (!homes.empty() && !reader->Expect(",")) return false;
      homes.emplace_back();
      if (reader->Accept("undef")) continue;
      if (!ReadHome(reader, &homes.back().storage)) return false;
      if (reader->Accept("over") && !reader->ReadStorageId(&homes.back().previous)) return false;
    }
    for (size_t i = 0; i < homes.size(); ++i) {
      if (i > 0 && !reader->Expect(",")) return false;
      if (!ReadResult(reader, homes[i], &node)) return false;
    }
    if (!reader->Expect("=") || !reader->ReadCall(&node.op)) return false;
    if (kind == Node::Kind::kCompute) {
      node.row = FindRowByName(node.op.info->name);
      if (node.row == nullptr) return reader->Reject(absl::StrCat(node.op.info->name, " has no row"));
    }
    if (reader->Accept("writes")) {
      do {
        node.versions.push_back(kNoValue);
        if (!ReadVersion(reader, &node.versions.back())) return false;
      } while (reader->Accept(","));
    }
    graph_.nodes.push_back(std::move(node));
    return true;
  }

  struct Home {
    StorageId storage = kNoStorage;
    ValueId previous = kNoValue;
  };

  bool ReadResult(TextReader* reader, const Home& home, Node* node) {
    const bool dead = reader->Accept("dead");
    TensorRef ref;
    if (!reader->ReadTensor(&ref)) return false;
    node->results.push_back(dead || !ref.defined() ? kNoValue : ref.storage);
    if (node->results.back() != kNoValue) {
      if (home.storage == kNoStorage) return reader->Reject("a result without a storage");
      MakeValue(ref.storage) = {static_cast<NodeId>(graph_.nodes.size()), home.storage, home.previous, ref};
    }
    node->op.results.push_back(std::move(ref));
    return true;
  }

  bool ReadUpdate(TextReader* reader) {
    Node node;
    node.kind = Node::Kind::kUpdate;
    node.op.args.resize(2);
    node.results.push_back(kNoValue);
    int64_t family = 0;
    if (reader->Accept("family") && !reader->ReadInt(&family)) return false;
    node.family = static_cast<int32_t>(family);
    if (!ReadVersion(reader, &node.results[0]) || !reader->Expect(":")) return false;
    for (int i = 0; i < 2; ++i) {
      TensorRef ref;
      if (i == 1 && !reader->Expect("<-")) return false;
      if (!reader->ReadTensor(&ref)) return false;
      node.op.args[i].kind = TraceArg::Kind::kTensor;
      node.op.args[i].tensors.push_back(std::move(ref));
    }
    graph_.nodes.push_back(std::move(node));
    return true;
  }

  bool ReadScatter(TextReader* reader) {
    Node node;
    node.kind = Node::Kind::kUpdate;
    node.results.push_back(kNoValue);
    if (!ReadVersion(reader, &node.results[0]) || !reader->Expect("=") || !reader->ReadCall(&node.op)) return false;
    node.row = FindRowByName(node.op.info->name);
    if (node.row == nullptr || node.row->target_arg < 0) return reader->Reject(absl::StrCat(node.op.info->name, " writes to no index"));
    graph_.nodes.push_back(std::move(node));
    return true;
  }

  bool ReadContent(TextReader* reader) {
    StorageId storage;
    return ReadHome(reader, &storage) && reader->Expect("=") && reader->ReadStorageId(&graph_.contents[storage]);
  }

  template <class List>
  bool ReadInts(TextReader* reader, List* list) {
    if (!reader->Expect("[")) return false;
    while (!reader->Accept("]")) {
      int64_t value;
      if (!list->empty() && !reader->Expect(",")) return false;
      if (!reader->ReadInt(&value)) return false;
      list->push_back(value);
    }
    return true;
  }

  bool ReadGroup(TextReader* reader) {
    Group group;
    if (!ReadInts(reader, &group.nodes)) return false;
    for (NodeId n : group.nodes) {
      if (n < 0 || n >= static_cast<NodeId>(graph_.nodes.size())) return reader->Reject("no such node");
    }
    if (reader->Accept("sizes")) {
      c10::DimVector reduced;
      if (!ReadInts(reader, &group.sizes) || !reader->Expect("reduced") || !ReadInts(reader, &reduced)) return false;
      for (int64_t flag : reduced) group.reduced.push_back(flag != 0);
    }
    graph_.groups.push_back(std::move(group));
    return true;
  }

  void SetDevices() {
    for (Node& node : graph_.nodes) {
      const auto note = [&](ValueId value) {
        if (!DeviceOf(graph_, value).is_cpu()) node.op.device = DeviceOf(graph_, value);
      };
      ForEachUse(node, [&](const TensorRef& use) { note(use.storage); });
      ForEachDef(node, note);
    }
  }

  bool ReadPlace(TextReader* reader) {
    int64_t node;
    if (graph_.groups.empty()) return reader->Reject("no group before this line");
    if (!reader->ReadInt(&node) || !reader->Expect("uses")) return false;
    Placement placement;
    while (!reader->Accept("results")) {
      placement.uses.emplace_back();
      if (!ReadInts(reader, &placement.uses.back())) return false;
    }
    auto* list = &placement.results;
    while (!reader->AtEnd()) {
      if (list == &placement.results && reader->Accept("coordinates")) list = &placement.coordinates;
      list->emplace_back();
      if (!ReadInts(reader, &list->back())) return false;
    }
    graph_.groups.back().placements.push_back(std::move(placement));
    return true;
  }

  Graph graph_;
};

}  // namespace

std::string PrintGraph(const Graph& graph) { return Printer(graph).Print(); }

absl::StatusOr<Graph> ParseGraph(const std::string& text) { return Parser().Parse(text); }

}  // namespace lazuli::codegen
