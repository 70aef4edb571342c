// What is computed again rather than stored, and what is not.
#include "codegen/passes/rematerialize.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "codegen/graph_builder.h"
#include "codegen/lower_group.h"
#include "codegen/passes/cse.h"
#include "codegen/passes/dce.h"
#include "codegen/passes/fuse.h"
#include "codegen/pipeline.h"
#include "tests/support/eager_trace.h"
#include "tests/support/gpu_target.h"
#include "tests/support/nvrtc.h"

namespace lazuli::codegen {
namespace {

using lazuli::testing::EagerTrace;
using T = c10::ScalarType;

Graph Compiled(const EagerTrace& trace) {
  auto graph = BuildGraph(trace.trace(), {});
  EXPECT_TRUE(graph.ok()) << graph.status();
  graph = EliminateDeadCode(*std::move(graph));
  graph = EliminateCommonSubexpressions(*std::move(graph));
  graph = Rematerialize(*std::move(graph));
  EXPECT_TRUE(VerifyGraph(*graph).ok()) << VerifyGraph(*graph);
  const std::string text = PrintGraph(*graph);
  const auto parsed = ParseGraph(text);
  EXPECT_TRUE(parsed.ok() && PrintGraph(*parsed) == text) << text;
  graph = Fuse(*std::move(graph), {});
  EXPECT_TRUE(VerifyGraph(*graph).ok()) << VerifyGraph(*graph);
  return *std::move(graph);
}

// Nodes that compute again what others computed.
int Again(const Graph& graph) {
  int count = 0;
  for (const Node& node : graph.nodes) count += node.again ? 1 : 0;
  return count;
}

std::vector<KernelIR> KernelsOf(const Graph& graph) {
  std::vector<KernelIR> kernels;
  const std::vector<bool> in_memory = ValuesInMemory(graph);
  for (const Group& group : graph.groups) {
    if (!group.is_kernel()) continue;
    auto lowered = LowerGroup(graph, group, in_memory);
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    if (!lowered->kernel.insts.empty()) kernels.push_back(std::move(lowered->kernel));
  }
  return kernels;
}

// Buffers of `type` that hold a whole matrix.
int Matrices(const Graph& graph, T type, bool written) {
  constexpr int64_t kFewest = 500;  // Elements.
  int count = 0;
  for (const KernelIR& kernel : KernelsOf(graph)) {
    for (const KBuffer& buffer : kernel.buffers) {
      int64_t elements = 1;
      for (size_t d = 0; d < kernel.sizes.size(); ++d) elements *= buffer.strides[d] == 0 ? 1 : kernel.sizes[d];
      count += elements >= kFewest && buffer.dtype == type && buffer.written == written ? 1 : 0;
    }
  }
  return count;
}

void ExpectRuns(const EagerTrace& trace, double tolerance) {
  for (const char* backend : {"aten", "llvm"}) {
    PipelineOptions options;
    options.backend = backend;
    options.target = {"avx512", "eager"};
    auto program = Compile(trace.trace(), options, nullptr);
    ASSERT_TRUE(program.ok()) << program.status();
    const double allowed = options.backend == "aten" ? 0 : tolerance;
    trace.ExpectMatches(**program, allowed, allowed);
  }
}

struct Logits {
  explicit Logits(EagerTrace& t, T type = T::Float, bool input = false) {
    if (input) {
      x = t.Input(at::randn({12, 70}).to(type));
    } else {
      x = t.Op1("aten::mm", {t.Input(at::randn({12, 8}).to(type)), t.Input(at::randn({8, 70}).to(type))});
    }
    target = t.Input(at::randint(0, 70, {12}, at::kLong));
    wide = type == T::Float ? x : t.Op1("aten::_to_copy", {x, T::Float});
    log_probabilities = t.Op1("aten::_log_softmax", {wide, 1, false});
  }
  at::Tensor x, target, wide, log_probabilities;
};

std::vector<at::Tensor> Loss(EagerTrace& t, const Logits& logits, int64_t reduction = 1, const c10::IValue& weight = {}) {
  return t.Op("aten::nll_loss_forward", {logits.log_probabilities, logits.target, weight, reduction, -100});
}

at::Tensor Gradient(EagerTrace& t, const Logits& logits, const at::Tensor& grad, const at::Tensor& total) {
  const auto g = t.Op1("aten::nll_loss_backward", {grad, logits.log_probabilities, logits.target, c10::IValue(), 1, -100, total});
  return t.Op1("aten::_log_softmax_backward_data", {g, logits.log_probabilities, 1, static_cast<int64_t>(T::Float)});
}

TEST(RematerializeTest, ALossPicksFromTheLogits) {
  for (const T type : {T::Float, T::BFloat16}) {
    for (const bool weighted : {false, true}) {
      EagerTrace t;
      const Logits logits(t, type);
      t.Keep(Loss(t, logits, 1, weighted ? c10::IValue(t.Input(at::rand({70}))) : c10::IValue())[0]);
      const Graph graph = Compiled(t);
      EXPECT_EQ(Matrices(graph, T::Float, /*written=*/true), 0) << PrintGraph(graph);
      ExpectRuns(t, 1e-5);
    }
  }
}

// A loss of `logits`, and a gradient that waits for it, each read the logits, which are of `type`; `again` nodes compute again.
void ExpectReadTwice(EagerTrace& t, const Logits& logits, T type, int again) {
  const auto loss = Loss(t, logits);
  const auto gradient = Gradient(t, logits, t.Op1("aten::mul.Tensor", {loss[0], loss[0]}), loss[1]);
  t.Keep(t.Op1("aten::_to_copy", {gradient, type == T::Float ? T::Double : type}));
  const Graph graph = Compiled(t);
  EXPECT_EQ(Again(graph), again) << PrintGraph(graph);
  EXPECT_EQ(Matrices(graph, T::Float, true), 0) << PrintGraph(graph);
  EXPECT_EQ(Matrices(graph, type, false), 2) << "the logits, once for the loss and once for the gradient";
  ExpectRuns(t, type == T::Float ? 1e-5 : 1e-2);
}

// logits.float().view({-1, 70}), as language models write it.
TEST(RematerializeTest, WhatIsViewedOtherwiseIsComputedAgainInTheShapeOfItsReaders) {
  EagerTrace t;
  Logits logits(t, T::BFloat16);
  logits.wide = t.Op1("aten::_to_copy", {logits.x.view({3, 4, 70}), T::Float}).view({12, 70});
  logits.log_probabilities = t.Op1("aten::_log_softmax", {logits.wide, 1, false});
  ExpectReadTwice(t, logits, T::BFloat16, 3);
}

// A loss would need two elements of the tensor for each.
TEST(RematerializeTest, WhatIsMadeOfTwoWindowsIsNotPickedFromOne) {
  for (const bool transposed : {false, true}) {
    EagerTrace t;
    Logits logits(t);
    const int64_t rows = transposed ? 70 : 12;
    const auto x = t.Op1("aten::mm", {t.Input(at::randn({rows, 8})), t.Input(at::randn({8, transposed ? 70 : 140}))});
    logits.target = t.Input(at::randint(0, 70, {rows}, at::kLong));
    logits.x = t.Op1("aten::add.Tensor", {transposed ? x : x.slice(1, 0, 70), transposed ? x.t() : x.slice(1, 70, 140), 1});
    logits.log_probabilities = t.Op1("aten::_log_softmax", {logits.x, 1, false});
    t.Keep(Loss(t, logits)[0]);
    Compiled(t);
    ExpectRuns(t, 1e-5);
  }
}

TEST(RematerializeTest, AGradientThatWaitsForTheLossReadsTheLogits) {
  for (const T type : {T::Float, T::BFloat16}) {
    EagerTrace t;
    ExpectReadTwice(t, Logits(t, type), type, type == T::Float ? 2 : 3);
  }
}

// A cross entropy of logits in bfloat16, and their gradient, which waits for nothing else.
void KeepLossAndGradient(EagerTrace& t, const Logits& logits) {
  const auto loss = Loss(t, logits);
  t.Keep(loss[0]);
  const auto ones = t.Op1("aten::ones_like", {loss[0]});
  t.Keep(t.Op1("aten::_to_copy", {Gradient(t, logits, ones, loss[1]), T::BFloat16}));
}

// Targets that are the next tokens of two sequences, made contiguous by a copy.
struct NextTokens : Logits {
  explicit NextTokens(EagerTrace& t) : Logits(t, T::BFloat16) {
    const auto tokens = t.Input(at::randint(0, 70, {2, 7}, at::kLong));
    target = t.Op1("aten::clone", {tokens.narrow(1, 1, 6), static_cast<int64_t>(at::MemoryFormat::Contiguous)}).view({12});
  }
};

void ExpectOneKernelReadsTheLogits(const EagerTrace& t) {
  const Graph graph = Compiled(t);
  EXPECT_EQ(Matrices(graph, T::Float, true) + Matrices(graph, T::Float, false), 0) << PrintGraph(graph);
  EXPECT_EQ(Matrices(graph, T::BFloat16, false), 1);
  EXPECT_EQ(Matrices(graph, T::BFloat16, true), 1);
  ExpectRuns(t, 1e-2);
}

TEST(RematerializeTest, AGradientThatNeedNotWaitIsMadeInTheKernelOfTheLoss) {
  EagerTrace t;
  KeepLossAndGradient(t, Logits(t, T::BFloat16));
  ExpectOneKernelReadsTheLogits(t);
}

// How many of them count is known before the logits are: the gradient waits for that alone.
TEST(RematerializeTest, TargetsThatAreCopiedDoNotKeepTheGradientFromTheLoss) {
  EagerTrace t;
  KeepLossAndGradient(t, NextTokens(t));
  ExpectOneKernelReadsTheLogits(t);
}

// Logits of two sequences without the last of each, made contiguous by a copy: what is picked is picked where rows are gone through.
struct SlicedLogits : Logits {
  explicit SlicedLogits(EagerTrace& t, T type, bool transposed) : Logits(t, type) {
    const at::Tensor slice = transposed ? x.t() : x.view({2, 6, 70}).narrow(1, 0, 5);
    const auto copy = t.Op1("aten::clone", {slice, static_cast<int64_t>(at::MemoryFormat::Contiguous)}).view({-1, slice.size(-1)});
    target = t.Input(at::randint(0, copy.size(1), {copy.size(0)}, at::kLong));
    wide = type == T::Float ? copy : t.Op1("aten::_to_copy", {copy, T::Float});
    log_probabilities = t.Op1("aten::_log_softmax", {wide, 1, false});
  }
};

TEST(RematerializeTest, ALossOfASliceReadsTheLogits) {
  for (const T type : {T::Float, T::BFloat16}) {
    EagerTrace t;
    ExpectReadTwice(t, SlicedLogits(t, type, /*transposed=*/false), type, type == T::Float ? 3 : 4);
  }
}

// Reading along columns would cost more than storing what is read along rows.
TEST(RematerializeTest, ACopyThatTransposesIsNotDoneAgain) {
  EagerTrace t;
  const SlicedLogits logits(t, T::Float, /*transposed=*/true);
  t.Keep(Loss(t, logits)[0]);
  const Graph graph = Compiled(t);
  EXPECT_EQ(Again(graph), 0) << PrintGraph(graph);
  EXPECT_GE(Matrices(graph, T::Float, true), 1);
  ExpectRuns(t, 1e-5);
}

TEST(RematerializeTest, WhatIsInMemoryIsRead) {
  EagerTrace t;
  const Logits logits(t);
  t.Keep(logits.log_probabilities);
  t.Keep(Loss(t, logits)[0]);
  EXPECT_EQ(Matrices(Compiled(t), T::Float, false), 1) << "of the logits; the loss looks up log-probabilities";
  EagerTrace u;
  const Logits others(u);
  u.Keep(u.Op1("aten::mm", {others.log_probabilities, u.Input(at::randn({70, 3}))}));
  u.Keep(Loss(u, others)[0]);
  EXPECT_EQ(Matrices(Compiled(u), T::Float, true), 1);
  ExpectRuns(u, 1e-4);
}

TEST(RematerializeTest, LogitsThatAreOverwrittenAreNotReadAgain) {
  EagerTrace t;
  const Logits logits(t, T::Float, /*input=*/true);
  t.Op("aten::mul_.Scalar", {logits.x, 2.0});
  t.Keep(Loss(t, logits)[0]);
  EXPECT_EQ(Matrices(Compiled(t), T::Float, true), 2) << "the input, and log-probabilities";
  ExpectRuns(t, 1e-5);
}

// Storing logits that a kernel makes would cost what storing log-probabilities does.
TEST(RematerializeTest, LogitsThatWouldBeStoredForItAreNot) {
  EagerTrace t;
  const auto x = t.Op1("aten::cumsum", {t.Input(at::randn({12, 70})), 1, c10::IValue()});
  const auto target = t.Input(at::randint(0, 70, {12}, at::kLong));
  const auto log_probabilities = t.Op1("aten::_log_softmax", {x, 1, false});
  t.Keep(t.Op("aten::nll_loss_forward", {log_probabilities, target, c10::IValue(), 1, -100})[0]);
  const Graph graph = Compiled(t);
  EXPECT_EQ(Again(graph), 0);
  EXPECT_EQ(Matrices(graph, T::Float, true), 1);
  ExpectRuns(t, 1e-5);
}

// A cast that two kernels read, with a product between them.
TEST(RematerializeTest, ACastThatTwoKernelsReadIsDoneByEach) {
  EagerTrace t;
  const auto x = t.Input(at::randn({64, 32}).to(at::kBFloat16));
  const auto wide = t.Op1("aten::_to_copy", {x, T::Float});
  const auto tanh = t.Op1("aten::tanh", {wide});
  t.Keep(t.Op1("aten::mul.Tensor", {wide, t.Op1("aten::mm", {tanh, t.Input(at::randn({32, 32}))})}));
  const Graph graph = Compiled(t);
  EXPECT_EQ(Again(graph), 1) << PrintGraph(graph);
  EXPECT_EQ(Matrices(graph, T::Float, true), 2) << "what goes into the product, and the result";
  ExpectRuns(t, 1e-4);
}

TEST(RematerializeTest, CudaCodeOfACrossEntropyCompiles) {
  LAZULI_SKIP_WITHOUT_NVRTC();
  EagerTrace t;
  KeepLossAndGradient(t, Logits(t, T::BFloat16));
  for (const KernelIR& kernel : KernelsOf(Compiled(t))) {
    const std::string text = testing::GpuSource(kernel);
    EXPECT_TRUE(CompileCuda(text, testing::kTestedArch, false).ok()) << text;
  }
}

// The graph of `text`, with DEVICE in place of its device.
Graph OnDevice(const std::string& text, const std::string& device) {
  const auto trace = ParseTrace(absl::StrReplaceAll(text, {{"DEVICE", device}}));
  EXPECT_TRUE(trace.ok()) << trace.status();
  PipelineOptions options;
  options.target.isa = "avx2";
  if (device != "cpu") options.target.cuda_arch = "sm_90";
  auto graph = RunPasses(*trace, options, "remat");
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

// A value for each pair of a point and a centre: on a GPU moving it takes longer than computing it again.
TEST(Rematerialize, PairsOnGpus) {
  for (const std::string device : {"cuda:0", "cpu"}) {
    const Graph graph = OnDevice(R"(
trace scalars=0 offsets=0
storage %0: input DEVICE
storage %1: input DEVICE
storage %2: fresh 1048576 bytes DEVICE
storage %3: fresh 1048576 bytes DEVICE
storage %4: fresh 256 bytes DEVICE
storage %5: fresh 1048576 bytes DEVICE
storage %6: fresh 16384 bytes DEVICE live
%2 f32[4096,64] = aten::div.Tensor(%0 f32[4096,1], %1 f32[64])
%3 f32[4096,64] = aten::exp(%2 f32[4096,64])
%4 f32[64] = aten::sum.dim_IntList(%3 f32[4096,64], dim=[0], keepdim=false, dtype=none)
%5 f32[4096,64] = aten::mul.Tensor(%3 f32[4096,64], %4 f32[64])
%6 f32[4096] = aten::sum.dim_IntList(%5 f32[4096,64], dim=[1], keepdim=false, dtype=none)
)",
                                 device);
    EXPECT_EQ(Again(graph) > 0, device != "cpu") << PrintGraph(graph);
  }
}

// Rows of a small table, scaled, of which sums are taken, and which are added up where others say.
TEST(Rematerialize, RowsOfATableOnGpus) {
  const std::string text = R"(
trace scalars=0 offsets=0
storage %0: input DEVICE
storage %1: input DEVICE
storage %2: input DEVICE
storage %3: fresh 2097152 bytes DEVICE
storage %4: fresh 2097152 bytes DEVICE
storage %5: fresh 32768 bytes DEVICE live
storage %6: fresh 65536 bytes DEVICE
storage %7: fresh 65536 bytes DEVICE live
%3 f32[8192,64] = aten::index_select(%0 f32[256,64], dim=0, %1 i64[8192])
%4 f32[8192,64] = aten::mul.Tensor(%3 f32[8192,64], %2 f32[8192,1])
%5 f32[8192] = aten::sum.dim_IntList(%4 f32[8192,64], dim=[1], keepdim=false, dtype=none)
%6 f32[256,64] = aten::zeros_like(%0 f32[256,64], dtype=none, layout=none, device=none, pin_memory=false, memory_format=none)
%7 f32[256,64] = aten::index_add(%6 f32[256,64], dim=0, %1 i64[8192], %4 f32[8192,64], alpha=1)
)";
  EXPECT_EQ(Again(OnDevice(text, "cuda:0")), 2);
  EXPECT_EQ(Again(OnDevice(text, "cpu")), 0);
  // A table that is overwritten meanwhile is not read again.
  const std::string written =
      absl::StrReplaceAll(text, {{"%7 f32[256,64] =", "aten::mul_.Tensor(%0 f32[256,64], %0 f32[256,64])\n%7 f32[256,64] ="}});
  EXPECT_EQ(Again(OnDevice(written, "cuda:0")), 0);
}

// What depends on where its elements are, be it by a formula or by indices, is neither picked nor seen otherwise.
TEST(Rematerialize, WhatDependsOnPlacesIsNotPicked) {
  const std::string head = R"(
trace scalars=0 offsets=0
storage %0: input DEVICE
storage %1: input DEVICE
storage %2: input DEVICE
storage %3: fresh 24576 bytes DEVICE
storage %4: fresh 384 bytes DEVICE live
storage %5: fresh 4 bytes DEVICE
)";
  const std::string loss =
      "%4 f32[96], %5 f32[] = aten::nll_loss_forward(%3 f32[96,64], %2 i64[96], undef, reduction=0, ignore_index=-100)\n";
  for (const char* made : {"f32[96,64] = aten::gather(%0 f32[96,64], dim=1, %1 i64[96,64](1,0), sparse_grad=false)\n",
                           "f32[96,64] = aten::tril(%0 f32[96,64], diagonal=0)\n"}) {
    for (const char* device : {"cuda:0", "cpu"}) {
      const std::string graph = PrintGraph(OnDevice(absl::StrCat(head, "%3 ", made, loss), device));
      EXPECT_TRUE(absl::StrContains(graph, made)) << graph;
    }
  }
  const std::string seen = R"(
trace scalars=0 offsets=0
storage %0: input DEVICE
storage %1: fresh 24576 bytes DEVICE
storage %2: fresh 24576 bytes DEVICE live
storage %3: fresh 24576 bytes DEVICE live
%1 f32[2,48,64] = aten::tril(%0 f32[2,48,64], diagonal=0)
%2 f32[2,48,64] = aten::cumsum(%1 f32[2,48,64], dim=2, dtype=none)
%3 f32[96,64] = aten::cumsum(%1 f32[96,64], dim=0, dtype=none)
)";
  EXPECT_EQ(Again(OnDevice(seen, "cuda:0")), 0);
}

