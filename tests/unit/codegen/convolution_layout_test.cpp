// What lies channels last around convolutions on a GPU.
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

constexpr const char* kForward = "stride=[1,1], padding=[1,1], dilation=[1,1], transposed=false, output_padding=[0,0], groups=";

std::string GraphOf(const std::string& text, const std::string& precision = "eager") {
  return codegen::PrintGraph(ReadableGpuGraph(text, "conv_layout", precision));
}

// The same on a CPU.
std::string CpuGraphOf(const std::string& text, const std::string& precision = "eager") {
  return GraphOf(absl::StrReplaceAll(text, {{"cuda:0", "cpu"}}), precision);
}

// relu, a convolution of 3 x 3, relu, `middle` of that, and another convolution, whose result leaves the trace.
std::string TwoConvolutions(const std::string& type, const std::string& middle, const char* weights = "64,64", int groups = 1) {
  const std::string image = absl::StrCat(type, "[8,64,16,16]"), weight = absl::StrCat(type, "[", weights, ",3,3]");
  const std::string bytes = type == "f32" ? "4194304" : "2097152";
  std::string text = "trace scalars=1 offsets=0\nstorage %0: input cuda:0\nstorage %1: input cuda:0\n";
  for (const int s : {2, 3, 4, 5, 6}) absl::StrAppend(&text, "storage %", s, ": fresh ", bytes, " bytes cuda:0", s == 6 ? " live\n" : "\n");
  absl::StrAppend(&text, "storage %7: fresh 1024 bytes cuda:0\nstorage %8: fresh 1024 bytes cuda:0\n");
  absl::StrAppend(&text, "%2 ", image, " = aten::relu(%0 ", image, ")\n");
  const auto convolve = [&](int to, int from) {
    absl::StrAppend(&text, "%", to, " ", image, " = aten::convolution(%", from, " ", image, ", %1 ", weight, ", undef, ", kForward, groups,
                    ")\n");
  };
  convolve(3, 2);
  absl::StrAppend(&text, "%4 ", image, " = aten::relu(%3 ", image, ")\n");
  absl::StrAppend(&text, absl::StrReplaceAll(middle, {{"IMAGE", image}}), "\n");
  convolve(6, 5);
  return text;
}

constexpr const char* kTwice = "%5 IMAGE = aten::mul.Tensor(%4 IMAGE, %4 IMAGE)";
constexpr const char* kChannelsLast = "bf16[8,64,16,16](16384,1,1024,64)";

TEST(ConvolutionLayout, WhatKernelsMakeOfEachOtherMoves) {
  const std::string graph = GraphOf(TwoConvolutions("bf16", kTwice));
  for (const int value : {2, 3, 4, 5}) {
    EXPECT_THAT(graph, HasSubstr(absl::StrCat(" ", kChannelsLast, " = aten::"))) << value;
  }
  EXPECT_THAT(graph, HasSubstr(absl::StrCat(kChannelsLast, " = aten::mul.Tensor")));
  EXPECT_THAT(graph, HasSubstr("into %6: %6 bf16[8,64,16,16] = aten::clone(")) << "what leaves the trace lies as recorded";
  EXPECT_THAT(graph, Not(HasSubstr("bf16[64,64,3,3](576,1,192,64)"))) << "the input says it";
}

TEST(ConvolutionLayout, FloatsWhereCudnnMayUseTf32) {
  EXPECT_THAT(GraphOf(TwoConvolutions("f32", kTwice)), HasSubstr("(16384,1,1024,64) = aten::mul.Tensor"));
  at::globalContext().setAllowTF32CuDNN(false);
  EXPECT_THAT(GraphOf(TwoConvolutions("f32", kTwice)), Not(HasSubstr("(16384,1,1024,64)")));
  EXPECT_THAT(GraphOf(TwoConvolutions("bf16", kTwice)), HasSubstr("(16384,1,1024,64)"));
  at::globalContext().setAllowTF32CuDNN(true);
}

TEST(ConvolutionLayout, StrictPrecisionAndDeterministicAlgorithmsKeepIt) {
  EXPECT_THAT(GraphOf(TwoConvolutions("bf16", kTwice), "strict"), Not(HasSubstr("(16384,1,1024,64)")));
  at::globalContext().setDeterministicAlgorithms(true, false);
  EXPECT_THAT(GraphOf(TwoConvolutions("bf16", kTwice)), Not(HasSubstr("(16384,1,1024,64)")));
  at::globalContext().setDeterministicAlgorithms(false, false);
}

