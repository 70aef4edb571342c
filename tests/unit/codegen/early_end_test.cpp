// Where traces are cut in two.
#include "codegen/passes/early_end.h"

#include <gtest/gtest.h>

#include "codegen/pipeline.h"
#include "tests/support/eager_trace.h"

namespace lazuli::codegen {
namespace {

using lazuli::testing::EagerTrace;

int32_t EarlyEndOf(const EagerTrace& trace) {
  const auto graph = RunPasses(trace.trace(), {}, "fuse");
  EXPECT_TRUE(graph.ok()) << graph.status();
  return EarlyEnd(*graph);
}

TEST(EarlyEndTest, LayersAreCutBetweenTwo) {
  EagerTrace trace;
  const at::Tensor w = trace.Input(at::randn({40, 40}));
  at::Tensor x = trace.Input(at::randn({40, 40}));
  constexpr int kLayers = 16, kOps = 8;
  for (int layer = 0; layer < kLayers; ++layer) {
    x = trace.Op1("aten::mm", {x, w});
    for (int op = 1; op < kOps; ++op) x = trace.Op1("aten::tanh", {x});
  }
  trace.Keep(x);
  const int32_t end = EarlyEndOf(trace);
  EXPECT_EQ(end, kLayers * kOps / 4);
}

TEST(EarlyEndTest, OneKernelIsNotCutIntoMany) {
  EagerTrace trace;
  std::vector<at::Tensor> chains;
  for (int c = 0; c < 8; ++c) chains.push_back(trace.Input(at::randn({10 + c})));
  // As optimizers do: the same operator for each parameter, then the next operator.
  for (int op = 0; op < 16; ++op) {
    for (at::Tensor& x : chains) x = trace.Op1("aten::tanh", {x});
  }
  for (const at::Tensor& x : chains) trace.Keep(x);
  EXPECT_EQ(EarlyEndOf(trace), 0);
}

TEST(EarlyEndTest, ShortTracesStayWhole) {
  EagerTrace trace;
  at::Tensor x = trace.Input(at::randn({40, 40}));
  for (int i = 0; i < 12; ++i) x = trace.Op1("aten::mm", {x, x});
  trace.Keep(x);
  EXPECT_EQ(EarlyEndOf(trace), 0);
}

}  // namespace
}  // namespace lazuli::codegen
