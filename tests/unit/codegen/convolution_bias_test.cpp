// Biases of convolutions, which on GPUs are added, and their gradients summed up, by kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/support/gpu_graph.h"

namespace lazuli::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string FusedGraphOf(const std::string& text) { return codegen::PrintGraph(ReadableGpuGraph(text, "fuse")); }

// relu of a convolution of 8 images of 4 channels.
std::string Forward(const std::string& weight, const std::string& groups, const std::string& transposed = "false") {
  return absl::StrCat("trace scalars=0 offsets=0\nstorage %0: input cuda:0\nstorage %1: input cuda:0\nstorage %2: input cuda:0\n",
                      "storage %3: fresh 32768 bytes cuda:0\nstorage %4: fresh 32768 bytes cuda:0 live\n",
                      "%3 f32[8,4,16,16] = aten::convolution(%0 f32[8,4,16,16], %1 f32[", weight,
                      "], %2 f32[4], stride=[1,1], padding=[1,1], dilation=[1,1], transposed=", transposed,
                      ", output_padding=[0,0], groups=", groups, ")\n%4 f32[8,4,16,16] = aten::relu(%3 f32[8,4,16,16])\n");
}

TEST(ConvolutionBias, IsAddedWhereTheResultIsUsed) {
  for (const char* transposed : {"false", "true"}) {
    const std::string graph = FusedGraphOf(Forward("4,4,3,3", "1", transposed));
    EXPECT_THAT(graph, HasSubstr("aten::convolution(%0 f32[8,4,16,16], %1 f32[4,4,3,3], undef, "));
    EXPECT_THAT(graph, HasSubstr("f32[4,1,1](1,0,0), alpha=1)"));
    EXPECT_THAT(graph, HasSubstr("group [1,2] sizes [8,4,16,16]")) << "with what follows";
  }
}

TEST(ConvolutionBias, StaysWhereTheKernelAddsIt) {
  EXPECT_THAT(FusedGraphOf(Forward("4,1,3,3", "4")), HasSubstr("%1 f32[4,1,3,3], %2 f32[4], stride")) << "depthwise";
  EXPECT_THAT(FusedGraphOf(Forward("4,2,3,3", "2")), HasSubstr("%1 f32[4,2,3,3], undef, stride"));
  const std::string on_cpu = absl::StrReplaceAll(Forward("4,4,3,3", "1"), {{"cuda:0", "cpu"}});
  EXPECT_THAT(FusedGraphOf(on_cpu), HasSubstr("%1 f32[4,4,3,3], %2 f32[4], stride")) << "oneDNN's does";
}

// The backward pass of a convolution whose result's gradient is `%0` where `%1` is positive.
std::string Backward(const std::string& results, const std::string& mask) {
  return absl::StrCat("trace scalars=1 offsets=0\nstorage %0: input cuda:0\nstorage %1: input cuda:0\nstorage %2: input cuda:0\n",
                      "storage %3: input cuda:0\nstorage %4: fresh 32768 bytes cuda:0\nstorage %5: fresh 32768 bytes cuda:0 live\n",
                      "storage %6: fresh 576 bytes cuda:0 live\nstorage %7: fresh 16 bytes cuda:0 live\n",
                      "%4 f32[8,4,16,16] = aten::threshold_backward(%0 f32[8,4,16,16], %1 f32[8,4,16,16], threshold=#0:i64)\n", results,
                      " = aten::convolution_backward(%4 f32[8,4,16,16], %2 f32[8,4,16,16], %3 f32[4,4,3,3], bias_sizes=[4], stride=[1,1], ",
                      "padding=[1,1], dilation=[1,1], transposed=false, output_padding=[0,0], groups=1, output_mask=bool[", mask, "])\n");
}

TEST(ConvolutionBias, ItsGradientIsASumWithWhatMakesTheResults) {
  const std::string graph = FusedGraphOf(Backward("%5 f32[8,4,16,16], %6 f32[4,4,3,3], %7 f32[4]", "true,true,true"));
  EXPECT_THAT(graph, HasSubstr("output_mask=bool[true,true,false])"));
  EXPECT_THAT(graph, HasSubstr("group [0,1] sizes [8,4,16,16] reduced [1,0,1,1]"));
  EXPECT_THAT(FusedGraphOf(Backward("%5 f32[8,4,16,16], %6 f32[4,4,3,3], undef", "true,true,false")), Not(HasSubstr("aten::sum")));
}

TEST(ConvolutionBias, ItsGradientAloneIsNoConvolution) {
  const std::string graph = FusedGraphOf(Backward("undef, undef, %7 f32[4]", "false,false,true"));
  EXPECT_THAT(graph, Not(HasSubstr("convolution_backward")));
  EXPECT_THAT(graph, HasSubstr("group [0,1] sizes [8,4,16,16] reduced [1,0,1,1]"));
}

TEST(ConvolutionBias, StaysAtensOnCpus) {
  const std::string text =
      absl::StrReplaceAll(Backward("%5 f32[8,4,16,16], %6 f32[4,4,3,3], %7 f32[4]", "true,true,true"), {{"cuda:0", "cpu"}});
  EXPECT_THAT(FusedGraphOf(text), HasSubstr("output_mask=bool[true,true,true])"));
}

}  // namespace
}  // namespace lazuli::testing