// Rows of 32 channels' images in one, pieces of 2 channels in the other.
TEST(ConvolutionLayout, NotWhereReductionsWouldReadShortPieces) {
  const std::string text = TwoConvolutions("bf16", R"(%5 IMAGE, %7 f32[8,32], %8 f32[8,32] = aten::native_group_norm(%4 IMAGE, undef, )"
                                                   R"(undef, N=8, C=64, HxW=256, group=32, eps=#0:f64))");
  const std::string graph = GraphOf(text);
  EXPECT_THAT(graph, HasSubstr("bf16[8,64,16,16] = aten::clone("));
  EXPECT_THAT(graph, HasSubstr("aten::native_group_norm(%4 bf16[8,64,16,16], "));
}

TEST(ConvolutionLayout, GroupsOfEightChannels) {
  const std::string text = TwoConvolutions("bf16", R"(%5 IMAGE, %7 f32[8,8], %8 f32[8,8] = aten::native_group_norm(%4 IMAGE, undef, )"
                                                   R"(undef, N=8, C=64, HxW=256, group=8, eps=#0:f64))");
  const std::string graph = GraphOf(text);
  EXPECT_THAT(graph, HasSubstr(absl::StrCat("aten::native_group_norm(%4 ", kChannelsLast)));
  EXPECT_THAT(graph, HasSubstr(absl::StrCat("%5 ", kChannelsLast)));
  EXPECT_THAT(CpuGraphOf(text), HasSubstr("aten::native_group_norm(%4 bf16[8,64,16,16], ")) << "on CPUs groups lie in rows";
}

TEST(ConvolutionLayout, DepthwiseAndGroups) {
  EXPECT_THAT(GraphOf(TwoConvolutions("bf16", kTwice, "64,1", 64)), HasSubstr(absl::StrCat(kChannelsLast, " = aten::convolution")));
  EXPECT_THAT(GraphOf(TwoConvolutions("f32", kTwice, "64,1", 64)), HasSubstr("(16384,1,1024,64) = aten::convolution"));
  EXPECT_THAT(GraphOf(TwoConvolutions("f32", kTwice, "64,32", 2)), HasSubstr("(16384,1,1024,64) = aten::convolution"));
  EXPECT_THAT(GraphOf(TwoConvolutions("f32", kTwice, "64,2", 32)), Not(HasSubstr("(16384,1,1024,64)"))) << "of two channels";
  EXPECT_THAT(GraphOf(TwoConvolutions("bf16", kTwice, "64,32", 2)), Not(HasSubstr("(16384,1,1024,64)")));
}

TEST(ConvolutionLayout, NotWhatAnotherOperatorReads) {
  const std::string text = TwoConvolutions("bf16", "%5 IMAGE = aten::i0(%4 IMAGE)");
  const std::string graph = GraphOf(text);
  EXPECT_THAT(graph, HasSubstr("bf16[8,64,16,16] = aten::i0(%"));
  EXPECT_THAT(graph, HasSubstr(absl::StrCat(kChannelsLast, " = aten::convolution")));
}

