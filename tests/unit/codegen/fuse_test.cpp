// How spaces join, what fuses and what must not, and that graphs read back from their text.
#include "codegen/passes/fuse.h"

#include <gtest/gtest.h>

#include <ctime>

#include "codegen/graph_builder.h"
#include "codegen/passes/cse.h"
#include "codegen/passes/dce.h"
#include "codegen/passes/space.h"
#include "tests/support/eager_trace.h"

namespace lazuli::codegen {
namespace {

using lazuli::testing::EagerTrace;

Graph Fused(const EagerTrace& trace) {
  auto graph = BuildGraph(trace.trace(), {});
  EXPECT_TRUE(graph.ok()) << graph.status();
  graph = EliminateDeadCode(*std::move(graph));
  graph = EliminateCommonSubexpressions(*std::move(graph));
  graph = Fuse(*std::move(graph), {});
  EXPECT_TRUE(VerifyGraph(*graph).ok()) << VerifyGraph(*graph);
  return *std::move(graph);
}

Space Plain(c10::DimVector sizes) {
  Space space;
  space.reduced.assign(sizes.size(), false);
  space.sizes = std::move(sizes);
  return space;
}

TEST(SpaceTest, DifferentSplitsOfOneSpaceRefine) {
  const auto joined = JoinSpaces(Plain({6, 4}), Plain({2, 3, 2, 2}));
  ASSERT_TRUE(joined.has_value());
  EXPECT_EQ(joined->space.sizes, (c10::DimVector{2, 3, 2, 2}));
  EXPECT_EQ(joined->a.Apply({4, 1}), (c10::DimVector{12, 4, 2, 1}));
  EXPECT_TRUE(joined->b.IsIdentity());
}

TEST(SpaceTest, SplitsThatCrossDoNotJoin) { EXPECT_FALSE(JoinSpaces(Plain({6, 4}), Plain({4, 6})).has_value()); }

TEST(SpaceTest, ValuesInAnotherOrderJoinAlongTheirMemory) {
  // Made in rows of 4, gone through by columns, which are split.
  const auto joined = JoinSpacesAlong(Plain({6, 4}), {4, 1}, Plain({2, 2, 6}), {2, 1, 4});
  ASSERT_TRUE(joined.has_value());
  EXPECT_EQ(joined->a.Apply({4, 1}), joined->b.Apply({2, 1, 4}));
  EXPECT_EQ(joined->space.numel(), 24);
  EXPECT_FALSE(JoinSpacesAlong(Plain({6, 4}), {0, 1}, Plain({4, 6}), {1, 4}).has_value()) << "the same at several points";
  EXPECT_FALSE(JoinSpacesAlong(Plain({6, 4}), {4, 1}, Plain({6}), {4}).has_value()) << "only some of it";
}

TEST(SpaceTest, RowsJoinWhatIsLeftAfterTheReduction) {
  Space full = Plain({5, 7, 3});
  full.reduced[1] = true;
  full.reduces = true;
  const auto joined = JoinSpaces(Plain({15}), full);
  ASSERT_TRUE(joined.has_value());
  EXPECT_EQ(joined->space.sizes, (c10::DimVector{5, 7, 3}));
  EXPECT_EQ(joined->a.Apply({1}), (c10::DimVector{3, 0, 1}));
}

TEST(SpaceTest, ReductionsOverDifferentDimensionsStayApart) {
  Space rows = Plain({5, 7}), columns = Plain({5, 7}), nothing = Plain({5, 7});
  rows.reduced[1] = columns.reduced[0] = true;
  rows.reduces = columns.reduces = nothing.reduces = true;
  EXPECT_FALSE(JoinSpaces(rows, columns).has_value());
  EXPECT_FALSE(JoinSpaces(rows, nothing).has_value());
  EXPECT_TRUE(JoinSpaces(rows, rows).has_value());
}

TEST(FuseTest, ProducerReductionAndConsumersAreOneGroup) {
  EagerTrace t;
  const auto a = t.Input(at::randn({10, 16}));
  const auto x = t.Op1("aten::mul.Tensor", {a, 2.0});
  const auto mean = t.Op1("aten::mean.dim", {x, std::vector<int64_t>{1}, false});
  const auto scaled = t.Op1("aten::add.Tensor", {mean, 1.0, 1});
  t.Keep(t.Op1("aten::sub.Tensor", {x, scaled.unsqueeze(1), 1}));
  EXPECT_EQ(Fused(t).groups.size(), 1u);
}

TEST(FuseTest, TheSameNumberBringsNoKernelsTogether) {
  EagerTrace t;
  const auto a = t.Input(at::randn({64})), b = t.Input(at::randn({64}));
  const auto zeros = t.Op1("aten::zeros_like", {a, c10::IValue(), c10::IValue(), c10::IValue(), c10::IValue(), c10::IValue()});
  t.Keep(t.Op1("aten::maximum", {a, zeros}));
  t.Keep(t.Op1("aten::minimum", {b, zeros}));
  EXPECT_EQ(Fused(t).groups.size(), 3u) << "that of the number, which need not run, and two that do not wait for each other";
}

TEST(FuseTest, AFlattenedViewFuses) {
  EagerTrace t;
  const auto a = t.Input(at::randn({2, 3, 4}));
  const auto x = t.Op1("aten::mul.Tensor", {a, 2.0});
  t.Keep(t.Op1("aten::tanh", {x.view({6, 4})}));
  EXPECT_EQ(Fused(t).groups.size(), 1u);
}

TEST(FuseTest, ATransposedUseDoesNot) {
  EagerTrace t;
  const auto a = t.Input(at::randn({6, 6}));
  const auto x = t.Op1("aten::mul.Tensor", {a, 2.0});
  t.Keep(t.Op1("aten::add.Tensor", {x, x.t(), 1}));
  EXPECT_EQ(Fused(t).groups.size(), 2u);
}

TEST(FuseTest, WhatIsMadeAndCopiedToAnotherLayoutIsOneGroup) {
  EagerTrace t;
  const auto a = t.Input(at::randn({2, 3, 4, 5}));
  const auto x = t.Op1("aten::mul.Tensor", {a, 2.0});
  const auto copy = t.Op1("aten::clone", {x.permute({3, 1, 0, 2}), at::MemoryFormat::Contiguous});
  t.Keep(t.Op1("aten::tanh", {copy.view({15, 8})}));
  EXPECT_EQ(Fused(t).groups.size(), 1u);
}

TEST(FuseTest, NoCycleThroughALibraryCall) {
  EagerTrace t;
  const auto a = t.Input(at::randn({6, 6}));
  const auto x = t.Op1("aten::mul.Tensor", {a, 2.0});
  const auto product = t.Op1("aten::mm", {x, a});
  t.Keep(t.Op1("aten::add.Tensor", {x, product, 1}));
  EXPECT_EQ(Fused(t).groups.size(), 3u);
}

TEST(FuseTest, AnUpdateWaitsForReadersOfTheOldContent) {
  EagerTrace t;
  const auto a = t.Input(at::randn({6, 6}));
  const auto product = t.Op1("aten::mm", {a, a});
  t.Op("aten::mul_.Tensor", {a, 2.0});
  t.Keep(product);
  const Graph graph = Fused(t);
  ASSERT_EQ(graph.groups.size(), 2u);
  EXPECT_FALSE(graph.groups[0].is_kernel());
}

TEST(FuseTest, ACopyOntoItsOwnTransposeIsTwoKernels) {
  EagerTrace t;
  const auto a = t.Input(at::randn({6, 6}));
  const auto x = t.Op1("aten::mul.Tensor", {a.t(), 2.0});
  t.Op("aten::copy_", {a, x});
  EXPECT_EQ(Fused(t).groups.size(), 2u);
}

TEST(FuseTest, AReductionMayMoveWhatItReads) {
  EagerTrace t;
  const auto x = t.Input(at::randn({6, 8})), sums = t.Input(at::randn({6}));
  t.Op("aten::mul_.Tensor", {sums, 0.9});
  t.Op("aten::add_.Tensor", {sums, t.Op1("aten::sum.dim_IntList", {x, std::vector<int64_t>{1}, false}), 0.1});
  EXPECT_EQ(Fused(t).groups.size(), 1u);
}

TEST(FuseTest, AnOverwrittenUpdateIsNeverMade) {
  EagerTrace t;
  const auto m = t.Input(at::randn({6})), g = t.Input(at::randn({6}));
  t.Op("aten::mul_.Tensor", {m, 0.9});
  t.Op("aten::add_.Tensor", {m, g, 0.1});
  const Graph graph = Fused(t);
  int updates = 0;
  for (const Node& node : graph.nodes) updates += node.kind == Node::Kind::kUpdate;
  EXPECT_EQ(updates, 1);
}

TEST(FuseTest, EqualNodesAreOne) {
  EagerTrace t;
  const auto a = t.Input(at::randn({6}));
  const auto x = t.Op1("aten::exp", {a}), y = t.Op1("aten::exp", {a});
  t.Keep(t.Op1("aten::mul.Tensor", {x, y}));
  EXPECT_EQ(Fused(t).nodes.size(), 2u);
}

TEST(GraphTextTest, ReadsBack) {
  EagerTrace t;
  const auto a = t.Input(at::randn({6, 8})), w = t.Input(at::randn({8}));
  const auto ln = t.Op("aten::native_layer_norm", {a, std::vector<int64_t>{8}, w, c10::IValue(), 1e-5});
  t.Op("aten::add_.Tensor", {a.slice(1, 2, 5), ln[0].slice(1, 0, 3), 0.5});
  t.Op("aten::index_fill_.int_Scalar", {a, 0, t.Input(at::zeros({1}, at::kLong)), 0.5});
  t.Keep(t.Op1("aten::gelu", {ln[0], "tanh"}));
  // An operator in pieces, with temporaries of their own.
  const auto mean = t.Input(at::zeros({8})), var = t.Input(at::ones({8}));
  t.Keep(t.Op("aten::native_batch_norm", {a, w, c10::IValue(), mean, var, true, 0.1, 1e-5})[0]);
  // Windows, and what is written where indices say.
  const auto b = t.Input(at::randn({6, 8}));
  t.Keep(t.Op1("aten::cat", {std::vector<at::Tensor>{t.Op1("aten::exp", {a}), t.Op1("aten::exp", {b})}, 1}));
  t.Keep(t.Op1("aten::roll", {b.slice(0, 1), std::vector<int64_t>{2}, std::vector<int64_t>{0}}));
  t.Keep(t.Op1("aten::index_add", {b, 0, t.Input(at::zeros({6}, at::kLong)), b, 1}));
  const std::string text = PrintGraph(Fused(t));
  const auto graph = ParseGraph(text);
  ASSERT_TRUE(graph.ok()) << graph.status() << "\n" << text;
  EXPECT_EQ(PrintGraph(*graph), text);
  EXPECT_TRUE(VerifyGraph(*graph).ok()) << VerifyGraph(*graph);
}

TEST(FuseTest, FourThousandOpsTakeMilliseconds) {
  EagerTrace t;
  auto x = t.Input(at::randn({4, 4}));
  for (int i = 0; i < 1300; ++i) {
    x = t.Op1("aten::mul.Tensor", {x, 0.5});
    const auto row = t.Op1("aten::sum.dim_IntList", {x, std::vector<int64_t>{1}, true});
    x = t.Op1("aten::add.Tensor", {x, row, 1});
    if (i % 10 == 0) x = t.Op1("aten::mm", {x, x});
  }
  t.Keep(x);
  // Time of this thread's processor, so that other processes do not count.
  const std::clock_t begin = std::clock();
  const Graph graph = Fused(t);
  const double ms = 1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_LT(ms, 1000) << graph.nodes.size() << " nodes, " << graph.groups.size() << " groups";
  RecordProperty("milliseconds", static_cast<int>(ms));
}

}  // namespace
}  // namespace lazuli::codegen
