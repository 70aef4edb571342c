// Traces with storages on the CPU and on a GPU: what is generated for which, and where memory is.
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "codegen/ir/trace.h"
#include "codegen/lower.h"
#include "codegen/out_variants.h"
#include "codegen/passes/value_uses.h"
#include "tests/support/gpu_graph.h"
#include "tests/support/gpu_target.h"

namespace lazuli::codegen {
namespace {

using lazuli::testing::GpuGraph;
using lazuli::testing::LowerFirstGroup;

constexpr const char* kBothDevices = R"(
trace scalars=0 offsets=0
storage %0: input cpu
storage %1: input cuda:0
storage %2: fresh 32 bytes cpu live
storage %3: fresh 32 bytes cuda:0
storage %4: fresh 32 bytes cuda:0 live
%2 f32[8] = aten::neg(%0 f32[8])
%3 f32[8] = aten::neg(%1 f32[8])
%4 f32[8] = aten::exp(%3 f32[8])
)";

constexpr const char* kNumberFromCpu = R"(
trace scalars=0 offsets=0
storage %0: input cpu
storage %1: input cuda:0
storage %2: fresh 32 bytes cuda:0 live
%2 f32[8] = aten::mul.Tensor(%1 f32[8], %0 f32[])
)";

// The steps that `text` is run in, one string for each group: its operators' devices and whether it is a kernel.
std::vector<std::string> StepsOf(const std::string& text, const std::string& cuda_arch) {
  const auto graph = GpuGraph(text, "fuse", cuda_arch);
  EXPECT_TRUE(graph.ok()) << graph.status();
  std::vector<std::string> groups;
  for (const Group& group : graph->groups) {
    groups.push_back(group.is_kernel() ? "kernel" : "call");
    for (const NodeId n : group.nodes) groups.back() += " " + graph->nodes[n].op.device.str();
  }
  return groups;
}

TEST(DevicesTest, KernelsAreOfOneDevice) {
  EXPECT_EQ(StepsOf(kBothDevices, "sm_90"), (std::vector<std::string>{"kernel cpu", "kernel cuda:0 cuda:0"}));
}

// Neither ones_like's operand, whose values do not matter, nor its arguments say where it is.
TEST(DevicesTest, WhatFillsMemoryIsOfItsDevice) {
  const std::string text = R"(
trace scalars=0 offsets=0
storage %0: input cpu
storage %1: input cuda:0
storage %2: fresh 32 bytes cpu
storage %3: fresh 32 bytes cuda:0
storage %4: fresh 32 bytes cuda:0
storage %5: fresh 32 bytes cpu live
storage %6: fresh 32 bytes cuda:0 live
storage %7: fresh 32 bytes cuda:0 live
%2 f32[8] = aten::ones_like(%0 f32[8], dtype=none, layout=none, device=none, pin_memory=none, memory_format=none)
%3 f32[8] = aten::ones_like(%1 f32[8], dtype=none, layout=none, device=none, pin_memory=none, memory_format=none)
%4 f32[8] = aten::ones_like(%1 f32[8], dtype=none, layout=none, device=none, pin_memory=none, memory_format=none)
%5 f32[8] = aten::sub.Tensor(%2 f32[8], %0 f32[8], alpha=1)
%6 f32[8] = aten::sub.Tensor(%3 f32[8], %1 f32[8], alpha=1)
%7 f32[8] = aten::div.Tensor(%4 f32[8], %1 f32[8])
)";
  const auto graph = GpuGraph(text, "cse", "sm_90");
  ASSERT_TRUE(graph.ok()) << graph.status();
  std::vector<c10::Device> fills;
  for (const Node& node : graph->nodes) {
    if (node.op.info->name == "aten::ones_like") fills.push_back(node.op.device);
    ForEachUse(node, [&](const TensorRef& use) { EXPECT_EQ(DeviceOf(*graph, use.storage), node.op.device); });
  }
  EXPECT_EQ(fills, (std::vector<c10::Device>{c10::kCPU, c10::Device(c10::kCUDA, 0)}));
}

