// Groups of nodes while they are being fused: what a group goes through, which others it has to follow, and what two of them have to fulfil
// to become one.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "codegen/ir/graph.h"
#include "codegen/passes/bit_set.h"
#include "codegen/passes/fuse.h"
#include "codegen/passes/recorded_apart.h"
#include "codegen/passes/space.h"

namespace lazuli::codegen {

// How far from each other nodes may be whose groups are merged for what both merely read.
constexpr NodeId kSiblingDistance = 48;

struct WorkGroup {
  bool alive = false;
  bool fusable = false;
  bool updates = false;     // Holds an update.
  bool overwrites = false;  // Holds one of memory that had content before.
  bool scatters = false;    // Holds one that writes where indices say.
  bool checks = false;      // Holds a node that checks indices.
  int buffers = 0;          // At most so many does its kernel have.
  Space space;
  std::vector<NodeId> nodes;  // Ascending.
  BitSet ancestors;           // Other groups of the segment that have to run before.
};

// The groups of one segment of the graph at a time; a group is known by the number of its first node within the segment.
class WorkGroups {
 public:
  WorkGroups(Graph graph, const FuseOptions& options);
  WorkGroups(const WorkGroups&) = delete;
  WorkGroups& operator=(const WorkGroups&) = delete;

  // Goes on to the nodes from `begin` to `end`, all of them without a group.
  void BeginSegment(NodeId begin, NodeId end);
  // Makes a group of node `n` alone. Nodes are started in their order.
  void Start(NodeId n);
  // Merges the younger of two groups into the older, if they can be one kernel.
  void TryMerge(int a, int b);
  // Moves `nodes`, which compute something for nobody but `to`, out of `from`, if `to` can hold them. Says whether that was done.
  bool Move(const std::vector<NodeId>& nodes, int from, int to);

  void LeaveToAten(NodeId n);

  Graph& graph() { return graph_; }
  const Graph& graph() const { return graph_; }
  std::vector<WorkGroup>& groups() { return groups_; }
  const std::vector<WorkGroup>& groups() const { return groups_; }
  // The group of a node of this segment.
  int GroupOf(NodeId n) const { return group_of_[n]; }
  Placement& PlacementOf(NodeId n) { return placements_[n]; }
  const Placement& PlacementOf(NodeId n) const { return placements_[n]; }
  const std::vector<NodeId>& UsersOf(ValueId value) const { return users_[value]; }
  const std::vector<std::vector<NodeId>>& preds() const { return preds_; }
  // Whether node `n`, if it is one, is one of this segment.
  bool IsInSegment(NodeId n) const { return n != kNoNode && n >= begin_ && n < end_; }
  // Whether what is not in group `id` reads `value`, or may after the trace.
  bool LeavesGroup(ValueId value, int id) const;

 private:
  std::optional<JoinedSpace> JoinAlongLink(const WorkGroup& a, const WorkGroup& b) const;
  std::optional<std::pair<c10::DimVector, c10::DimVector>> FindLink(const WorkGroup& maker, const WorkGroup& user) const;
  bool Merge(int a, int b, JoinedSpace joined);
  void Place(const std::vector<NodeId>& nodes, const DimMap& map, std::vector<std::pair<NodeId, Placement>>* saved);
  void Restore(std::vector<std::pair<NodeId, Placement>> saved);
  bool PathThroughOther(int first, int last) const;
  void JoinAncestors(int a, int b);
  void FindAncestors();
  bool AreThroughout(const std::vector<NodeId>& nodes, const Space& space) const;
  bool IsConsistent(const std::vector<NodeId>& nodes, const std::vector<NodeId>& changed, int id, const Space& space, bool updates);
  bool ScansFit(const std::vector<NodeId>& nodes, const Space& space) const;
  int CountBuffers(const std::vector<NodeId>& nodes, int id) const;
  bool IsMember(NodeId n, int id) const { return IsInSegment(n) && group_of_[n] == id; }
  bool UsesFit(NodeId n, int id) const;
  bool IsAtDefinition(const TensorRef& use, const c10::DimVector& strides, NodeId producer) const;
  bool MemoryFits(const std::vector<NodeId>& nodes) const;

  Graph graph_;
  const FuseOptions options_;
  const std::vector<std::vector<NodeId>> preds_;
  std::vector<Placement> placements_;       // By node.
  std::vector<int> group_of_;               // By node: index into groups_ of its segment.
  std::vector<std::vector<NodeId>> users_;  // By value.
  const RecordedApart apart_;
  NodeId begin_ = 0, end_ = 0;     // The segment.
  std::vector<WorkGroup> groups_;  // Of the segment.
};

}  // namespace lazuli::codegen
