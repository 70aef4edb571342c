#include "codegen/passes/fuse.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "codegen/lower.h"
#include "codegen/lower_group.h"
#include "codegen/passes/left_to_aten.h"
#include "codegen/passes/move_to_readers.h"
#include "codegen/passes/value_uses.h"
#include "codegen/passes/work_groups.h"

namespace lazuli::codegen {
namespace {

// A path from one node to another only passes through nodes between them, so ancestors are tracked within a segment of the program.
constexpr NodeId kSegment = 4096;
// So many groups are looked at that merely read the same value.
constexpr int kSiblings = 4;
// Points of a space that takes no time to speak of.
constexpr int64_t kSmallSpace = int64_t{1} << 16;
constexpr int64_t kFewElements = 64;
// A space with so many times fewer points than another is small beside it.
constexpr int64_t kSmaller = 16;

class Fuser {
 public:
  Fuser(Graph graph, const FuseOptions& options)
      : options_(options), work_(std::move(graph), options), graph_(work_.graph()), readers_(graph_.values.size()) {}

  Graph Run() {
    for (NodeId begin = 0; begin < NumNodes(); begin += kSegment) {
      begin_ = begin;
      end_ = std::min(NumNodes(), begin + kSegment);
      work_.BeginSegment(begin_, end_);
      for (NodeId n = begin_; n < end_; ++n) {
        work_.Start(n);
        if (options_.enabled && groups()[work_.GroupOf(n)].fusable && !graph_.nodes[n].again) TryCandidates(n);
      }
      TryPostponed();
      if (options_.enabled) MoveToReaders(&work_);
      for (WorkGroup& group : groups()) {
        if (group.alive) done_.push_back(std::move(group));
      }
    }
    Order();
    return std::move(graph_);
  }

 private:
  NodeId NumNodes() const { return static_cast<NodeId>(graph_.nodes.size()); }
  std::vector<WorkGroup>& groups() { return work_.groups(); }
  const std::vector<WorkGroup>& groups() const { return work_.groups(); }

  void TryCandidates(NodeId n) {
    std::vector<int> candidates;
    const auto add = [&](NodeId node) {
      if (node < begin_) return;
      const int group = work_.GroupOf(node);
      if (group >= 0 && groups()[group].fusable && std::find(candidates.begin(), candidates.end(), group) == candidates.end()) {
        candidates.push_back(group);
      }
    };
    ForEachUseOf(n, [&](const TensorRef& use) {
      const NodeId producer = graph_.values[use.storage].producer;
      if (producer != kNoNode && !IsUniform(graph_, use.storage)) add(producer);
    });
    PutTargetLast(n, &candidates);
    const size_t num_producers = candidates.size();
    ForEachUseOf(n, [&](const TensorRef& use) {
      if (IsUniform(graph_, use.storage)) return;  // A number in the kernel's text: reading it once saves nothing.
      auto& readers = readers_[use.storage];
      for (size_t i = readers.size(), tried = 0; i-- > 0 && tried < kSiblings && n - readers[i] < kSiblingDistance; ++tried) {
        add(readers[i]);
      }
      readers.push_back(n);
    });
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (!groups()[candidates[i]].alive) continue;
      const int group = work_.GroupOf(n);
      const bool may_wait = i >= num_producers ? MakesWait(candidates[i], group) || MakesWait(group, candidates[i])
                                               : IsSmallBeside(candidates[i], n) && MakesWait(candidates[i], group);
      if (may_wait) {
        postponed_.emplace_back(candidates[i], n);
      } else {
        work_.TryMerge(candidates[i], group);
      }
    }
  }

  // An update of more than a few numbers, which many kernels may make at once, had better be part of the kernel that makes what it writes
  // than of one that writes other parts of its memory.
  void PutTargetLast(NodeId n, std::vector<int>* candidates) const {
    const Node& node = graph_.nodes[n];
    if (node.kind != Node::Kind::kUpdate || node.family == 0 || StoredElements(graph_, node.Target()) < kFewElements) return;
    const NodeId before = graph_.values[node.Target().storage].producer;
    if (before == kNoNode || before < begin_) return;
    const auto found = std::find(candidates->begin(), candidates->end(), work_.GroupOf(before));
    if (found != candidates->end()) std::rotate(found, found + 1, candidates->end());
  }

  // That a group goes through. Symbols count as a value that they had.
  int64_t Points(int group) const { return graph_.symbols.Hint(groups()[group].space.numel()); }