TEST(DevicesTest, OperandsFromElsewhereAreAtens) { EXPECT_EQ(StepsOf(kNumberFromCpu, "sm_90"), std::vector<std::string>{"call cuda:0"}); }

// $: an operator's device and type. The CPU's kernels round halves in ways of their own.
TEST(DevicesTest, HalvesThatOnlyGpusCompute) {
  const std::vector<std::string> calls = {"addcmul(%0 $[8], %0 $[8], %0 $[8], 0.5)",
                                          "addcdiv(%0 $[8], %0 $[8], %0 $[8], 0.5)",
                                          "lerp.Scalar(%0 $[8], %0 $[8], 0.25)",
                                          "rsqrt(%0 $[8])",
                                          "pow.Tensor_Scalar(%0 $[8], 3)",
                                          "fmax(%0 $[8], %0 $[8])",
                                          "erf(%0 $[8])",
                                          "atan2(%0 $[8], %0 $[8])",
                                          "elu(%0 $[8], 1, 1, 1)",
                                          "sigmoid_backward(%0 $[8], %0 $[8])",
                                          "mse_loss_backward(%0 $[8], %0 $[8], %0 $[8], 0)",
                                          "prod.dim_int(%0 $[8,1], 1, false, none)"};
  for (const std::string& call : calls) {
    for (const std::string type : {"bf16", "f16", "f32"}) {
      for (const std::string device : {"cpu", "cuda:0"}) {
        const std::string text =
            absl::StrCat("trace scalars=0 offsets=0\nstorage %0: input ", device, "\nstorage %1: fresh ", type == "f32" ? 32 : 16,
                         " bytes ", device, " live\n%1 ", type, "[8] = aten::", absl::StrReplaceAll(call, {{"$", type}}), "\n");
        const bool is_kernel = type == "f32" || device == "cuda:0" || (call.rfind("sigmoid", 0) == 0 && type == "bf16");
        EXPECT_EQ(StepsOf(text, "sm_90"), std::vector<std::string>{(is_kernel ? "kernel " : "call ") + device}) << text;
      }
    }
  }
}

// Statistics of halves are of a GPU's wider type, or of halves.
TEST(DevicesTest, LayerNormOfHalves) {
  constexpr const char* kText = R"(
trace scalars=0 offsets=0
storage %0: input @
storage %1: input @
storage %2: fresh 1024 bytes @ live
storage %3: fresh 32 bytes @ live
storage %4: fresh 32 bytes @ live
%2 bf16[8,64], %3 $[8,1], %4 $[8,1] = aten::native_layer_norm(%0 bf16[8,64], [64], %1 bf16[64], none, 1e-05)
)";
  for (const std::string device : {"cpu", "cuda:0"}) {
    for (const std::string type : {"bf16", "f32"}) {
      EXPECT_EQ(StepsOf(absl::StrReplaceAll(kText, {{"@", device}, {"$", type}}), "sm_90"), std::vector<std::string>{"kernel " + device});
    }
  }
}

