// Traces built from eager runs, compiled and compared with what eager left.
#include "codegen/pipeline.h"
#include "codegen/emit_aten.h"

#include <gtest/gtest.h>
#include <torch/library.h>

#include "tests/support/eager_trace.h"

namespace lazuli::codegen {
namespace {

using lazuli::testing::EagerTrace;

std::unique_ptr<runtime::Program> CompileFor(const EagerTrace& trace, const std::string& backend, CompileReport* report = nullptr) {
  PipelineOptions options;
  options.backend = backend;
  options.target = {"avx512", "eager"};
  auto program = Compile(trace.trace(), options, report);
  EXPECT_TRUE(program.ok()) << program.status();
  return program.ok() ? *std::move(program) : nullptr;
}

void ExpectBoth(const EagerTrace& trace, double rtol = 0, double atol = 0) {
  for (const char* backend : {"aten", "llvm"}) {
    SCOPED_TRACE(backend);
    auto program = CompileFor(trace, backend);
    if (program == nullptr) continue;
    const bool exact = std::string(backend) == "aten";
    trace.ExpectMatches(*program, exact ? 0 : rtol, exact ? 0 : atol);
  }
}

class PipelineTest : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(7); }
};

TEST_F(PipelineTest, PointwiseChainIsOneKernel) {
  EagerTrace t;
  const auto a = t.Input(at::randn({64, 33})), b = t.Input(at::randn({33}));
  auto x = t.Op1("aten::mul.Tensor", {a, b});
  x = t.Op1("aten::add.Tensor", {x, a, 0.5});
  x = t.Op1("aten::relu", {x});
  x = t.Op1("aten::div.Tensor", {x, 3.0});
  t.Keep(x);
  ExpectBoth(t, 1e-6, 1e-6);
  auto program = CompileFor(t, "llvm");
  EXPECT_EQ(program->num_kernels(), 1);
  EXPECT_EQ(program->num_aten_calls(), 0);
}

TEST_F(PipelineTest, FreesInputsThatNobodyElseHolds) {
  EagerTrace t;
  const auto a = t.Input(at::randn({8, 8})), b = t.Input(at::randn({8, 8})), unread = t.Input(at::randn({8}));
  const auto x = t.Op1("aten::mm", {a, b});
  const auto y = t.Op1("aten::relu", {t.Op1("aten::mm", {x, b})});
  t.Keep(y);
  for (const std::string backend : {"aten", "llvm", "replay"}) {
    SCOPED_TRACE(backend);
    const auto program = backend == "replay" ? codegen::MakeReplay(t.trace()) : CompileFor(t, backend);
    EXPECT_TRUE(t.Frees(*program, a));
    EXPECT_TRUE(t.Frees(*program, b));
    EXPECT_FALSE(t.Frees(*program, unread));
  }
}

// What an operator has kept of its operand, others still see.
TEST_F(PipelineTest, ReplayFreesNoInputThatAnOperatorHasKept) {
  torch::Library library(torch::Library::DEF, "lazuli_keeps", std::nullopt, __FILE__, __LINE__);
  std::vector<at::Tensor> kept;
  library.def("operand(Tensor x) -> Tensor");
  library.impl("operand", torch::dispatch(c10::DispatchKey::CPU, [&kept](const at::Tensor& x) {
                 kept.push_back(x);
                 return x + 1;
               }));
  EagerTrace t;
  const auto a = t.Input(at::randn({8})), b = t.Input(at::randn({8}));
  t.Keep(t.Op1("aten::mul.Tensor", {t.Op1("lazuli_keeps::operand", {a}), b}));
  kept.clear();
  const auto replay = codegen::MakeReplay(t.trace());
  EXPECT_FALSE(t.Frees(*replay, a));
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_TRUE(t.Frees(*replay, b));
}

TEST_F(PipelineTest, InPlaceChainOnAnInput) {
  EagerTrace t;
  const auto p = t.Input(at::randn({17, 5})), g = t.Input(at::randn({17, 5})), m = t.Input(at::zeros({17, 5}));
  t.Op("aten::mul_.Tensor", {m, 0.9});
  t.Op("aten::add_.Tensor", {m, g, 0.1});
  t.Op("aten::add_.Tensor", {p, m, -0.01});
  ExpectBoth(t, 1e-6, 1e-6);
  EXPECT_EQ(CompileFor(t, "llvm")->num_kernels(), 1);
}

