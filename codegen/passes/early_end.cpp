#include "codegen/passes/early_end.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "codegen/lower_group.h"
#include "codegen/passes/value_uses.h"

namespace lazuli::codegen {
namespace {

// Work is counted in bytes moved. What a launch takes, what a byte takes the time of in a product, and what a cut may cost, of all work.
constexpr double kLaunch = 4 << 20, kFlopsPerByte = 100, kMostCost = 1.0 / 32;
// What a cut may add to the most memory that is in use at once.
constexpr double kMostMemory = 1.0 / 64;

// Library calls that multiply matrices.
constexpr const char* kProducts[] = {"mm", "linear", "convolution", "attention"};

bool IsProduct(const Node& node) {
  return std::any_of(std::begin(kProducts), std::end(kProducts),
                     [&](const char* part) { return node.op.info->name.find(part) != std::string::npos; });
}

class EarlyEndFinder {
 public:
  explicit EarlyEndFinder(const Graph& graph) : graph_(graph), in_memory_(ValuesInMemory(graph)) {
    int32_t num_ops = 0;
    for (const Node& node : graph.nodes) num_ops = std::max(num_ops, node.op.index + 1);
    work_.resize(static_cast<size_t>(num_ops) + 1, 0);
    for (std::vector<double>* by_place : {&cost_, &in_use_, &added_}) by_place->resize(static_cast<size_t>(num_ops) + 1, 0);
    for (const Group& group : graph.groups) AddWork(group);
    const std::vector<int32_t> last_reader = LastReaders();
    AddStored(last_reader);
    AddTaken(last_reader);
    AddInUse(last_reader);
    for (const Group& group : graph.groups) AddReadsOfBoth(group);
    for (size_t i = 1; i < work_.size(); ++i) {
      for (std::vector<double>* by_place : {&work_, &cost_, &in_use_, &added_}) (*by_place)[i] += (*by_place)[i - 1];
    }
  }

  runtime::EarlyEnds Run() const {
    runtime::EarlyEnds ends{};
    const double part = work_.back() / static_cast<double>(ends.size() + 1);
    for (size_t i = 0; i < ends.size(); ++i) ends[i] = BestNear(part * static_cast<double>(i + 1), part / 3);
    return ends;
  }

 private:
  bool IsStored(ValueId value) const { return graph_.values[value].producer == kNoNode || in_memory_[value]; }
  double Bytes(const TensorRef& ref) const { return static_cast<double>(StoredBytes(graph_, ref)); }

  // Operator `index` comes before the places from index + 1 on.
  void AddWork(const Group& group) {
    absl::flat_hash_set<ValueId> read;
    for (const NodeId n : group.nodes) {
      const Node& node = graph_.nodes[n];
      if (node.op.index < 0) continue;
      double work = n == group.nodes.front() ? kLaunch : 0;
      std::vector<double> elements;
      ForEachUse(node, [&](const TensorRef& use) {
        if (IsStored(use.storage) && read.insert(use.storage).second) work += Bytes(use);
        elements.push_back(static_cast<double>(StoredElements(graph_, use)));
      });
      ForEachDef(node, [&](ValueId value) {
        const Value& made = graph_.values[value];
        if (!made.has_layout()) return;
        if (in_memory_[value]) work += Bytes(made.layout);
        elements.push_back(static_cast<double>(StoredElements(graph_, made.layout)));
      });
      if (!group.is_kernel() && IsProduct(node)) work = std::max(work, Flops(std::move(elements)) / kFlopsPerByte);
      work_[static_cast<size_t>(node.op.index) + 1] += work;
    }
  }

  // Of [m, k] times [k, n] whose three tensors have these numbers of elements: 2mkn. For convolutions it is right up to the kernel's width.
  static double Flops(std::vector<double> elements) {
    if (elements.size() < 3) return 0;
    std::partial_sort(elements.begin(), elements.begin() + 3, elements.end(), std::greater<>());
    return 2 * std::sqrt(elements[0]) * std::sqrt(elements[1]) * std::sqrt(elements[2]);
  }

  std::vector<int32_t> LastReaders() const {
    std::vector<int32_t> last_reader(graph_.values.size(), -1);
    for (const Node& node : graph_.nodes) {
      ForEachUse(node, [&](const TensorRef& use) { last_reader[use.storage] = std::max(last_reader[use.storage], node.op.index); });
    }
    return last_reader;
  }

  // Adds `bytes` at the places after operator `first`, but not after `last`.
  static void Add(std::vector<double>* by_place, int32_t first, int32_t last, double bytes) {
    if (first < 0 || last <= first) return;
    (*by_place)[static_cast<size_t>(first) + 1] += bytes;
    (*by_place)[static_cast<size_t>(last) + 1] -= bytes;
  }
  // What a cut there costs.
  void AddCost(int32_t first, int32_t last, double bytes) { Add(&cost_, first, last, bytes); }