// What the CPU's kernel makes of the gradients of halves, adding them up in halves, is nobody else's. The gradient of the input and those
// of weights go over memory in their own ways.
TEST(DevicesTest, GradientsOfNormsOfHalves) {
  constexpr const char* kInputs = R"(
trace scalars=0 offsets=0
storage %0: input @
storage %1: input @
storage %2: input @
storage %3: fresh 1024 bytes @ live
storage %4: fresh 128 bytes @ live
)";
  const std::string layer_norm =
      absl::StrCat(kInputs, "storage %5: fresh 128 bytes @ live\n",
                   "%3 bf16[8,64], %4 bf16[64], %5 bf16[64] = aten::native_layer_norm_backward(%0 bf16[8,64], ",
                   "%0 bf16[8,64], [64], %2 f32[8,1], %2 f32[8,1], %1 bf16[64], %1 bf16[64], bool[true,true,true])\n");
  const std::string rms_norm = absl::StrCat(kInputs, "%3 bf16[8,64], %4 bf16[64] = aten::_fused_rms_norm_backward(%0 bf16[8,64], ",
                                            "%0 bf16[8,64], [64], %2 f32[8,1], %1 bf16[64], bool[true,true])\n");
  for (const std::string& text : {layer_norm, rms_norm}) {
    EXPECT_EQ(StepsOf(absl::StrReplaceAll(text, {{"@", "cpu"}}), "sm_90"), std::vector<std::string>{"call cpu"});
    EXPECT_EQ(StepsOf(absl::StrReplaceAll(text, {{"@", "cuda:0"}}), "sm_90"), (std::vector<std::string>{"kernel cuda:0", "kernel cuda:0"}));
  }
}

// $: the parameter's type.
constexpr const char* kBatchNorm = R"(
trace scalars=0 offsets=0
storage %0: input cuda:0
storage %1: input cuda:0
storage %2: fresh 65536 bytes cuda:0
storage %3: fresh 65536 bytes cuda:0 live
storage %4: fresh 256 bytes cuda:0 live
storage %5: fresh 256 bytes cuda:0 live
%2 bf16[8,64,64] = aten::neg(%0 bf16[8,64,64])
%3 bf16[8,64,64], %4 f32[64], %5 f32[64] = aten::native_batch_norm(%2 bf16[8,64,64], %1 $[64], none, none, none, true, 0.1, 1e-05)
)";

TEST(DevicesTest, BatchNormOfShortNumbersHasWideStatisticsOnGpus) {
  // The statistics read what is negated at one place of each channel as well, so it is stored before them.
  const std::vector<std::string> kernels = {"kernel cuda:0", "kernel cuda:0 cuda:0"};
  EXPECT_EQ(StepsOf(absl::StrReplaceAll(kBatchNorm, {{"$", "f32"}}), "sm_90"), kernels);
  EXPECT_EQ(StepsOf(absl::StrReplaceAll(kBatchNorm, {{"$", "bf16"}}), "sm_90"), kernels);
  EXPECT_EQ(StepsOf(absl::StrReplaceAll(kBatchNorm, {{"$", "f64"}}), "sm_90"), (std::vector<std::string>{"kernel cuda:0", "call cuda:0"}));
  // Statistics of other layouts are rounded to the input's type by ATen.
  const std::string gaps = absl::StrReplaceAll(kBatchNorm, {{"$", "f32"}, {"bf16[8,64,64]", "bf16[8,64,64](4096,1,64)"}});
  EXPECT_EQ(StepsOf(gaps, "sm_90"), (std::vector<std::string>{"kernel cuda:0", "call cuda:0"}));
  const std::string on_cpu = absl::StrReplaceAll(kBatchNorm, {{"$", "f32"}, {"cuda:0", "cpu"}});
  EXPECT_EQ(StepsOf(on_cpu, "sm_90"), (std::vector<std::string>{"kernel cpu", "call cpu"}));
}

TEST(DevicesTest, OperandsWithGapsAreJoinedByKernelsOnGpusAlone) {
  const auto cat = [](const std::string& device, const std::string& strides) {
    const std::string window = " f32[64,64]" + strides;
    return StepsOf("\ntrace scalars=0 offsets=0\nstorage %0: input " + device + "\nstorage %1: input " + device +
                       "\nstorage %2: fresh 32768 bytes " + device + " live\n%2 f32[128,64] = aten::cat({%0" + window + ", %1" + window +
                       "}, dim=0)\n",
                   "sm_90");
  };
  EXPECT_EQ(cat("cuda:0", ""), std::vector<std::string>{"call cuda:0"});
  EXPECT_EQ(cat("cpu", "(1,64)"), std::vector<std::string>{"call cpu"});
  const auto gaps = cat("cuda:0", "(1,64)");
  EXPECT_TRUE(std::none_of(gaps.begin(), gaps.end(), [](const std::string& group) { return group == "call cuda:0"; }));
  EXPECT_FALSE(gaps.empty());
}