TEST_F(PipelineTest, ViewsAreWindows) {
  EagerTrace t;
  const auto a = t.Input(at::randn({8, 12}));
  t.Keep(t.Op1("aten::add.Tensor", {a.t().slice(0, 4, 12), a.slice(1, 2, 10), 1}));
  const auto y = t.Op1("aten::mul.Tensor", {a.slice(0, 1, 5), a.slice(0, 3, 7)});
  t.Keep(y);
  ExpectBoth(t);
}

TEST_F(PipelineTest, TransposedCopyOntoItself) {
  EagerTrace t;
  const auto a = t.Input(at::randn({16, 16}));
  const auto copy = t.Op1("aten::clone", {a.t()});
  t.Op("aten::copy_", {a, copy});
  t.Op("aten::mul_.Tensor", {a, 2.0});
  ExpectBoth(t);
}

TEST_F(PipelineTest, WriteToASliceThenReadTheWhole) {
  EagerTrace t;
  const auto a = t.Input(at::randn({6, 6}));
  const auto x = t.Op1("aten::mul.Tensor", {a, 2.0});
  t.Op("aten::fill_.Scalar", {x.slice(0, 2, 4), 7.0});
  const auto y = t.Op1("aten::add.Tensor", {x, a, 1});
  t.Keep(y);
  t.Keep(x);
  ExpectBoth(t);
}

TEST_F(PipelineTest, OldValueThroughAnotherWindowBeforeAWrite) {
  EagerTrace t;
  const auto a = t.Input(at::randn({10}));
  const auto tail = t.Op1("aten::mul.Tensor", {a.slice(0, 5, 10), 3.0});
  t.Op("aten::zero_", {a});
  const auto head = t.Op1("aten::add.Tensor", {a.slice(0, 0, 5), tail, 1});
  t.Keep(head);
  ExpectBoth(t);
}

TEST_F(PipelineTest, OverlappingSlicesOneAfterAnother) {
  EagerTrace t;
  const auto a = t.Input(at::randn({12}));
  t.Op("aten::add_.Tensor", {a.slice(0, 0, 8), 1.0, 1});
  t.Op("aten::mul_.Tensor", {a.slice(0, 4, 12), 2.0});
  t.Op("aten::add_.Tensor", {a.slice(0, 0, 8), 1.0, 1});
  ExpectBoth(t);
}

TEST_F(PipelineTest, DeadCodeIsNotRun) {
  EagerTrace t;
  const auto a = t.Input(at::randn({4, 4}));
  const auto dead = t.Op1("aten::mm", {a, a});
  t.Op("aten::exp", {dead});
  const auto x = t.Op1("aten::mm", {a, a});
  t.Keep(x);
  auto program = CompileFor(t, "llvm");
  EXPECT_EQ(program->num_aten_calls(), 1);
  EXPECT_EQ(program->num_kernels(), 0);
  ExpectBoth(t);
}

TEST_F(PipelineTest, TwoVisibleCopiesHaveMemoryOfTheirOwn) {
  EagerTrace t;
  const auto a = t.Input(at::randn({9}));
  const auto x = t.Op1("aten::clone", {a}), y = t.Op1("aten::clone", {a});
  t.Keep(x);
  t.Keep(y);
  ExpectBoth(t);
  auto program = CompileFor(t, "llvm");
  const auto outcome = t.Run(*program);
  EXPECT_NE(outcome.actual[1].data_ptr(), outcome.actual[2].data_ptr());
}

TEST_F(PipelineTest, SoftmaxAndLayerNorm) {
  EagerTrace t;
  const auto a = t.Input(at::randn({7, 3, 40})), w = t.Input(at::randn({40})), b = t.Input(at::randn({40}));
  const auto ln = t.Op("aten::native_layer_norm", {a, std::vector<int64_t>{40}, w, b, 1e-5});
  const auto s = t.Op1("aten::_softmax", {ln[0], -1, false});
  const auto l = t.Op1("aten::_log_softmax", {a, 2, false});
  for (const auto& x : {ln[0], ln[1], ln[2], s, l}) t.Keep(x);
  ExpectBoth(t, 1e-5, 1e-5);
  EXPECT_EQ(CompileFor(t, "llvm")->num_aten_calls(), 0);
}

TEST_F(PipelineTest, SafeSoftmaxOfARowThatIsMaskedOut) {
  EagerTrace t;
  const auto a = t.Input(at::randn({5, 40})), mask = t.Input(at::rand({5, 40}) > 0.5);
  mask[3].fill_(true);
  t.Overwrite(mask, mask);
  const auto masked = t.Op1("aten::masked_fill.Scalar", {a, mask, -std::numeric_limits<double>::infinity()});
  t.Keep(t.Op1("aten::_safe_softmax", {masked, -1}));
  ExpectBoth(t, 1e-5, 1e-6);
  EXPECT_EQ(CompileFor(t, "llvm")->num_kernels(), 1);
}

