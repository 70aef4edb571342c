// Which products run together with the kernels around them, that they do, and that the values are eager's.
#include "codegen/products/fused_product.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "codegen/passes/plan.h"
#include "codegen/pipeline.h"
#include "runtime/cpu_features.h"
#include "tests/support/eager_trace.h"

namespace lazuli::codegen {
namespace {

using lazuli::testing::EagerTrace;

// How many fused steps ran as one, and how many one by one.
struct Runs {
  int fused = 0, single = 0;
  bool operator==(const Runs& o) const { return fused == o.fused && single == o.single; }
};
std::ostream& operator<<(std::ostream& out, const Runs& runs) { return out << runs.fused << " fused, " << runs.single << " one by one"; }

Runs counted;
bool (*original)(const void*, const torch::jit::Stack&, const runtime::BoundKernel&, const runtime::BoundKernel&) = nullptr;

bool CountedRun(const void* plan, const torch::jit::Stack& arguments, const runtime::BoundKernel& before,
                const runtime::BoundKernel& after) {
  const bool fused = original(plan, arguments, before, after);
  ++(fused ? counted.fused : counted.single);
  return fused;
}

class FusedProductTest : public ::testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(3);
    if (runtime::WidestIsa() < runtime::Isa::kAvx2) GTEST_SKIP() << "this CPU has no AVX2";
    threads_ = at::get_num_threads();
    at::set_num_threads(2);
  }
  void TearDown() override {
    if (threads_ > 0) at::set_num_threads(threads_);
  }

  static runtime::ProgramSpec SpecOf(const EagerTrace& trace) {
    PipelineOptions options;
    options.target = {runtime::IsaName(runtime::WidestIsa()), "eager"};
    auto graph = RunPasses(trace.trace(), options, "fuse");
    EXPECT_TRUE(graph.ok()) << graph.status();
    PlanReport report;
    auto spec = PlanProgram(*graph, {options.target, 0, /*direct_calls=*/true}, &report);
    EXPECT_TRUE(spec.ok()) << spec.status();
    return *std::move(spec);
  }

  // The trace's fused steps, each as the kernels before and after its call: "k*k" is both.
  static std::string Shape(const runtime::ProgramSpec& spec) {
    std::string shape;
    for (const runtime::StepSpec& step : spec.steps) {
      if (!step.fused) continue;
      const int before = step.fused->has_before ? 1 : 0;
      shape += (shape.empty() ? "" : " ") + std::string(before == 1 ? "k*" : "*") + (step.batch > before + 1 ? "k" : "");
    }
    return shape;
  }

  // `runs`: what one run of the program does.
  static void Expect(const EagerTrace& trace, const std::string& shape, Runs runs) {
    runtime::ProgramSpec spec = SpecOf(trace);
    EXPECT_EQ(Shape(spec), shape);
    EXPECT_TRUE(shape.empty() || !spec.bit_exact);
    for (runtime::StepSpec& step : spec.steps) {
      if (step.fused) original = std::exchange(step.fused->run, &CountedRun);
    }
    counted = {};
    const auto program = runtime::MakeProgram(std::move(spec));
    trace.ExpectMatches(*program, 1e-4, 1e-4);  // Runs it twice.
    EXPECT_EQ(counted, (Runs{2 * runs.fused, 2 * runs.single}));
  }

  struct Layer {
    at::Tensor w, bias;
  };
  static Layer Linear(EagerTrace* t, int64_t in, int64_t out) { return {t->Input(at::randn({out, in}) * 0.1), t->Input(at::randn({out}))}; }
  static at::Tensor Apply(EagerTrace* t, const Layer& layer, const at::Tensor& x) {
    return t->Op1("aten::addmm", {layer.bias, x, layer.w.t()});
  }
  static at::Tensor Convolve(EagerTrace* t, const at::Tensor& x, const at::Tensor& w, int64_t stride = 1, int64_t padding = 0) {
    return t->Op1("aten::convolution", {x, w, c10::IValue(), c10::List<int64_t>({stride, stride}), c10::List<int64_t>({padding, padding}),
                                        c10::List<int64_t>({1, 1}), false, c10::List<int64_t>({0, 0}), 1});
  }
  static at::Tensor Images(std::vector<int64_t> sizes) { return at::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast); }

  int threads_ = 0;
};