// A variant with out= has a kernel for the device, or is no variant there.
TEST(DevicesTest, OutVariantsHaveKernelsForTheDevice) {
  for (const char* device : {"cpu", "cuda:0"}) {
    const auto trace = ParseTrace(absl::StrCat("trace scalars=0 offsets=0\nstorage %0: input ", device, "\nstorage %1: fresh 8 bytes ",
                                               device, " live\n%1 f32[2] = aten::narrow_copy(%0 f32[8], dim=0, start=1, length=2)\n"));
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_EQ(FindOutVariant(trace->ops[0]) != nullptr, trace->ops[0].device.is_cpu()) << device;
  }
}

// LibTorch's variants with out= of Fourier transforms compute aside, and go through the result once more.
TEST(DevicesTest, FourierTransformsHaveNoOutVariant) {
  for (const char* device : {"cpu", "cuda:0"}) {
    const auto trace =
        ParseTrace(absl::StrCat("trace scalars=0 offsets=0\nstorage %0: input ", device, "\nstorage %1: fresh 40 bytes ", device,
                                " live\n%1 c64[5] = aten::_fft_r2c(%0 f32[8], dim=[0], normalization=0, onesided=true)\n"));
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_EQ(FindOutVariant(trace->ops[0]), nullptr) << device;
  }
}

KernelIR FirstKernel(const std::string& text) {
  auto lowered = LowerFirstGroup(text);
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  return std::move(lowered->kernel);
}

// How often the kernel of `call`, on `device`, rounds to BFloat16.
int64_t Roundings(const std::string& call, const std::string& device) {
  const KernelIR kernel = FirstKernel("\ntrace scalars=0 offsets=0\nstorage %0: input " + device + "\nstorage %1: input " + device +
                                      "\nstorage %2: fresh 16 bytes " + device + " live\n%2 bf16[8] = " + call + "\n");
  return std::count_if(kernel.insts.begin(), kernel.insts.end(),
                       [](const KInst& inst) { return inst.op == KOp::kCast && inst.type == c10::ScalarType::BFloat16; });
}

// As in ATen's kernels for either device: a GPU's do not round the number and alpha, and do so after two more steps of tanh's gradient.
TEST(DevicesTest, WhatIsRoundedToBFloat16DependsOnTheDevice) {
  const std::string add = "aten::add.Tensor(%0 bf16[8], 0.3, alpha=1)", tanh = "aten::tanh_backward(%0 bf16[8], %1 bf16[8])";
  EXPECT_EQ(Roundings(add, "cpu") - Roundings(add, "cuda:0"), 2);
  EXPECT_EQ(Roundings(tanh, "cuda:0") - Roundings(tanh, "cpu"), 2);
}

TEST(DevicesTest, WhatWasOnlyWidenedIsNotRounded) {
  EXPECT_EQ(Roundings("aten::gelu_backward(%0 bf16[8], %1 bf16[8], approximate=\"tanh\")", "cuda:0"), 1) << "the result";
  EXPECT_EQ(Roundings("aten::relu(%0 bf16[8])", "cpu"), Roundings("aten::relu(%0 bf16[8])", "cuda:0"));
}

// The gradient of a ReLU, $ columns wide, and the bias's; and columns of which each is divided by its own sum.
constexpr const char* kBiasGradient = R"(
trace scalars=0 offsets=0
storage %0: input @
storage %1: input @
storage %2: fresh 0 bytes @ live
storage %3: fresh 0 bytes @ live
%2 f32[4096,$] = aten::threshold_backward(%0 f32[4096,$], %1 f32[4096,$], threshold=0)
%3 f32[1,$] = aten::sum.dim_IntList(%2 f32[4096,$], dim=[0], keepdim=true, dtype=none)
)";
constexpr const char* kDividedColumns = R"(
trace scalars=0 offsets=0
storage %0: input @
storage %1: fresh 0 bytes @
storage %2: fresh 0 bytes @ live
%1 f32[1,$] = aten::sum.dim_IntList(%0 f32[4096,$], dim=[0], keepdim=true, dtype=none)
%2 f32[4096,$] = aten::div.Tensor(%0 f32[4096,$], %1 f32[1,$])
)";

