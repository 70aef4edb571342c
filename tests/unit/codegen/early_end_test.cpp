// Where traces are best cut.
#include "codegen/passes/early_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "codegen/ir/trace_text.h"
#include "codegen/pipeline.h"
#include "tests/support/eager_trace.h"

namespace lazuli::codegen {
namespace {

using lazuli::testing::EagerTrace;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Ge;
using ::testing::Gt;
using ::testing::Le;

runtime::EarlyEnds EarlyEndsOf(const EagerTrace& trace) {
  const auto graph = RunPasses(trace.trace(), {}, "reuse");
  EXPECT_TRUE(graph.ok()) << graph.status();
  return FindEarlyEnds(*graph);
}

TEST(EarlyEndTest, LayersAreCutBetweenTwo) {
  EagerTrace trace;
  const at::Tensor w = trace.Input(at::randn({400, 400}));
  at::Tensor x = trace.Input(at::randn({4000, 400}));
  constexpr int kLayers = 48, kOps = 8;
  for (int layer = 0; layer < kLayers; ++layer) {
    x = trace.Op1("aten::mm", {x, w});
    for (int op = 1; op < kOps; ++op) x = trace.Op1("aten::tanh", {x});
  }
  trace.Keep(x);
  const runtime::EarlyEnds ends = EarlyEndsOf(trace);
  for (size_t i = 0; i < ends.size(); ++i) {
    // Before a layer's product or after it, both of whose results are stored anyway.
    EXPECT_LE(ends[i] % kOps, 1) << i;
    EXPECT_NEAR(ends[i], (i + 1) * kLayers * kOps / 12, kOps) << i;
  }
}

TEST(EarlyEndTest, OneKernelIsNotCutIntoMany) {
  EagerTrace trace;
  std::vector<at::Tensor> chains;
  for (int c = 0; c < 8; ++c) chains.push_back(trace.Input(at::randn({300000 + c})));
  // As optimizers do: the same operator for each parameter, then the next operator.
  for (int op = 0; op < 16; ++op) {
    for (at::Tensor& x : chains) x = trace.Op1("aten::tanh", {x});
  }
  for (const at::Tensor& x : chains) trace.Keep(x);
  EXPECT_THAT(EarlyEndsOf(trace), Each(0));
}

TEST(EarlyEndTest, LargeProductsAreMoreWorkThanTheirBytes) {
  EagerTrace trace;
  at::Tensor x = trace.Input(at::randn({2000, 2000}));
  for (int op = 0; op < 24; ++op) x = trace.Op1("aten::mm", {x, x});
  for (int op = 0; op < 24; ++op) x = trace.Op1("aten::cumsum", {x, int64_t{1}, c10::IValue()});
  trace.Keep(x);
  const runtime::EarlyEnds ends = EarlyEndsOf(trace);
  EXPECT_GE(std::count_if(ends.begin(), ends.end(), [](int32_t end) { return end > 0 && end < 24; }), 8);
}

TEST(EarlyEndTest, WhatAKernelKeepsToItselfIsNotStoredForACut) {
  EagerTrace trace;
  at::Tensor x = trace.Input(at::randn({1000, 400}));
  const at::Tensor early = trace.Op1("aten::exp", {trace.Input(at::randn({4000, 4000}))});
  const at::Tensor w = trace.Input(at::randn({400, 400}));
  for (int op = 0; op < 48; ++op) x = trace.Op1("aten::mm", {x, w});
  trace.Keep(x);
  // The only reader of what came first.
  trace.Keep(trace.Op1("aten::tanh", {early}));
  EXPECT_THAT(EarlyEndsOf(trace), Each(0));
}

TEST(EarlyEndTest, WhatAKernelReadsOnceIsNotReadTwiceForACut) {
  EagerTrace trace;
  const at::Tensor rows = trace.Input(at::randn({4000, 4000}));
  const at::Tensor sums = trace.Op1("aten::sum.dim_IntList", {rows, c10::List<int64_t>({1}), true, c10::IValue()});
  at::Tensor x = trace.Input(at::randn({1000, 400}));
  const at::Tensor w = trace.Input(at::randn({400, 400}));
  for (int op = 0; op < 48; ++op) x = trace.Op1("aten::mm", {x, w});
  trace.Keep(x);
  trace.Keep(trace.Op1("aten::sub.Tensor", {rows, sums, 1}));
  EXPECT_THAT(EarlyEndsOf(trace), Each(0));
}

// A loss over many classes: its gradient takes the memory of the logits, the largest there is. Cut between them, both would be there.
TEST(EarlyEndTest, ACutDoesNotRaiseTheMostMemoryInUse) {
  constexpr int kLayers = 12;
  std::string text = "trace scalars=0 offsets=0\nstorage %0: input cuda:0\nstorage %1: input cuda:0\nstorage %2: input cuda:0\n";
  std::string ops;
  int next = 3;
  const auto op = [&](const std::string& name, int64_t rows, int64_t columns, const std::string& args, bool live = false) {
    absl::StrAppend(&text, "storage %", next, ": fresh ", rows * columns * 4, " bytes cuda:0", live ? " live\n" : "\n");
    absl::StrAppend(&ops, "%", next, " f32[", rows, ",", columns, "] = aten::", name, "(", args, ")\n");
    return absl::StrCat("%", next++, " f32[", rows, ",", columns, "]");
  };
  std::string x = "%0 f32[2000,400]";
  for (int layer = 0; layer < kLayers; ++layer) x = op("mm", 2000, 400, x + ", %1 f32[400,400]");
  const int product = next;
  const std::string logits = op("mm", 2000, 30000, x + ", %2 f32[400,30000]");
  const std::string gradient = op("exp", 2000, 30000, logits);
  x = op("mm", 2000, 400, gradient + ", %2 f32[30000,400](1,30000)");
  const int last = next;
  for (int layer = 0; layer < kLayers; ++layer) x = op("mm", 2000, 400, x + ", %1 f32[400,400]", layer + 1 == kLayers);
  const auto trace = ParseTrace(text + ops);
  ASSERT_TRUE(trace.ok()) << trace.status();
  PipelineOptions options;
  options.target.cuda_arch = "sm_90";
  const auto graph = RunPasses(*trace, options, "reuse");
  ASSERT_TRUE(graph.ok()) << graph.status();
  const bool taken = std::any_of(graph->values.begin(), graph->values.end(), [](const Value& value) { return value.previous != kNoValue; });
  ASSERT_TRUE(taken);
  const auto ends = FindEarlyEnds(*graph);
  // Operators 0 to product - 3 come before the logits; a cut right after the product would keep them.
  EXPECT_THAT(ends, Each(AnyOf(Le(product - 3), Ge(last - 3))));
  EXPECT_THAT(ends, Contains(Gt(0)));
}

}  // namespace
}  // namespace lazuli::codegen