  // A value that only a kernel knows has to be stored and read where a cut comes between its maker and its last reader.
  void AddStored(const std::vector<int32_t>& last_reader) {
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const Value& value = graph_.values[v];
      if (in_memory_[v] || value.producer == kNoNode || !value.has_layout()) continue;
      const int32_t made = graph_.nodes[value.producer].op.index;
      AddCost(made, last_reader[v], 2 * Bytes(value.layout));
      Add(&added_, made, last_reader[v], Bytes(value.layout));
    }
  }

  // A value that takes another one's memory (passes/reuse.h) has its own where a cut comes between that one's maker and the last reader.
  void AddTaken(const std::vector<int32_t>& last_reader) {
    std::vector<ValueId> takers(graph_.values.size(), kNoValue);  // By value: what took its memory, it or one it is a version of, if any.
    std::vector<int32_t> end(graph_.values.size(), -1);           // By taker.
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const ValueId previous = graph_.values[v].previous;
      if (previous == kNoValue) continue;
      const bool takes = graph_.values[v].storage != graph_.values[previous].storage;
      takers[v] = takes ? static_cast<ValueId>(v) : takers[previous];  // Versions of a storage come one after another.
      if (takers[v] != kNoValue) end[takers[v]] = std::max(end[takers[v]], last_reader[v]);
    }
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      if (takers[v] != static_cast<ValueId>(v)) continue;
      const Value& old = graph_.values[graph_.values[v].previous];
      if (old.producer == kNoNode || !old.has_layout()) continue;
      const int32_t made = graph_.nodes[old.producer].op.index;
      AddCost(made, end[v], Bytes(old.layout));
      Add(&added_, made, end[v], Bytes(old.layout));
    }
  }

  // The trace's own memories, each from its first maker to its last reader.
  void AddInUse(const std::vector<int32_t>& last_reader) {
    const std::vector<bool> pinned = PinnedValues(graph_);
    const int32_t last_op = static_cast<int32_t>(in_use_.size()) - 2;
    std::vector<int32_t> last(graph_.values.size(), -1);  // By the first value of a memory.
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const ValueId memory = graph_.MemoryOf(static_cast<ValueId>(v));
      last[memory] = std::max(last[memory], pinned[v] ? last_op : last_reader[v]);
    }
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const Value& value = graph_.values[v];
      const bool is_first = value.previous == kNoValue && value.producer != kNoNode;
      if (is_first && in_memory_[v] && value.has_layout()) {
        Add(&in_use_, graph_.nodes[value.producer].op.index, last[v], Bytes(value.layout));
      }
    }
  }

  // What a kernel reads once, two will read where a cut comes between its nodes.
  void AddReadsOfBoth(const Group& group) {
    if (!group.is_kernel()) return;
    struct Readers {
      int32_t first, last;
      double bytes;
    };
    absl::flat_hash_map<ValueId, Readers> readers;
    for (const NodeId n : group.nodes) {
      const Node& node = graph_.nodes[n];
      if (node.op.index < 0) continue;
      ForEachUse(node, [&](const TensorRef& use) {
        if (!IsStored(use.storage)) return;
        Readers& of = readers.try_emplace(use.storage, Readers{node.op.index, node.op.index, 0}).first->second;
        of = {std::min(of.first, node.op.index), std::max(of.last, node.op.index), Bytes(use)};
      });
    }
    for (const auto& [value, of] : readers) AddCost(of.first, of.last, of.bytes);
  }

  // The cheapest place with about so much work before it where a cut does not raise the most memory in use, the nearest of equals; 0 for
  // none.
  int32_t BestNear(double wanted, double reach) const {
    size_t best = 0;
    const auto is_better = [&](size_t a, size_t b) {
      return cost_[a] != cost_[b] ? cost_[a] < cost_[b] : std::abs(work_[a] - wanted) < std::abs(work_[b] - wanted);
    };
    const double most_in_use = *std::max_element(in_use_.begin(), in_use_.end()) * (1 + kMostMemory);
    const auto begin = static_cast<size_t>(std::lower_bound(work_.begin() + 1, work_.end(), wanted - reach) - work_.begin());
    for (size_t at = begin; at + 1 < work_.size() && work_[at] <= wanted + reach; ++at) {
      if (in_use_[at] + added_[at] <= most_in_use && (best == 0 || is_better(at, best))) best = at;
    }
    return best != 0 && cost_[best] <= work_.back() * kMostCost ? static_cast<int32_t>(best) : 0;
  }

  const Graph& graph_;
  const std::vector<bool> in_memory_;
  // By number of operators before a place: work up to there, the cost of a cut, bytes in use, bytes that a cut adds to them.
  std::vector<double> work_, cost_, in_use_, added_;
};

}  // namespace

runtime::EarlyEnds FindEarlyEnds(const Graph& graph) { return EarlyEndFinder(graph).Run(); }

}  // namespace lazuli::codegen