size_t NumGroups(const std::string& text, const std::string& device, int columns) {
  return StepsOf(absl::StrReplaceAll(text, {{"@", device}, {"$", absl::StrCat(columns)}}), "sm_90").size();
}

TEST(DevicesTest, AGpuStoresWhatItSumsInWideColumns) {
  EXPECT_EQ(NumGroups(kBiasGradient, "cuda:0", 512), 1u);
  EXPECT_EQ(NumGroups(kBiasGradient, "cuda:0", 16), 2u) << "narrow columns";
  EXPECT_EQ(NumGroups(kBiasGradient, "cpu", 512), 2u);
  EXPECT_EQ(NumGroups(kDividedColumns, "cuda:0", 512), 2u) << "what waits for the sums";
}

constexpr const char* kTransposed = R"(
trace scalars=0 offsets=0
storage %0: input @
storage %1: fresh 4194304 bytes @ live
%1 f32[1024,1024] = aten::clone(%0 f32[1024,1024](1,1024), memory_format=0)
)";

TEST(DevicesTest, AGpuTransposesTileByTile) {
  const auto groups = [](const char* device) { return StepsOf(absl::StrReplaceAll(kTransposed, {{"@", device}}), "sm_90"); };
  EXPECT_EQ(groups("cuda:0"), std::vector<std::string>{"kernel cuda:0"});
  EXPECT_EQ(groups("cpu"), std::vector<std::string>{"call cpu"});
}

// The places of the largest of $ numbers in each row, or column.
constexpr const char* kPlaces = R"(
trace scalars=0 offsets=0
storage %0: input @
storage %1: fresh 0 bytes @ live
%1 i64[4096] = aten::argmax(%0 f32[4096,$], dim=1, keepdim=false)
)";
constexpr const char* kPlacesInColumns = R"(
trace scalars=0 offsets=0
storage %0: input @
storage %1: fresh 0 bytes @ live
%1 i64[4096] = aten::argmax(%0 f32[$,4096], dim=0, keepdim=false)
)";
constexpr const char* kPlacesOfDoubled = R"(
trace scalars=0 offsets=0
storage %0: input @
storage %1: fresh 0 bytes @
storage %2: fresh 0 bytes @ live
%1 f32[$,4096] = aten::add.Tensor(%0 f32[$,4096], %0 f32[$,4096], alpha=1)
%2 i64[4096] = aten::argmax(%1 f32[$,4096], dim=0, keepdim=false)
)";

TEST(DevicesTest, AGpuFindsPlacesWhereThatTakesNoSecondLook) {
  const auto steps = [](const char* text, int numbers, const char* device) {
    return StepsOf(absl::StrReplaceAll(text, {{"@", device}, {"$", absl::StrCat(numbers)}}), "sm_90");
  };
  const std::vector<std::string> kernel = {"kernel cuda:0"}, call = {"call cuda:0"};
  EXPECT_EQ(steps(kPlaces, 16000, "cuda:0"), kernel);
  EXPECT_EQ(steps(kPlaces, 17000, "cuda:0"), call) << "rows that no block holds";
  EXPECT_EQ(steps(kPlacesInColumns, 2000, "cuda:0"), kernel) << "32 MiB";
  EXPECT_EQ(steps(kPlacesInColumns, 2100, "cuda:0"), call);
  EXPECT_EQ(steps(kPlacesOfDoubled, 2100, "cuda:0"), std::vector<std::string>{"kernel cuda:0 cuda:0"}) << "not alone";
  EXPECT_EQ(steps(kPlacesInColumns, 2100, "cpu"), std::vector<std::string>{"kernel cpu"});
}

