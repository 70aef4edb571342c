// Sums of columns of what cat or stack puts together. The pass is for GPUs, but what it leaves is a trace like others: values are compared
// on the CPU.
#include "codegen/passes/sum_parts.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "codegen/passes/relayout.h"
#include "codegen/pipeline.h"
#include "runtime/cpu_features.h"
#include "tests/support/eager_trace.h"
#include "tests/support/gpu_graph.h"

namespace lazuli::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBatch = 4, kHeads = 8, kSteps = 256, kWidth = 32;
constexpr double kTolerance = 1e-5;

// Runs the trace as the pass leaves it; returns its text, "" where the pass leaves it alone.
std::string ExpectSameSums(const EagerTrace& t, const codegen::Trace& trace) {
  const auto changed = codegen::SumInParts(trace);
  if (!changed.has_value()) return "";
  codegen::PipelineOptions options;
  options.target.isa = runtime::IsaName(runtime::WidestIsa());
  options.target.precision = "eager";
  auto program = codegen::Compile(*changed, options, nullptr);
  EXPECT_TRUE(program.ok()) << program.status();
  if (program.ok()) t.ExpectMatches(**program, kTolerance, 1e-3);
  return codegen::PrintTrace(*changed);
}

std::string ExpectSameSums(const EagerTrace& t) { return ExpectSameSums(t, t.trace()); }

std::vector<at::Tensor> HeadsOf(EagerTrace* t, int count) {
  std::vector<at::Tensor> parts;
  for (int i = 0; i < count; ++i) parts.push_back(t->Input(at::randn({kBatch, kSteps, kHeads, kWidth}).transpose(1, 2)));
  return parts;
}

at::Tensor Sum(EagerTrace* t, const at::Tensor& of, std::vector<int64_t> dims, bool keepdim = true) {
  at::Tensor sum = t->Op1("aten::sum.dim_IntList", {of, std::move(dims), keepdim, c10::IValue()});
  t->Keep(sum);
  return sum;
}

// The gradient of a product that makes all three: the parts in each row one after the other. That is a copy of what is stacked until it is
// stacked like that from the start.
TEST(SumParts, StackedInRows) {
  EagerTrace t;
  const auto stacked = t.Op1("aten::stack", {HeadsOf(&t, 3), 0});
  const auto rows = t.Op1("aten::clone", {stacked.permute({1, 3, 0, 2, 4}), c10::MemoryFormat::Contiguous});
  Sum(&t, rows.view({kBatch * kSteps, -1}), {0});
  EXPECT_EQ(ExpectSameSums(t), "");
  const auto relaid = codegen::Relayout(t.trace());
  ASSERT_TRUE(relaid.has_value());
  EXPECT_THAT(ExpectSameSums(t, *relaid), HasSubstr("f32[8,32] = aten::sum.dim_IntList(%2 f32[4,8,256,32](65536,32,256,1), dim=[0,2]"));
}

TEST(SumParts, OfStack) {
  for (const int64_t dim : {0, 1, 2, 3, 4}) {
    EagerTrace t;
    const auto stacked = t.Op1("aten::stack", {HeadsOf(&t, 3), dim});
    std::vector<int64_t> dims;
    for (const int64_t d : {0, 2}) dims.push_back(d >= dim ? d + 1 : d);
    Sum(&t, stacked, dims, /*keepdim=*/dim % 2 == 0);
    const std::string text = ExpectSameSums(t);
    EXPECT_THAT(text, HasSubstr("f32[8,32] = aten::sum.dim_IntList(%0 f32[4,8,256,32](65536,32,256,1), dim=[0,2], keepdim=false"));
    EXPECT_THAT(text, HasSubstr("aten::cat({%5 f32[")) << dim;
  }
}

TEST(SumParts, OfCatOfDifferentWidths) {
  EagerTrace t;
  std::vector<at::Tensor> parts;
  for (const int64_t width : {256, 512, 320}) parts.push_back(t.Input(at::randn({2, 1024, width})));
  const auto all = t.Op1("aten::cat", {parts, -1});
  Sum(&t, all.view({2048, 1088}), {0});
  Sum(&t, all, {0, 1}, /*keepdim=*/false);
  Sum(&t, all, {1});
  const std::string text = ExpectSameSums(t);
  EXPECT_THAT(text, HasSubstr("f32[512] = aten::sum.dim_IntList(%1 f32[2,1024,512], dim=[0,1]"));
  EXPECT_THAT(text, HasSubstr("f32[2,320] = aten::sum.dim_IntList(%2 f32[2,1024,320], dim=[1]"));
}

