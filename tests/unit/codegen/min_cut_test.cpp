// Cheapest cuts, against all there are.
#include "codegen/passes/min_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

namespace lazuli::codegen {
namespace {

TEST(MinCutTest, CheapestOfAllWithTheFewestOnTheSourcesSide) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  const auto draw = [&](int end) { return std::uniform_int_distribution<int>(0, end - 1)(random); };
  for (int round = 0; round < 300; ++round) {
    const int nodes = 2 + draw(7);
    MinCut cut;
    while (cut.AddNode() + 1 < nodes) {
    }
    std::vector<std::tuple<int, int, int64_t>> edges;
    for (int e = draw(20); e >= 0; --e) edges.emplace_back(draw(nodes), draw(nodes), draw(4) == 0 ? 0 : draw(9));
    for (const auto& [from, to, cost] : edges) cut.AddEdge(from, to, cost);
    const auto cost_of = [&](const std::vector<bool>& side) {
      int64_t sum = 0;
      for (const auto& [from, to, cost] : edges) sum += side[from] && !side[to] ? cost : 0;
      return sum;
    };
    const auto count = [](const std::vector<bool>& side) { return std::count(side.begin(), side.end(), true); };
    const std::vector<bool> chosen = cut.SourceSide();
    ASSERT_TRUE(chosen[MinCut::kSource]);
    ASSERT_FALSE(chosen[MinCut::kSink]);
    for (int bits = 0; bits < 1 << nodes; ++bits) {
      std::vector<bool> side;
      for (int n = 0; n < static_cast<int>(chosen.size()); ++n) side.push_back((bits >> n & 1) != 0);
      if (!side[MinCut::kSource] || side[MinCut::kSink]) continue;
      ASSERT_LE(cost_of(chosen), cost_of(side)) << "seed " << seed << ", round " << round;
      if (cost_of(chosen) == cost_of(side)) ASSERT_LE(count(chosen), count(side)) << "seed " << seed << ", round " << round;
    }
  }
}

}  // namespace
}  // namespace lazuli::codegen