constexpr const char* kEnlarged = R"(
trace scalars=0 offsets=0
storage %0: input @
storage %1: fresh 0 bytes @ live
%1 f32[2,8,16,24]$2 = aten::upsample_bilinear2d(%0 f32[2,8,8,12]$1, output_size=[16,24], align_corners=false, scales_h=none, scales_w=none)
)";

TEST(DevicesTest, ACpuInterpolatesWhereChannelsComeLast) {
  const auto steps = [](const char* device, const char* from, const char* to) {
    return StepsOf(absl::StrReplaceAll(kEnlarged, {{"@", device}, {"$1", from}, {"$2", to}}), "sm_90");
  };
  const char *from = "(768,1,96,8)", *to = "(3072,1,192,8)";
  EXPECT_EQ(steps("cpu", from, to), std::vector<std::string>{"kernel cpu"});
  EXPECT_EQ(steps("cpu", "", ""), std::vector<std::string>{"call cpu"});
  EXPECT_EQ(steps("cuda:0", from, to), std::vector<std::string>{"kernel cuda:0"});
  EXPECT_EQ(steps("cuda:0", "", ""), std::vector<std::string>{"kernel cuda:0"});
}

constexpr const char* kCatDistributed = R"(
trace scalars=0 offsets=1
storage %0: input @
storage %1: fresh 480 bytes @
storage %2: fresh 960 bytes @
storage %3: fresh 960 bytes @
storage %4: fresh 960 bytes @ live
%1 f32[6,20] = aten::neg(%0 f32[6,20](40,1)+o0)
%2 f32[6,40] = aten::cat({%1 f32[6,20], %0 f32[6,20](40,1)}, dim=1)
%3 f32[6,40] = aten::mul.Tensor(%0 f32[6,40], %0 f32[6,40])
%4 f32[6,40] = aten::add.Tensor(%3 f32[6,40], %2 f32[6,40], alpha=1)
)";

TEST(DevicesTest, PartsOfACatAreComputedWhereItIs) {
  for (const std::string device : {"cuda:0", "cpu"}) {
    for (const std::string& step : StepsOf(absl::StrReplaceAll(kCatDistributed, {{"@", device}}), "sm_90")) {
      EXPECT_EQ(step.rfind("kernel " + device, 0), 0) << step;
    }
  }
}

// A copy from channels last, of which @ dimensions are added up.
constexpr const char* kCopiedRows = R"(
trace scalars=0 offsets=0
storage %0: input cuda:0
storage %1: fresh 0 bytes cuda:0
storage %2: fresh 0 bytes cuda:0 live
%1 f32[8,64,56,56] = aten::clone(%0 f32[8,64,56,56](200704,1,3584,64), memory_format=0)
%2 f32[8,$,1,1] = aten::sum.dim_IntList(%1 f32[8,64,56,56], dim=[@], keepdim=true, dtype=none)
)";

TEST(DevicesTest, AGpuCopiesFirstWhatRowsWouldReadInPieces) {
  const auto groups = [](const char* dims, const char* channels) {
    return StepsOf(absl::StrReplaceAll(kCopiedRows, {{"@", dims}, {"$", channels}}), "sm_90").size();
  };
  EXPECT_EQ(groups("1,2,3", "1"), 1u) << "all of it is a row";
  EXPECT_EQ(groups("2,3", "64"), 2u) << "a row has every 64th element";
}

