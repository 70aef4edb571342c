// Which products of a trace code of our own computes, and that it gives what eager gave.
#include "codegen/products/direct_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "codegen/passes/plan.h"
#include "codegen/pipeline.h"
#include "runtime/cpu_features.h"
#include "tests/support/eager_trace.h"

namespace lazuli::codegen {
namespace {

using lazuli::testing::EagerTrace;

class DirectCallsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(3);
    if (runtime::WidestIsa() < runtime::Isa::kAvx2) GTEST_SKIP() << "this CPU has no AVX2";
  }

  static PipelineOptions OptionsFor(const std::string& backend, const std::string& precision) {
    PipelineOptions options;
    options.backend = backend;
    options.target = {runtime::IsaName(runtime::WidestIsa()), precision};
    return options;
  }

  // How many calls of the trace's program try code of our own first.
  static int64_t NumDirect(const EagerTrace& trace) {
    auto graph = RunPasses(trace.trace(), OptionsFor("llvm", "eager"), "fuse");
    EXPECT_TRUE(graph.ok()) << graph.status();
    PlanReport report;
    const auto spec = PlanProgram(*graph, {OptionsFor("llvm", "eager").target, 0, /*direct_calls=*/true}, &report);
    EXPECT_TRUE(spec.ok()) << spec.status();
    return std::count_if(spec->steps.begin(), spec->steps.end(), [](const runtime::StepSpec& step) {
      const auto* call = std::get_if<runtime::AtenCall>(&step.work);
      return call != nullptr && call->direct != nullptr;
    });
  }

  // The trace gives eager's values; not bit for bit exactly where calls are direct.
  static void Expect(const EagerTrace& trace, int64_t direct) {
    EXPECT_EQ(NumDirect(trace), direct);
    auto program = Compile(trace.trace(), OptionsFor("llvm", "eager"), nullptr);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_TRUE(direct == 0 || !(*program)->bit_exact());
    trace.ExpectMatches(**program, 1e-4, 1e-4);
    for (const auto& [backend, precision] : {std::pair("llvm", "strict"), std::pair("aten", "eager")}) {
      auto exact = Compile(trace.trace(), OptionsFor(backend, precision), nullptr);
      ASSERT_TRUE(exact.ok()) << exact.status();
      trace.ExpectMatches(**exact, 0, 0);
    }
  }

  static void ExpectMm(const at::Tensor& x, const at::Tensor& w, int64_t direct) {
    EagerTrace t;
    const auto a = t.Input(x), b = t.Input(w);
    t.Keep(t.Op1("aten::mm", {a, b}));
    Expect(t, direct);
  }

  static void ExpectAddmm(const at::Tensor& bias, double beta, double alpha, int64_t direct) {
    EagerTrace t;
    const auto c = t.Input(bias), x = t.Input(at::randn({6, 40})), w = t.Input(at::randn({30, 40}));
    t.Keep(t.Op1("aten::addmm", {c, x, w.t(), beta, alpha}));
    Expect(t, direct);
  }
};

TEST_F(DirectCallsTest, FewRowsByATransposedMatrix) {
  ExpectMm(at::randn({1, 300}), at::randn({50, 300}).t(), 1);
  ExpectMm(at::randn({64, 300}), at::randn({50, 300}).t(), 1);
  ExpectMm(at::randn({20, 300}).slice(1, 10, 200), at::randn({50, 400}).slice(1, 100, 290).t(), 1);
}

TEST_F(DirectCallsTest, OthersAreTheLibrarys) {
  ExpectMm(at::randn({300, 20}), at::randn({50, 20}).t(), 0);  // Many rows.
  ExpectMm(at::randn({6, 20}), at::randn({20, 50}), 0);        // Not transposed.
  ExpectMm(at::randn({6, 20}, at::kDouble), at::randn({50, 20}, at::kDouble).t(), 0);
  ExpectMm(at::randn({6, 0}), at::randn({50, 0}).t(), 0);
}

// Its rows are not contiguous, which only the call finds out: the library computes it.
TEST_F(DirectCallsTest, TransposedRowsGoToTheLibrary) { ExpectMm(at::randn({20, 6}).t(), at::randn({50, 20}).t(), 1); }

