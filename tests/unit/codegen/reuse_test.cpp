#include "codegen/passes/reuse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/support/gpu_graph.h"

namespace lazuli::codegen {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

// By storage: "4 over 3" where the result in storage 4 takes the memory of what was in storage 3. `text`'s device is `device`.
std::vector<std::string> Reused(const std::string& text, const std::string& device = "cuda:0") {
  const Graph graph = lazuli::testing::ReadableGpuGraph(absl::StrReplaceAll(text, {{"$", device}}), "reuse");
  std::vector<std::string> reused;
  for (const Value& value : graph.values) {
    if (value.previous != kNoValue) reused.push_back(absl::StrCat(value.storage, " over ", graph.values[value.previous].storage));
  }
  return reused;
}

constexpr const char* kProducts = R"(
trace scalars=0 offsets=0
storage %0: input $
storage %1: input $
storage %2: fresh 1024 bytes $
storage %3: fresh 1024 bytes $
storage %4: fresh 1024 bytes $
storage %5: fresh 1024 bytes $
storage %6: fresh 1024 bytes $
storage %7: fresh 1024 bytes $
storage %8: fresh 1024 bytes $ live
%2 f32[16,16] = aten::mm(%0 f32[16,16], %1 f32[16,16])
%3 f32[16,16] = aten::tanh(%2 f32[16,16])
%4 f32[16,16] = aten::mm(%3 f32[16,16], %1 f32[16,16])
%5 f32[16,16] = aten::sigmoid(%4 f32[16,16])
%6 f32[16,16] = aten::mm(%5 f32[16,16], %1 f32[16,16])
%7 f32[16,16] = aten::add.Tensor(%6 f32[16,16], %4 f32[16,16], alpha=1)
%8 f32[16,16] = aten::mm(%7 f32[16,16], %1 f32[16,16])
)";

// What is read again later (%4) is not taken before that.
TEST(ReuseTest, TheLastReaderTakesTheMemory) { EXPECT_THAT(Reused(kProducts), ElementsAre("3 over 2", "7 over 6")); }

TEST(ReuseTest, NotOnTheCpu) { EXPECT_THAT(Reused(kProducts, "cpu"), IsEmpty()); }

// A chain of kernels over one memory: each product of rows is read by a reduction that keeps them apart.
TEST(ReuseTest, AMemoryIsTakenAgainAndAgain) {
  EXPECT_THAT(Reused(R"(
trace scalars=0 offsets=0
storage %0: input $
storage %1: input $
storage %2: fresh 1024 bytes $
storage %3: fresh 1024 bytes $
storage %4: fresh 64 bytes $
storage %5: fresh 1024 bytes $
storage %6: fresh 1024 bytes $ live
%2 f32[16,16] = aten::mm(%0 f32[16,16], %1 f32[16,16])
%3 f32[16,16] = aten::tanh(%2 f32[16,16])
%4 f32[16] = aten::mv(%3 f32[16,16], %0 f32[16])
%5 f32[16,16] = aten::mul.Tensor(%3 f32[16,16], %4 f32[16])
%6 f32[16,16] = aten::mm(%5 f32[16,16], %1 f32[16,16])
)"),
              ElementsAre("3 over 2", "5 over 3"));
}

// The gradient of a slice of rows, which a reduction makes of what is at the same places: its windows are written there.
constexpr const char* kSliceOfRows = R"(
trace scalars=0 offsets=0
storage %0: input $
storage %1: input $
storage %2: fresh 288 bytes $
storage %3: fresh 256 bytes $
storage %4: fresh 288 bytes $
storage %5: fresh 288 bytes $ live
%2 f32[9,8] = aten::mm(%0 f32[9,8], %1 f32[8,8])
%3 f32[8,8] = aten::_softmax(%2 f32[8,8], dim=-1, half_to_float=false)
%4 f32[9,8] = aten::slice_backward(%3 f32[8,8], input_sizes=[9,8], dim=0, start=FROM, end=9, step=1)
%5 f32[9,8] = aten::mm(%4 f32[9,8], %1 f32[8,8])
)";