// A training step of cuDNN's batch norm, which reserves $ bytes for its gradient, and that gradient.
constexpr const char* kCudnnBatchNorm = R"(
trace scalars=0 offsets=0
storage %0: input cuda:0
storage %1: input cuda:0
storage %2: input cuda:0
storage %3: input cuda:0
storage %4: fresh 0 bytes cuda:0 live
storage %5: fresh 0 bytes cuda:0
storage %6: fresh 0 bytes cuda:0
storage %7: fresh 0 bytes cuda:0
storage %8: fresh 0 bytes cuda:0 live
storage %9: fresh 0 bytes cuda:0 live
storage %10: fresh 0 bytes cuda:0 live
%4 f32[8,4,6,6], %5 f32[4], %6 f32[4], %7 u8[$] = aten::cudnn_batch_norm(%0 f32[8,4,6,6], %1 f32[4], %1 f32[4], %2 f32[4], %3 f32[4])"
                                        R"(, training=true, exponential_average_factor=0.1, epsilon=1e-05)
%8 f32[8,4,6,6], %9 f32[4], %10 f32[4] = aten::cudnn_batch_norm_backward(%0 f32[8,4,6,6], %4 f32[8,4,6,6], %1 f32[4])"
                                        R"(, %2 f32[4], %3 f32[4], %5 f32[4], %6 f32[4], epsilon=1e-05, %7 u8[$])
)";

TEST(DevicesTest, BatchNormIsCudnnsOnlyWhereThatKeepsSomething) {
  const auto calls = [](int reserved) {
    const auto groups = StepsOf(absl::StrReplaceAll(kCudnnBatchNorm, {{"$", absl::StrCat(reserved)}}), "sm_90");
    return std::count(groups.begin(), groups.end(), "call cuda:0");
  };
  EXPECT_EQ(calls(0), 0);
  EXPECT_EQ(calls(64), 2);
}

constexpr const char* kEmbedding = R"(
trace scalars=0 offsets=0
storage %0: input @
storage %1: input @
storage %2: fresh 1024 bytes @ live
%2 f32[8,32] = aten::embedding(%0 f32[100,32], %1 i64[8], padding_idx=-1, scale_grad_by_freq=false, sparse=false)
)";

// The CPU's are looked at by whoever runs the kernel.
TEST(DevicesTest, AGpuSaysWhichOperatorsIndexIsWrong) {
  for (const std::string device : {"cpu", "cuda:0"}) {
    const KernelIR kernel = FirstKernel(absl::StrReplaceAll(kEmbedding, {{"@", device}}));
    EXPECT_EQ(kernel.checked, device == "cpu" ? "" : "aten::embedding");
    const auto again = ParseKernel(PrintKernel(kernel));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->checked, kernel.checked);
    if (device == "cpu") continue;
    const std::string source = testing::GpuSource(kernel);
    EXPECT_NE(source.find("\"aten::embedding: index or value out of bounds\""), std::string::npos) << source;
  }
}

TEST(DevicesTest, RowsSayWhetherTheyWriteAtIndices) {
  for (const char* name :
       {"aten::index_add", "aten::index_add_", "aten::scatter_add", "aten::index_put_", "aten::embedding_dense_backward"}) {
    ASSERT_NE(FindRowByName(name), nullptr) << name;
    EXPECT_TRUE(FindRowByName(name)->writes_at_indices) << name;
  }
  for (const char* name : {"aten::gather", "aten::embedding", "aten::add.Tensor"})
    EXPECT_FALSE(FindRowByName(name)->writes_at_indices) << name;
}

TEST(DevicesTest, TextKeepsDevices) {
  const auto trace = ParseTrace(kBothDevices);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_TRUE(trace->ops[0].device.is_cpu());
  EXPECT_EQ(trace->ops[2].device, c10::Device(c10::kCUDA, 0));
  const auto graph = GpuGraph(kBothDevices);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto again = ParseGraph(PrintGraph(*graph));
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_EQ(again->nodes.size(), graph->nodes.size());
  for (size_t n = 0; n < graph->nodes.size(); ++n) EXPECT_EQ(again->nodes[n].op.device, graph->nodes[n].op.device);
}

}  // namespace
}  // namespace lazuli::codegen