// Dimensions that lie in another order in memory than the sum's.
TEST(SumParts, OfWindowsInOtherOrders) {
  EagerTrace t;
  std::vector<at::Tensor> parts;
  for (int i = 0; i < 2; ++i) parts.push_back(t.Input(at::randn({16, 128, 256})));
  const auto all = t.Op1("aten::cat", {parts, 0});
  Sum(&t, all.transpose(0, 2), {1});                                // [256, 1, 32].
  Sum(&t, all.permute({1, 0, 2}).view({128, 32, 16, 16}), {0, 3});  // A dimension of the parts is kept in part: none.
  const std::string text = ExpectSameSums(t);
  EXPECT_THAT(text, HasSubstr("f32[16,256] = aten::sum.dim_IntList(%0 f32[16,128,256], dim=[1]"));
  EXPECT_THAT(text, HasSubstr("dim=[0,3]"));
}

TEST(SumParts, LeavesOthersAlone) {
  const auto text_of = [](const std::function<void(EagerTrace*)>& build) {
    EagerTrace t;
    build(&t);
    return ExpectSameSums(t);
  };
  // Parts that are added to one another, all or some of the dimensions.
  EXPECT_EQ(text_of([](EagerTrace* t) { Sum(t, t->Op1("aten::stack", {HeadsOf(t, 2), 0}), {0}); }), "");
  EXPECT_EQ(text_of([](EagerTrace* t) { Sum(t, t->Op1("aten::cat", {HeadsOf(t, 2), 1}), {0, 1}); }), "");
  // A window of it.
  EXPECT_EQ(text_of([](EagerTrace* t) { Sum(t, t->Op1("aten::cat", {HeadsOf(t, 2), 1}).narrow(1, 1, 9), {0, 2}); }), "");
  // Small parts, and many.
  EXPECT_EQ(text_of([](EagerTrace* t) {
              std::vector<at::Tensor> parts = {t->Input(at::randn({64, 32})), t->Input(at::randn({64, 32}))};
              Sum(t, t->Op1("aten::cat", {parts, 1}), {0});
            }),
            "");
  EXPECT_EQ(text_of([](EagerTrace* t) { Sum(t, t->Op1("aten::stack", {HeadsOf(t, 9), 0}), {1}); }), "");
  // What is written before it is added up: a part, and all of it.
  EXPECT_EQ(text_of([](EagerTrace* t) {
              const auto parts = HeadsOf(t, 2);
              const auto all = t->Op1("aten::cat", {parts, 1});
              t->Op("aten::mul_.Scalar", {parts[1], 2.0});
              Sum(t, all, {0});
            }),
            "");
  EXPECT_EQ(text_of([](EagerTrace* t) {
              const auto all = t->Op1("aten::cat", {HeadsOf(t, 2), 1});
              t->Op("aten::mul_.Scalar", {all, 2.0});
              Sum(t, all, {0});
            }),
            "");
}

// On a GPU the sums are part of the kernel that puts the parts together. Needs none.
TEST(SumParts, AreOneKernelWithWhatPutsPartsTogether) {
  const char* const text = R"(trace scalars=0 offsets=0
storage %0: input cuda:0
storage %1: input cuda:0
storage %2: input cuda:0
storage %3: fresh 37748736 bytes cuda:0 live
storage %4: fresh 4608 bytes cuda:0 live
%3 bf16[3,8,12,1024,64](768,2359296,64,2304,1) = aten::stack({%0 H, %1 H, %2 H}, dim=0)
%4 bf16[1,2304] = aten::sum.dim_IntList(%3 bf16[8192,2304], dim=[0], keepdim=true, dtype=none)
)";
  const auto graph = GpuGraph(absl::StrReplaceAll(text, {{"H", "bf16[8,12,1024,64](786432,64,768,1)"}}), "fuse");
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->groups.back().nodes.size(), 9u) << codegen::PrintGraph(*graph);  // Three copies, three sums, and their three places.
}

}  // namespace
}  // namespace lazuli::testing