  // Whether a group is small beside what node `n` goes through, or picks from: targets beside logits.
  bool IsSmallBeside(int group, NodeId n) const {
    int64_t elements = Points(work_.GroupOf(n));
    ForEachUse(graph_.nodes[n], [&](const TensorRef& use) { elements = std::max(elements, StoredElements(graph_, use)); });
    return Points(group) <= elements / kSmaller;
  }

  // Whether a small group `a`, which others need, too, would have to wait for more than it does if `b` joined it.
  bool MakesWait(int a, int b) {
    if (a == b || Points(a) > kSmallSpace) return false;
    BitSet joined = groups()[a].ancestors;
    if (!joined.Add(groups()[b].ancestors)) return false;
    for (const NodeId n : groups()[a].nodes) {
      for (const ValueId result : graph_.nodes[n].results) {
        if (result == kNoValue) continue;
        for (const NodeId user : work_.UsersOf(result)) {
          if (user >= end_ || (work_.GroupOf(user) != a && work_.GroupOf(user) != b)) return true;
        }
      }
    }
    return false;
  }

  // What is small saves little where it is read once for two groups, and may keep large groups from each other: it comes last.
  void TryPostponed() {
    for (const auto& [group, n] : postponed_) {
      if (groups()[group].alive) work_.TryMerge(group, work_.GroupOf(n));
    }
    postponed_.clear();
  }

  // The uses of node `n`: first those of what is computed again for it, with which it fuses before anything else, then all others, those of
  // these nodes included.
  template <class Fn>
  void ForEachUseOf(NodeId n, const Fn& fn) {
    std::vector<NodeId> nodes = {n};
    const auto is_again = [&](const TensorRef& use) {
      const NodeId producer = graph_.values[use.storage].producer;
      return producer != kNoNode && graph_.nodes[producer].again;
    };
    for (size_t i = 0; i < nodes.size(); ++i) {
      ForEachUse(graph_.nodes[nodes[i]], [&](const TensorRef& use) {
        if (!is_again(use)) return;
        fn(use);
        nodes.push_back(graph_.values[use.storage].producer);
      });
    }
    for (const NodeId node : nodes) {
      ForEachUse(graph_.nodes[node], [&](const TensorRef& use) {
        if (!is_again(use)) fn(use);
      });
    }
  }

  // Puts the groups in an order to run them in, as close to program order as they allow.
  void Order() {
    std::vector<int> owner(graph_.nodes.size());
    for (size_t g = 0; g < done_.size(); ++g) {
      for (NodeId n : done_[g].nodes) owner[n] = static_cast<int>(g);
    }
    std::vector<std::vector<int>> after(done_.size());
    std::vector<int> waiting(done_.size(), 0);
    for (NodeId n = 0; n < NumNodes(); ++n) {
      for (NodeId pred : work_.preds()[n]) {
        if (owner[pred] == owner[n]) continue;
        after[owner[pred]].push_back(owner[n]);
        ++waiting[owner[n]];
      }
    }
    using Entry = std::pair<NodeId, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> ready;
    for (size_t g = 0; g < done_.size(); ++g) {
      if (waiting[g] == 0) ready.push({done_[g].nodes.back(), static_cast<int>(g)});
    }
    while (!ready.empty()) {
      const int g = ready.top().second;
      ready.pop();
      Finish(done_[g]);
      for (int next : after[g]) {
        if (--waiting[next] == 0) ready.push({done_[next].nodes.back(), next});
      }
    }
  }

  void Finish(WorkGroup& group) {
    Group out;
    const NodeId first = group.nodes[0];
    if (group.fusable && options_.enabled && group.nodes.size() == 1 &&
        IsBetterLeftToAten(graph_, graph_.nodes[first], work_.PlacementOf(first), group.space)) {
      work_.LeaveToAten(first);
      group.fusable = false;
    }
    out.nodes = std::move(group.nodes);
    if (group.fusable) {
      out.sizes = std::move(group.space.sizes);
      out.reduced = std::move(group.space.reduced);
      for (NodeId n : out.nodes) out.placements.push_back(std::move(work_.PlacementOf(n)));
    }
    graph_.groups.push_back(std::move(out));
  }

  const FuseOptions options_;
  WorkGroups work_;
  Graph& graph_;                              // That of `work_`.
  std::vector<std::vector<NodeId>> readers_;  // By value: fusable nodes seen so far that read it.
  NodeId begin_ = 0, end_ = 0;                // The segment.
  std::vector<WorkGroup> done_;
  std::vector<std::pair<int, NodeId>> postponed_;  // Of the segment: groups and nodes to merge with them when all else is done.
};

}  // namespace

absl::StatusOr<Graph> Fuse(Graph graph, const FuseOptions& options) { return Fuser(std::move(graph), options).Run(); }

}  // namespace lazuli::codegen