TEST_F(PipelineTest, AnInputRewrittenByAKernelThatReducesIt) {
  EagerTrace t;
  const auto a = t.Input(at::randn({9, 70})), m = t.Input(at::rand({9, 70}));
  t.Op("aten::div_.Tensor", {m, 0.9});
  const auto x = t.Op1("aten::mul.Tensor", {a, m});
  t.Keep(t.Op1("aten::_softmax", {x, 1, false}));
  t.Op("aten::mul_.Tensor", {a, 3.0});
  ExpectBoth(t, 1e-5, 1e-6);
  EXPECT_EQ(CompileFor(t, "llvm")->num_kernels(), 1);
}

TEST_F(PipelineTest, LayerNormBackward) {
  EagerTrace t;
  const auto a = t.Input(at::randn({31, 24})), w = t.Input(at::randn({24})), b = t.Input(at::randn({24})), g = t.Input(at::randn({31, 24}));
  const auto ln = t.Op("aten::native_layer_norm", {a, std::vector<int64_t>{24}, w, b, 1e-5});
  const auto grads =
      t.Op("aten::native_layer_norm_backward", {g, a, std::vector<int64_t>{24}, ln[1], ln[2], w, b, std::vector<bool>{true, true, true}});
  for (const auto& x : grads) t.Keep(x);
  ExpectBoth(t, 1e-4, 1e-5);
}

TEST_F(PipelineTest, ReductionsOfEveryShape) {
  EagerTrace t;
  const auto a = t.Input(at::randn({5, 6, 7}));
  t.Keep(t.Op1("aten::sum", {a}));
  t.Keep(t.Op1("aten::sum.dim_IntList", {a, std::vector<int64_t>{0}, false}));
  t.Keep(t.Op1("aten::sum.dim_IntList", {a, std::vector<int64_t>{1}, true}));
  t.Keep(t.Op1("aten::mean.dim", {a, std::vector<int64_t>{-1, 0}, false}));
  t.Keep(t.Op1("aten::amax", {a, std::vector<int64_t>{2}, false}));
  t.Keep(t.Op1("aten::var.correction", {a, std::vector<int64_t>{1}, 1, false}));
  t.Keep(t.Op1("aten::linalg_vector_norm", {a, 2.0, std::vector<int64_t>{0, 1, 2}, false}));
  ExpectBoth(t, 1e-5, 1e-5);
}

TEST_F(PipelineTest, MatmulsUsePlannedBuffers) {
  EagerTrace t;
  // Whole numbers: in which order the library adds depends, on some processors, on where its operands lie in memory.
  const auto whole = [](at::IntArrayRef sizes) { return at::randint(-8, 9, sizes, at::kFloat); };
  const auto x = t.Input(whole({10, 20})), w = t.Input(whole({30, 20})), b = t.Input(whole({30}));
  const auto h = t.Op1("aten::addmm", {b, x, w.t(), 1, 1});
  const auto r = t.Op1("aten::relu", {h});
  const auto y = t.Op1("aten::mm", {r, w});
  t.Keep(y);
  t.Keep(r);
  ExpectBoth(t);
}

TEST_F(PipelineTest, AFailingStepPoisonsOnlyWhatNeedsIt) {
  EagerTrace t;
  const auto a = t.Input(at::randn({5})), index = t.Input(at::zeros({3}, at::kLong));
  const auto picked = t.Op1("aten::index_select", {a, 0, index});
  const auto doomed = t.Op1("aten::mul.Tensor", {picked, 2.0});
  const auto fine = t.Op1("aten::mul.Tensor", {a, 2.0});
  t.Keep(doomed);
  t.Keep(fine);
  for (const char* backend : {"aten", "llvm"}) {
    SCOPED_TRACE(backend);
    auto program = CompileFor(t, backend);
    t.Overwrite(index, at::full({3}, 99, at::kLong));
    const auto failed = t.Run(*program);
    ASSERT_NE(failed.result.error, nullptr);
    EXPECT_THROW(std::rethrow_exception(failed.result.error), c10::Error);
    EXPECT_EQ(failed.result.failed_op, "aten::index_select");
    EXPECT_FALSE(failed.actual[2].defined());
    EXPECT_TRUE(at::equal(failed.actual[3], fine));
    t.Overwrite(index, at::zeros({3}, at::kLong));
    EXPECT_EQ(t.Run(*program).result.error, nullptr);
  }
}

}  // namespace
}  // namespace lazuli::codegen
