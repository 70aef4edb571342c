#include "codegen/passes/min_cut.h"

#include <algorithm>
#include <deque>

namespace lazuli::codegen {

int MinCut::AddNode() {
  out_.emplace_back();
  return static_cast<int>(out_.size()) - 1;
}

void MinCut::AddEdge(int from, int to, int64_t cost) {
  out_[from].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({to, cost});
  out_[to].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({from, 0});
}

// Fills the shortest path from source to sink. False: there is none.
bool MinCut::Augment() {
  std::vector<int> by(out_.size(), -1);  // The edge that led to a node.
  std::deque<int> next{kSource};
  while (!next.empty() && by[kSink] < 0) {
    const int node = next.front();
    next.pop_front();
    for (const int e : out_[node]) {
      const int to = edges_[e].to;
      if (edges_[e].left == 0 || to == kSource || by[to] >= 0) continue;
      by[to] = e;
      next.push_back(to);
    }
  }
  if (by[kSink] < 0) return false;
  int64_t least = kNever;
  for (int node = kSink; node != kSource; node = edges_[by[node] ^ 1].to) least = std::min(least, edges_[by[node]].left);
  for (int node = kSink; node != kSource; node = edges_[by[node] ^ 1].to) {
    edges_[by[node]].left -= least;
    edges_[by[node] ^ 1].left += least;
  }
  return true;
}

std::vector<bool> MinCut::SourceSide() {
  while (Augment()) {
  }
  std::vector<bool> reached(out_.size(), false);
  std::vector<int> next{kSource};
  reached[kSource] = true;
  while (!next.empty()) {
    const int node = next.back();
    next.pop_back();
    for (const int e : out_[node]) {
      if (edges_[e].left == 0 || reached[edges_[e].to]) continue;
      reached[edges_[e].to] = true;
      next.push_back(edges_[e].to);
    }
  }
  return reached;
}

}  // namespace lazuli::codegen