TEST_F(FusedProductTest, ActivationOfALinearLayer) {
  for (const int64_t cols : {48, 51, 512, 768}) {
    EagerTrace t;
    const auto x = t.Input(at::randn({200, 96}));
    const Layer layer = Linear(&t, 96, cols);
    t.Keep(t.Op1("aten::gelu", {Apply(&t, layer, x)}));
    Expect(t, "*k", cols == 51 ? Runs{0, 1} : Runs{1, 0});  // Few rows of 51 numbers are no whole units of the kernel.
  }
}

// The layer's result is kept, too, as training does for the backward pass.
TEST_F(FusedProductTest, ResultsThatOthersNeedAreInMemory) {
  EagerTrace t;
  const auto x = t.Input(at::randn({300, 40}));
  const Layer layer = Linear(&t, 40, 64);
  const auto y = Apply(&t, layer, x);
  t.Keep(y);
  t.Keep(t.Op1("aten::sigmoid", {y}));
  Expect(t, "*k", {1, 0});
}

TEST_F(FusedProductTest, NormOfAResidual) {
  EagerTrace t;
  const auto x = t.Input(at::randn({256, 128})), scale = t.Input(at::randn({128})), shift = t.Input(at::randn({128}));
  const Layer layer = Linear(&t, 128, 128);
  const auto sum = t.Op1("aten::add.Tensor", {x, Apply(&t, layer, x), 1});
  t.Keep(t.Op("aten::native_layer_norm", {sum, c10::List<int64_t>({128}), scale, shift, 1e-5})[0]);
  t.Keep(sum);
  Expect(t, "*k", {1, 0});
}

TEST_F(FusedProductTest, OperandsMadeRowByRow) {
  EagerTrace t;
  const auto x = t.Input(at::randn({256, 128}));
  const Layer layer = Linear(&t, 128, 96);
  t.Keep(Apply(&t, layer, t.Op1("aten::tanh", {x})));
  Expect(t, "k*", {1, 0});
}

TEST_F(FusedProductTest, LayersInARow) {
  EagerTrace t;
  auto x = t.Input(at::randn({333, 64}));
  for (int i = 0; i < 3; ++i) x = t.Op1("aten::relu", {Apply(&t, Linear(&t, 64, 64), x)});
  t.Keep(x);
  Expect(t, "*k *k *k", {3, 0});
}

// Batch norm in inference, residual and activation of 1x1 convolutions; its numbers for each channel are computed before.
TEST_F(FusedProductTest, Convolutions) {
  EagerTrace t;
  const auto x = t.Input(Images({2, 64, 14, 14}));
  const auto narrow = t.Input(Images({32, 64, 1, 1})), square = t.Input(Images({32, 32, 3, 3})), wide = t.Input(Images({64, 32, 1, 1}));
  const auto norm = [&](const at::Tensor& y) {
    const int64_t c = y.size(1);
    const auto scale = t.Input(at::rand({c})), shift = t.Input(at::randn({c})), mean = t.Input(at::randn({c})),
               var = t.Input(at::rand({c}) + 1);
    return t.Op("aten::native_batch_norm", {y, scale, shift, mean, var, false, 0.1, 1e-5})[0];
  };
  auto y = t.Op1("aten::relu", {norm(Convolve(&t, x, narrow))});
  y = t.Op1("aten::relu", {norm(Convolve(&t, y, square, 1, 1))});
  y = norm(Convolve(&t, y, wide));
  t.Keep(t.Op1("aten::relu", {t.Op1("aten::add.Tensor", {y, x, 1})}));
  Expect(t, "*k k*k", {2, 0});
}