TEST(Rematerialize, CastsOfNumbers) {
  const Graph graph = OnDevice(R"(
trace scalars=1 offsets=0
storage %0: input DEVICE
storage %1: fresh 4 bytes DEVICE
storage %2: fresh 4096 bytes DEVICE live
%1 f32[] = aten::_to_copy(#0:f64, dtype=6, layout=none, device=none, pin_memory=none, non_blocking=false, memory_format=none)
%2 f32[1024] = aten::mul.Tensor(%0 f32[1024], %1 f32[])
)",
                               "cpu");
  EXPECT_EQ(Again(graph), 0);
}

// A copy that transposes is ATen's where nothing else is done with it.
TEST(RematerializeTest, ACastThatTransposesIsNotDoneAgain) {
  EagerTrace t;
  const auto x = t.Input(at::randn({160, 96}));
  const auto copy =
      t.Op1("aten::_to_copy", {x.t(), T::Float, c10::IValue(), c10::IValue(), c10::IValue(), false, at::MemoryFormat::Contiguous});
  t.Keep(t.Op1("aten::cumsum", {copy.view({-1}), 0, c10::IValue()}));
  EXPECT_EQ(Again(Compiled(t)), 0);
  ExpectRuns(t, 1e-4);
}

// A gate that the gradient multiplies by is computed again where what it is made of is in memory, on a GPU.
TEST(Rematerialize, ActivationsOnGpus) {
  for (const char* name : {"aten::silu(", "aten::tanh(", "aten::exp("}) {
    for (const char* device : {"cuda:0", "cpu"}) {
      std::string text = R"(
trace scalars=0 offsets=0
storage %0: input DEVICE
storage %1: input DEVICE
storage %2: fresh 1048576 bytes DEVICE
storage %3: fresh 1048576 bytes DEVICE
storage %4: fresh 1048576 bytes DEVICE
storage %5: fresh 1048576 bytes DEVICE live
)";
      absl::StrAppend(&text, "%2 f32[512,512] = ", name,
                      "%0 f32[512,512])\n%3 f32[512,512] = aten::mul.Tensor(%2 f32[512,512], %1 f32[512,512])\n",
                      "%4 f32[512,512] = aten::mm(%3 f32[512,512], %1 f32[512,512])\n",
                      "%5 f32[512,512] = aten::mul.Tensor(%4 f32[512,512], %2 f32[512,512])\n");
      EXPECT_EQ(Again(OnDevice(text, device)), device != std::string("cpu") ? 1 : 0) << name << device;
    }
  }
}

}  // namespace
}  // namespace lazuli::codegen