TEST(ReuseTest, WindowsAreWrittenOverWhatTheyAreMadeOf) {
  const std::string from_0 = absl::StrReplaceAll(kSliceOfRows, {{"FROM, end=9", "0, end=8"}});
  EXPECT_THAT(Reused(from_0), ElementsAre("4 over 2", "4 over 4"));
  EXPECT_THAT(Reused(from_0, "cpu"), ElementsAre("4 over 4", "4 over 4"));
  // At other places.
  EXPECT_THAT(Reused(absl::StrReplaceAll(kSliceOfRows, {{"FROM", "1"}})), ElementsAre("4 over 4", "4 over 4"));
}

// A cross entropy of sliced logits, the products around it included: its gradient is written over the logits (storage 4).
constexpr const char* kCrossEntropy = R"(
trace scalars=0 offsets=1
storage %0: input $
storage %1: fresh 1600 bytes $
storage %2: input $
storage %3: fresh 512 bytes $
storage %4: fresh 1600 bytes $
storage %5: fresh 1400 bytes $
storage %6: fresh 2800 bytes $
storage %7: input $
storage %8: fresh 112 bytes $
storage %9: fresh 2800 bytes $
storage %10: fresh 4 bytes $ live
storage %11: fresh 4 bytes $
storage %12: fresh 4 bytes $
storage %13: fresh 2800 bytes $
storage %14: fresh 2800 bytes $
storage %15: fresh 1400 bytes $
storage %16: fresh 1600 bytes $
storage %17: fresh 1600 bytes $
storage %18: fresh 512 bytes $
storage %19: fresh 1024 bytes $ live
storage %20: fresh 3200 bytes $ live
%1 bf16[16,50] = aten::_to_copy(%0 f32[16,50], dtype=15~
%3 bf16[2,8,16] = aten::_to_copy(%2 f32[2,8,16], dtype=15~
%4 bf16[16,50] = aten::mm(%3 bf16[16,16], %1 bf16[16,50])
%5 bf16[2,7,50] = aten::clone(%4 bf16[2,7,50](400,50,1), memory_format=0)
%6 f32[14,50] = aten::_to_copy(%5 bf16[14,50], dtype=6~
%8 i64[2,7] = aten::clone(%7 i64[2,7](8,1)+o0, memory_format=0)
%9 f32[14,50] = aten::_log_softmax(%6 f32[14,50], dim=1, half_to_float=false)
%10 f32[], %11 f32[] = aten::nll_loss_forward(%9 f32[14,50], %8 i64[14], weight=none, reduction=1, ignore_index=-100)
%12 f32[] = aten::ones_like(%10 f32[], dtype=none, layout=none, device=none, pin_memory=false, memory_format=1)
%13 f32[14,50] = aten::nll_loss_backward(%12 f32[], %9 f32[14,50], %8 i64[14], undef, reduction=1, ignore_index=-100, %11 f32[])
%14 f32[14,50] = aten::_log_softmax_backward_data(%13 f32[14,50], %9 f32[14,50], dim=1, input_dtype=6)
%15 bf16[14,50] = aten::_to_copy(%14 f32[14,50], dtype=15~
%16 bf16[2,8,50] = aten::slice_backward(%15 bf16[2,7,50], input_sizes=[2,8,50], dim=1, start=0, end=-1, step=1)
%17 bf16[16,50] = aten::mm(%3 bf16[16,16](1,16), %16 bf16[16,50])
%18 bf16[16,16] = aten::mm(%16 bf16[16,50], %1 bf16[50,16](1,50))
%19 f32[2,8,16] = aten::_to_copy(%18 bf16[2,8,16], dtype=6~
%20 f32[16,50] = aten::_to_copy(%17 bf16[16,50], dtype=6~
)";

TEST(ReuseTest, TheGradientOfLogitsIsWrittenOverThem) {
  const std::string rest = ", layout=none, device=none, pin_memory=none, non_blocking=false, memory_format=none)";
  EXPECT_THAT(Reused(absl::StrReplaceAll(kCrossEntropy, {{"~", rest}})), ElementsAre("16 over 4", "16 over 16"));
}

// A gradient that is scaled by what is computed of all of it (clipped), and what is done to it then.
constexpr const char* kClipped = R"(
trace scalars=1 offsets=0
storage %0: input $
storage %1: input $ mutated
storage %2: fresh 262144 bytes $
storage %3: fresh 4 bytes $
storage %4: fresh 262144 bytes $ live
%2 f32[256,256] = aten::mm(%0 f32[256,256], %0 f32[256,256])
%3 f32[] = aten::linalg_vector_norm(%2 f32[256,256], ord=2, dim=none, keepdim=false, dtype=none)
%4 f32[256,256] = aten::mul.Tensor(%2 f32[256,256], %3 f32[])
aten::add_.Tensor(%1 f32[256,256], %4 f32[256,256], alpha=#0:f64)
)";

TEST(ReuseTest, ALargeResultTakesTheMemoryOfWhatItIsMadeOf) {
  EXPECT_THAT(Reused(kClipped), Contains("4 over 2"));
  EXPECT_THAT(Reused(kClipped, "cpu"), Contains("4 over 2"));
}

TEST(ReuseTest, NotInCudaGraphs) {
  const auto trace = ParseTrace(absl::StrReplaceAll(kClipped, {{"$", "cuda:0"}}));
  ASSERT_TRUE(trace.ok()) << trace.status();
  PipelineOptions options;
  options.target.cuda_arch = "sm_90";
  for (const bool cudagraphs : {false, true}) {
    options.cudagraphs = cudagraphs;
    const auto graph = RunPasses(*trace, options, "reuse");
    ASSERT_TRUE(graph.ok()) << graph.status();
    const auto taken = std::count_if(graph->values.begin(), graph->values.end(),
                                     [&](const Value& value) { return value.previous != kNoValue && value.storage == 4; });
    EXPECT_EQ(taken, cudagraphs ? 0 : 1);
  }
}

// Products and the kernels behind them share rows there.
TEST(ReuseTest, OnTheCpuOnlyWhatOthersRead) {
  std::string alone =
      absl::StrReplaceAll(kClipped, {{"%3 f32[] = aten::linalg_vector_norm(%2 ", "%3 f32[] = aten::linalg_vector_norm(%0 "}});
  EXPECT_THAT(Reused(alone), Contains("4 over 2"));
  EXPECT_THAT(Reused(alone, "cpu"), Not(Contains("4 over 2")));
}

// An input, a result that leaves the trace, what becomes one, what is read at other places than the result is stored at (transposed, one
// row for all), what has another type, and what a reduction reads.
TEST(ReuseTest, WhatStays) {
  EXPECT_THAT(Reused(R"(
trace scalars=0 offsets=0
storage %0: input $
storage %1: input $
storage %2: fresh 256 bytes $ live
storage %3: fresh 256 bytes $ live
storage %4: fresh 256 bytes $ live
storage %5: fresh 256 bytes $
storage %6: fresh 256 bytes $ live
storage %7: fresh 32 bytes $
storage %8: fresh 256 bytes $ live
storage %9: fresh 256 bytes $
storage %10: fresh 512 bytes $ live
storage %11: fresh 256 bytes $
storage %12: fresh 256 bytes $ live
storage %13: fresh 256 bytes $
storage %14: fresh 256 bytes $ live
%2 f32[8,8] = aten::relu(%0 f32[8,8])
%3 f32[8,8] = aten::mm(%0 f32[8,8], %1 f32[8,8])
%4 f32[8,8] = aten::relu(%3 f32[8,8])
%5 f32[8,8] = aten::mm(%3 f32[8,8], %1 f32[8,8])
%6 f32[8,8] = aten::mul.Tensor(%1 f32[8,8], %5 f32[8,8](1,8))
%7 f32[8] = aten::mv(%0 f32[8,8], %1 f32[8])
%8 f32[8,8] = aten::add.Tensor(%1 f32[8,8], %7 f32[8], alpha=1)
%9 f32[8,8] = aten::mm(%1 f32[8,8], %0 f32[8,8])
%10 f64[8,8] = aten::_to_copy(%9 f32[8,8], dtype=7, layout=none, device=none, pin_memory=none, non_blocking=false, memory_format=none)
%11 f32[8,8] = aten::mm(%1 f32[8,8], %1 f32[8,8])
%12 f32[8,8] = aten::_softmax(%11 f32[8,8], dim=-1, half_to_float=false)
%13 f32[8,8] = aten::mm(%1 f32[8,8], %1 f32[8,8](1,8))
%14 f32[8,8] = aten::exp(%13 f32[8,8])
)"),
              IsEmpty());
}

}  // namespace
}  // namespace lazuli::codegen