TEST_F(FusedProductTest, ConvolutionsWithStrides) {
  for (const int64_t height : {16, 15}) {
    EagerTrace t;
    const auto x = t.Input(Images({4, 24, height, 18})), w = t.Input(Images({40, 24, 1, 1}));
    t.Keep(t.Op1("aten::relu", {Convolve(&t, x, w, 2)}));
    // Lines of images of odd height are not equally far from each other.
    Expect(t, "*k", height == 16 ? Runs{1, 0} : Runs{0, 1});
  }
}

TEST_F(FusedProductTest, OtherConvolutionsAreTheLibrarys) {
  EagerTrace contiguous;
  const auto x = contiguous.Input(at::randn({2, 64, 14, 14})), w = contiguous.Input(at::randn({32, 64, 1, 1}));
  contiguous.Keep(contiguous.Op1("aten::relu", {Convolve(&contiguous, x, w)}));
  Expect(contiguous, "", {0, 0});
  EagerTrace padded;
  const auto a = padded.Input(Images({2, 64, 14, 14})), b = padded.Input(Images({32, 64, 1, 1}));
  padded.Keep(padded.Op1("aten::relu", {Convolve(&padded, a, b, 1, 1)}));
  Expect(padded, "*k", {0, 1});
  EagerTrace kept;  // ATen makes the memory of a convolution's result.
  const auto c = kept.Input(Images({2, 64, 14, 14})), d = kept.Input(Images({32, 64, 1, 1}));
  const auto y = Convolve(&kept, c, d);
  kept.Keep(y);
  kept.Keep(kept.Op1("aten::relu", {y}));
  Expect(kept, "", {0, 0});
}

// What a kernel writes must not be what other rows still read.
TEST_F(FusedProductTest, NotWhenRowsDependOnOtherRows) {
  EagerTrace in_place;
  const auto x = in_place.Input(at::randn({256, 64}));
  const Layer layer = Linear(&in_place, 64, 64);
  in_place.Op1("aten::copy_", {x, in_place.Op1("aten::relu", {Apply(&in_place, layer, x)}), false});
  Expect(in_place, "", {0, 0});
  EagerTrace columns;
  const auto z = columns.Input(at::randn({256, 64}));
  columns.Keep(columns.Op1("aten::sum.dim_IntList", {Apply(&columns, Linear(&columns, 64, 64), z), c10::List<int64_t>({0}), false}));
  Expect(columns, "", {0, 0});
  EagerTrace half;
  const auto u = half.Input(at::randn({256, 64}));
  const auto y = Apply(&half, Linear(&half, 64, 64), u);
  half.Keep(half.Op1("aten::relu", {y.slice(0, 0, 128)}));
  Expect(half, "*k", {0, 1});  // Only the run finds out that it takes half of the rows.
}

// Rows that leave a thread without work run one by one, where columns are divided.
TEST_F(FusedProductTest, FewRows) {
  for (const int64_t rows : {20, 64}) {
    EagerTrace t;
    const auto x = t.Input(at::randn({rows, 256}));
    t.Keep(t.Op1("aten::gelu", {Apply(&t, Linear(&t, 256, 256), x)}));
    Expect(t, "*k", rows == 64 ? Runs{1, 0} : Runs{0, 1});
  }
}

// A step between that nobody here depends on comes first; one that needs the product's result stays behind.
TEST_F(FusedProductTest, StepsBetweenGoFirst) {
  EagerTrace t;
  const auto x = t.Input(at::randn({256, 64})), other = t.Input(at::randn({40, 50}));
  const auto y = Apply(&t, Linear(&t, 64, 64), x);
  const auto sorted = t.Op("aten::sort", {other, -1, false})[0];
  t.Keep(sorted);
  t.Keep(t.Op1("aten::relu", {y}));
  Expect(t, "*k", {1, 0});
  EagerTrace dependent;
  const auto z = dependent.Input(at::randn({256, 64}));
  const auto product = Apply(&dependent, Linear(&dependent, 64, 64), z);
  const auto order = dependent.Op("aten::sort", {product, -1, false})[0];
  dependent.Keep(dependent.Op1("aten::add.Tensor", {product, order, 1}));
  Expect(dependent, "", {0, 0});
}

}  // namespace
}  // namespace lazuli::codegen
