// The cheapest way to say yes or no to each of several questions, where answers cost something by themselves and in pairs.
#pragma once

#include <cstdint>
#include <vector>

namespace lazuli::codegen {

// A graph whose edges are cut where their beginning is on the source's side and their end is not. Found by augmenting shortest paths
// (Edmonds and Karp, 1972).
class MinCut {
 public:
  static constexpr int kSource = 0, kSink = 1;
  static constexpr int64_t kNever = int64_t{1} << 60;  // What an edge costs that must not be cut.

  int AddNode();
  void AddEdge(int from, int to, int64_t cost);
  // By node: it is on the source's side of the cheapest cut; of several, where that side has the fewest.
  std::vector<bool> SourceSide();

 private:
  struct Edge {
    int to = 0;
    int64_t left = 0;  // Of what it costs.
  };

  bool Augment();

  std::vector<Edge> edges_;  // Each edge comes before its reverse.
  std::vector<std::vector<int>> out_{2};
};

}  // namespace lazuli::codegen