// Neither image nor weight is made by the trace: a copy of the weight says where the result is to lie.
TEST(ConvolutionLayout, WeightsOfWhatComesFromOutside) {
  const std::string graph = GraphOf(absl::StrCat(R"(trace scalars=0 offsets=0
storage %0: input cuda:0
storage %1: input cuda:0
storage %2: input cuda:0
storage %3: fresh 2097152 bytes cuda:0
storage %4: fresh 2097152 bytes cuda:0
storage %5: fresh 2097152 bytes cuda:0
storage %6: fresh 2097152 bytes cuda:0 live
%3 bf16[8,64,16,16] = aten::convolution(%0 bf16[8,3,16,16], %1 bf16[64,3,3,3], undef, )",
                                                 kForward, R"(1)
%4 bf16[8,64,16,16] = aten::relu(%3 bf16[8,64,16,16])
%5 bf16[8,64,16,16] = aten::convolution(%4 bf16[8,64,16,16], %2 bf16[64,64,3,3], undef, )",
                                                 kForward, R"(1)
%6 bf16[8,64,16,16] = aten::relu(%5 bf16[8,64,16,16])
)"));
  EXPECT_THAT(graph, HasSubstr("bf16[64,3,3,3](27,1,9,3) = aten::clone(%"));
  EXPECT_THAT(graph, HasSubstr(absl::StrCat(kChannelsLast, " = aten::convolution(%0 bf16[8,3,16,16], %")));
  EXPECT_THAT(graph, HasSubstr("bf16[8,64,16,16] = aten::relu(%")) << "the last one";
}

// Gradients of images and weights; those of weights leave the trace as recorded.
TEST(ConvolutionLayout, GradientsMoveToo) {
  const std::string graph = GraphOf(absl::StrCat(R"(trace scalars=0 offsets=0
storage %0: input cuda:0
storage %1: input cuda:0
storage %2: input cuda:0
storage %3: fresh 2097152 bytes cuda:0
storage %4: fresh 2097152 bytes cuda:0
storage %5: fresh 73728 bytes cuda:0
storage %6: fresh 147456 bytes cuda:0 live
storage %7: fresh 2097152 bytes cuda:0 live
storage %8: fresh 2097152 bytes cuda:0
%3 bf16[8,64,16,16] = aten::relu(%0 bf16[8,64,16,16])
%8 bf16[8,64,16,16] = aten::mul.Tensor(%2 bf16[8,64,16,16], %2 bf16[8,64,16,16])
%4 bf16[8,64,16,16], %5 bf16[64,64,3,3], undef = aten::convolution_backward(%8 bf16[8,64,16,16], %3 bf16[8,64,16,16], )"
                                                 R"(%1 bf16[64,64,3,3], bias_sizes=[0], )",
                                                 kForward,
                                                 R"(1, output_mask=[1,1,0])
%6 f32[64,64,3,3] = aten::_to_copy(%5 bf16[64,64,3,3], dtype=6, layout=none, device=none, pin_memory=none, )"
                                                 R"(non_blocking=false, memory_format=none)
%7 bf16[8,64,16,16] = aten::threshold_backward(%4 bf16[8,64,16,16], %3 bf16[8,64,16,16], threshold=0)
)"));
  EXPECT_THAT(graph, HasSubstr(absl::StrCat(kChannelsLast, ", %")));
  EXPECT_THAT(graph, HasSubstr("bf16[64,64,3,3](576,1,192,64), undef = aten::convolution_backward"));
  EXPECT_THAT(graph, HasSubstr("f32[64,64,3,3] = aten::_to_copy"));
  EXPECT_THAT(graph, HasSubstr("bf16[8,64,16,16] = aten::threshold_backward"));
}

// relu of `in` channels, a convolution to `out` and relu of that, [8, ., 16, 16]; then a convolution to `last`, which leaves the trace.
std::string Chain(int in, int out, int last, const std::string& type = "f32") {
  const auto image = [&](int channels) { return absl::StrCat(type, "[8,", channels, ",16,16]"); };
  std::string text = "trace scalars=0 offsets=0\nstorage %0: input cuda:0\nstorage %1: input cuda:0\nstorage %2: input cuda:0\n";
  int storage = 3;
  for (const int channels : {in, out, out, last}) {
    absl::StrAppend(&text, "storage %", storage, ": fresh ", channels * (type == "f32" ? 8192 : 4096), " bytes cuda:0",
                    storage == 6 ? " live\n" : "\n");
    ++storage;
  }
  absl::StrAppend(&text, "%3 ", image(in), " = aten::relu(%0 ", image(in), ")\n%4 ", image(out), " = aten::convolution(%3 ", image(in),
                  ", %1 ", type, "[", out, ",", in, ",3,3], undef, ", kForward, "1)\n%5 ", image(out), " = aten::relu(%4 ", image(out),
                  ")\n%6 ", image(last), " = aten::convolution(%5 ", image(out), ", %2 ", type, "[", last, ",", out, ",3,3], undef, ",
                  kForward, "1)\n");
  return text;
}

TEST(ConvolutionLayout, OnCpusWhereImagesAreLargerThanWeights) {
  EXPECT_THAT(CpuGraphOf(Chain(16, 32, 4)), HasSubstr("f32[8,32,16,16](8192,1,512,32) = aten::relu("));
  EXPECT_THAT(CpuGraphOf(Chain(16, 32, 4), "strict"), Not(HasSubstr("(8192,1,512,32)")));
  EXPECT_THAT(CpuGraphOf(Chain(256, 256, 4)), Not(HasSubstr("(65536,1,4096,256)"))) << "more weights than images";
  EXPECT_THAT(CpuGraphOf(Chain(16, 32, 4, "bf16")), Not(HasSubstr("(8192,1,512,32)"))) << "not measured";
  at::globalContext().setUserEnabledMkldnn(false);
  EXPECT_THAT(CpuGraphOf(Chain(16, 32, 4)), Not(HasSubstr("(8192,1,512,32)")));
  at::globalContext().setUserEnabledMkldnn(true);
}

// What would be copied counts: the first convolution's image stays where the trace is given it.
TEST(ConvolutionLayout, NotWhereMoreWouldBeCopied) {
  const auto graph = [](int in) {
    return CpuGraphOf(absl::StrReplaceAll(Chain(in, 32, 32),
                                          {{absl::StrCat("%3 f32[8,", in, ",16,16], %1"), absl::StrCat("%0 f32[8,", in, ",16,16], %1")}}));
  };
  EXPECT_THAT(graph(3), HasSubstr("f32[8,32,16,16](8192,1,512,32) = aten::relu("));
  EXPECT_THAT(graph(64), Not(HasSubstr("(8192,1,512,32)")));
}

// Few channels ask for it where nothing is copied, and follow others.
TEST(ConvolutionLayout, FewChannelsOnGpus) {
  for (const char* type : {"f32", "bf16"}) {
    EXPECT_THAT(GraphOf(Chain(16, 16, 3, type)), HasSubstr("[8,16,16,16](4096,1,256,16) = aten::relu(%3"));
    EXPECT_THAT(GraphOf(Chain(8, 8, 3, type)), Not(HasSubstr("[8,8,16,16](2048,1,128,8)"))) << "slower";
    EXPECT_THAT(GraphOf(Chain(8, 64, 64, type)), HasSubstr("[8,64,16,16](16384,1,1024,64) = aten::relu(%3")) << "the second one asks";
  }
}

// Windows of channels that make up an image begin where they do in the other order.
TEST(ConvolutionLayout, WhatIsPutTogetherMoves) {
  const std::string text = absl::StrCat(R"(trace scalars=0 offsets=0
storage %0: input cuda:0
storage %1: input cuda:0
storage %2: input cuda:0
storage %3: fresh 524288 bytes cuda:0
storage %4: fresh 262144 bytes cuda:0
storage %5: fresh 786432 bytes cuda:0
storage %6: fresh 262144 bytes cuda:0
storage %7: fresh 262144 bytes cuda:0 live
%3 f32[8,64,16,16] = aten::relu(%0 f32[8,64,16,16])
%4 f32[8,32,16,16] = aten::convolution(%3 f32[8,64,16,16], %1 f32[32,64,3,3], undef, )",
                                        kForward, R"(1)
%5 f32[8,96,16,16] = aten::cat({%3 f32[8,64,16,16], %4 f32[8,32,16,16]}, dim=1)
%6 f32[8,32,16,16] = aten::convolution(%5 f32[8,96,16,16], %2 f32[32,96,3,3], undef, )",
                                        kForward, R"(1)
%7 f32[8,32,16,16] = aten::relu(%6 f32[8,32,16,16])
)");
  for (const std::string& graph : {GraphOf(text), CpuGraphOf(text)}) {
    EXPECT_THAT(graph, HasSubstr("= [64]\n")) << graph;  // The second window begins 64 channels on, not 64 planes.
    EXPECT_THAT(graph, HasSubstr("f32[8,32,16,16](24576,1,1536,96)+o")) << graph;
    EXPECT_THAT(graph, HasSubstr("aten::convolution(%6 f32[8,96,16,16](24576,1,1536,96), ")) << graph;
  }
}

// oneDNN writes past its memory there.
TEST(ConvolutionLayout, NotOnePixelSteppingOverOthersOfFewChannelsOnCpus) {
  const auto graph = [](int in, const char* stride) {
    return CpuGraphOf(absl::StrReplaceAll(Chain(in, 32, 3), {{absl::StrCat("f32[32,", in, ",3,3]"), absl::StrCat("f32[32,", in, ",1,1]")},
                                                             {"stride=[1,1], padding=[1,1]", stride}}));
  };
  const std::string steps = "f32[8,12,16,16] = aten::relu(";
  EXPECT_THAT(graph(12, "stride=[2,2], padding=[0,0]"), HasSubstr(steps));
  EXPECT_THAT(graph(12, "stride=[1,1], padding=[0,0]"), Not(HasSubstr(steps)));
  EXPECT_THAT(graph(16, "stride=[2,2], padding=[0,0]"), HasSubstr("f32[8,16,16,16](4096,1,256,16) = aten::relu("));
}

}  // namespace
}  // namespace lazuli::testing