TEST_F(DirectCallsTest, BiasesOfEveryShape) {
  ExpectAddmm(at::randn({30}), 1, 1, 1);
  ExpectAddmm(at::randn({1, 30}), 1, 1, 1);
  ExpectAddmm(at::randn({60}).slice(0, 0, 60, 2), 1, 1, 1);
  ExpectAddmm(at::randn({6, 30}), 1, 1, 1);
  ExpectAddmm(at::randn({6, 1}), 1, 1, 1);
  ExpectAddmm(at::randn({1}), 1, 1, 1);
  ExpectAddmm(at::randn({}), 1, 1, 1);
  ExpectAddmm(at::randn({30}), 0.5, 1, 1);
  ExpectAddmm(at::randn({30}), 1, 2, 1);
  ExpectAddmm(at::randn({30}), 0, 1, 1);
}

TEST_F(DirectCallsTest, Attention) {
  const auto attend = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal, const c10::IValue& scale,
                         int64_t direct) {
    SCOPED_TRACE(::testing::Message() << q.scalar_type() << q.sizes() << q.strides() << k.sizes());
    EagerTrace t;
    const auto a = t.Input(q), b = t.Input(k), c = t.Input(v);
    const auto results = t.Op("aten::_scaled_dot_product_flash_attention_for_cpu", {a, b, c, 0.0, causal, c10::IValue(), scale});
    t.Keep(t.Op1("aten::relu", {results[0]}));
    t.Keep(results[1]);
    Expect(t, direct);
  };
  const at::Tensor q = at::randn({2, 4, 40, 16}), k = at::randn({2, 4, 50, 16}), v = at::randn({2, 4, 50, 16});
  attend(q, k, v, false, {}, 1);
  attend(q, k, v, true, 0.1, 1);
  attend(q, k.slice(1, 0, 2), v.slice(1, 2, 4), false, {}, 1);  // Heads that share keys.
  attend(q.slice(2, 0, 4), k, v, false, {}, 0);                 // Few queries.
  attend(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble), false, {}, 0);
  attend(q.to(at::kBFloat16), k.to(at::kBFloat16), v.to(at::kBFloat16), false, {}, 0);
  const auto qkv = at::randn({2, 40, 3, 4, 16}).permute({2, 0, 3, 1, 4}).unbind();  // As a layer leaves them.
  attend(qkv[0].clone(), qkv[1].clone(), qkv[2].clone(), true, {}, 1);
}

TEST_F(DirectCallsTest, AttentionWithABias) {
  const auto attend = [](const at::Tensor& bias, int64_t direct) {
    SCOPED_TRACE(::testing::Message() << bias.scalar_type() << bias.sizes());
    EagerTrace t;
    const auto q = t.Input(at::randn({2, 3, 40, 16})), k = t.Input(at::randn({2, 3, 50, 16})), b = t.Input(bias);
    t.Keep(t.Op("aten::_scaled_dot_product_flash_attention_for_cpu", {q, k, k, 0.0, false, b, c10::IValue()})[0]);
    Expect(t, direct);
  };
  attend(at::randn({40, 50}), 1);
  attend(at::randn({1, 50}), 1);
  attend(at::randn({2, 1, 40, 50}), 1);
  attend(at::randn({2, 3, 50, 40}).transpose(2, 3), 1);
}

TEST_F(DirectCallsTest, GradientsOfAttention) {
  for (const bool causal : {false, true}) {
    for (const bool has_bias : {false, true}) {
      if (causal && has_bias) continue;
      EagerTrace t;
      const auto q = t.Input(at::randn({2, 40, 3, 16}).transpose(1, 2)), k = t.Input(at::randn({2, 3, 50, 16}));
      const auto v = t.Input(at::randn({2, 3, 50, 16})), grad = t.Input(at::randn({2, 3, 40, 16}));
      const c10::IValue bias = has_bias ? c10::IValue(t.Input(at::randn({1, 1, 40, 50}))) : c10::IValue();
      const auto y = t.Op("aten::_scaled_dot_product_flash_attention_for_cpu", {q, k, v, 0.0, causal, bias, 0.3});
      const auto grads =
          t.Op("aten::_scaled_dot_product_flash_attention_for_cpu_backward", {grad, q, k, v, y[0], y[1], 0.0, causal, bias, 0.3});
      for (const auto& g : grads) t.Keep(g);
      Expect(t, 2);
    }
  }
}

TEST_F(DirectCallsTest, ProductsInARowWithKernelsBetween) {
  EagerTrace t;
  auto x = t.Input(at::randn({33, 100}));
  for (int i = 0; i < 3; ++i) {
    const auto w = t.Input(at::randn({100, 100}) * 0.1), bias = t.Input(at::randn({100}));
    x = t.Op1("aten::relu", {t.Op1("aten::addmm", {bias, x, w.t()})});
  }
  t.Keep(x);
  Expect(t, 3);
}

}  // namespace
}  // namespace lazuli::codegen
