// Loops: strides, broadcasting, tails, in-place buffers, and reductions of every shape, against the reference.
#include <gtest/gtest.h>

#include "tests/support/kernel_builder.h"
#include "tests/support/kernel_check.h"

namespace lazuli::testing {
namespace {

using T = c10::ScalarType;
using K = codegen::KOp;
using codegen::KernelIR;

class KernelLoops : public ::testing::TestWithParam<std::string> {
 protected:
  CheckOptions Options(double ulps = 0, double absolute = 0) const {
    CheckOptions options;
    options.target.isa = GetParam();
    options.ulps = ulps;
    options.absolute = absolute;
    return options;
  }
};

TEST_P(KernelLoops, SizesAndTails) {
  for (T type : {T::Float, T::Double, T::Int, T::Byte, T::Short}) {
    for (int64_t size : {1, 2, 3, 15, 16, 17, 31, 63, 64, 65, 127, 200, 1000, 100003}) {
      EXPECT_EQ(CheckKernel(AddKernel({size}, {1}, {1}, {1}, type), Options()), "");
    }
  }
}

TEST_P(KernelLoops, ScalarDomainAndEmptyDomain) {
  EXPECT_EQ(CheckKernel(AddKernel({}, {}, {}, {}, T::Float), Options()), "");
  EXPECT_EQ(CheckKernel(AddKernel({1, 1}, {5, 7}, {0, 0}, {1, 1}, T::Float), Options()), "");
  EXPECT_EQ(CheckKernel(AddKernel({4, 0}, {0, 1}, {0, 1}, {0, 1}, T::Float), Options()), "");
}

TEST_P(KernelLoops, Strides) {
  for (T type : {T::Float, T::Bool, T::Char, T::Long, T::Short, T::Double}) {
    EXPECT_EQ(CheckKernel(AddKernel({3, 5, 7}, {35, 7, 1}, {1, 3, 15}, {35, 7, 1}, type), Options()), "") << "transposed load";
    EXPECT_EQ(CheckKernel(AddKernel({48, 67}, {67, 1}, {1, 48}, {67, 1}, type), Options()), "") << "tiled, with tails";
    EXPECT_EQ(CheckKernel(AddKernel({3, 40, 128}, {5120, 128, 1}, {5120, 1, 40}, {5120, 128, 1}, type), Options()), "") << "tiled batch";
    EXPECT_EQ(CheckKernel(AddKernel({64, 64}, {1, 64}, {1, 100}, {64, 1}, type), Options()), "") << "two tiled loads";
    EXPECT_EQ(CheckKernel(AddKernel({33, 50}, {50, 1}, {1, 33}, {1, 33}, type), Options()), "") << "transposed store";
    EXPECT_EQ(CheckKernel(AddKernel({9, 41}, {100, 2}, {0, 3}, {41, 1}, type), Options()), "") << "gathered";
    EXPECT_EQ(CheckKernel(AddKernel({9, 41}, {41, 1}, {41, 1}, {123, 3}, type), Options()), "") << "scattered";
    EXPECT_EQ(CheckKernel(AddKernel({9, 70}, {140, 2}, {280, 4}, {70, 1}, type), Options()), "") << "near, with a tail";
    EXPECT_EQ(CheckKernel(AddKernel({64}, {3}, {5}, {1}, type), Options()), "") << "near, and further";
    EXPECT_EQ(CheckKernel(AddKernel({70, 150}, {150, 1}, {1, 70}, {150, 1}, type), Options()), "")
        << "the last tile is shorter than a vector";
    EXPECT_EQ(CheckKernel(AddKernel({77, 21}, {21, 1}, {1, 77}, {21, 1}, type), Options()), "") << "the last tile is shorter";
    EXPECT_EQ(CheckKernel(AddKernel({9, 40}, {40, 1}, {1, 9}, {40, 1}, type), Options()), "") << "a tile of less than a vector";
    EXPECT_EQ(CheckKernel(AddKernel({70, 3}, {3, 1}, {0, 1}, {3, 1}, type), Options()), "") << "row of three";
    EXPECT_EQ(CheckKernel(AddKernel({70, 3}, {3, 1}, {1, 0}, {3, 1}, type), Options()), "") << "column";
    EXPECT_EQ(CheckKernel(AddKernel({40, 50}, {0, 0}, {0, 1}, {50, 1}, type), Options()), "") << "scalar operand";
    EXPECT_EQ(CheckKernel(AddKernel({2, 3, 4, 5}, {120, 20, 5, 1}, {0, 5, 0, 1}, {60, 20, 5, 1}, type), Options()), "");
  }
}

TEST_P(KernelLoops, LargeInParallel) {
  EXPECT_EQ(CheckKernel(AddKernel({300, 1001}, {1001, 1}, {0, 1}, {1001, 1}, T::Float), Options()), "");
  EXPECT_EQ(CheckKernel(AddKernel({100000, 3}, {3, 1}, {0, 1}, {3, 1}, T::Float), Options()), "");
  EXPECT_EQ(CheckKernel(AddKernel({500, 600}, {600, 1}, {1, 500}, {600, 1}, T::Float), Options()), "");
}

TEST_P(KernelLoops, InPlaceAndSeveralOutputs) {
  KernelBuilder b({11, 29});
  const int inout = b.Buffer(T::Float, true);
  const int x = b.Load(inout), y = b.Load(b.Buffer(T::Float));
  b.Store(b.Buffer(T::Bool, true), b.Op(K::kLt, x, y));
  b.Store(inout, b.Op(K::kSub, y, x));
  b.Store(b.Buffer(T::Double, {1, 11}, true), b.Cast(b.Op(K::kMul, x, y), T::Double));
  EXPECT_EQ(CheckKernel(b.kernel(), Options()), "");
}

TEST_P(KernelLoops, DivisionDoesNotTrapInTails) {
  KernelBuilder b({37});
  const int x = b.Load(b.Buffer(T::Int)), y = b.Load(b.Buffer(T::Int));
  const int odd = b.Op(K::kOr, b.Op(K::kAnd, y, b.Const(255, T::Int)), b.Const(1, T::Int));
  b.Store(b.Buffer(T::Int, true), b.Op(K::kDiv, x, odd));
  EXPECT_EQ(CheckKernel(b.kernel(), Options()), "");
}

struct Shape {
  c10::DimVector sizes;
  int num_reduced;
  c10::DimVector strides;
};

const std::vector<Shape>& Shapes() {
  static const auto* const shapes = new std::vector<Shape>{
      {{7, 45}, 1, {45, 1}},  // Rows.
      {{1, 45}, 1, {45, 1}},
      {{45, 1}, 1, {1, 1}},
      {{33, 5}, 1, {5, 1}},  // Short rows.
      {{700, 3}, 1, {3, 1}},
      {{45, 19}, 1, {1, 45}},  // Columns.
      {{130, 77}, 1, {1, 130}},
      {{3, 4, 50}, 1, {200, 50, 1}},
      {{3, 50, 4}, 1, {200, 1, 50}},  // Middle dimension.
      {{5, 3, 40}, 2, {40, 200, 1}},  // Channels of NCHW.
      {{64, 33}, 2, {33, 1}},         // Everything.
      {{100003}, 1, {1}},
      {{6, 4, 20000}, 2, {20000, 120000, 1}},  // Split channels.
      {{70, 9000}, 1, {1, 70}},                // Split columns.
      {{200, 7000}, 1, {1, 200}},
      {{9, 30000}, 1, {30000, 1}},  // Split rows.
      {{5, 6, 7}, 2, {84, 14, 2}},  // Strided.
      {{4, 0}, 1, {0, 1}},          // Empty reduction.
  };
  return *shapes;
}

TEST_P(KernelLoops, EveryReductionOverEveryShape) {
  for (const Shape& shape : Shapes()) {
    int64_t numel = 1;
    for (int64_t size : shape.sizes) numel *= size;
    for (K op : {K::kReduceSum, K::kReduceProd, K::kReduceMax, K::kReduceMin}) {
      for (T type : {T::Float, T::Double, T::Long, T::Int, T::Byte}) {
        // Integers have no identity that anyone could mean.
        if (numel == 0 && type != T::Float && (op == K::kReduceMax || op == K::kReduceMin)) continue;
        if (numel > 20000 && type != T::Float) continue;
        KernelBuilder b(shape.sizes, shape.num_reduced);
        const int x = b.Load(b.Buffer(type, shape.strides));
        b.Store(b.KeptBuffer(type, true), b.Op(op, x));
        CheckOptions options = Options(type == T::Float ? 64 : 4096, type == T::Float ? 1e-6 * static_cast<double>(numel) : 1e-9);
        if (op == K::kReduceProd) options.low = 0.99, options.high = 1.01, options.absolute = 0.01;
        options.specials = op == K::kReduceMax || op == K::kReduceMin;
        EXPECT_EQ(CheckKernel(b.kernel(), options), "") << codegen::KOpName(op);
      }
    }
    for (K op : {K::kReduceAny, K::kReduceAll}) {
      KernelBuilder b(shape.sizes, shape.num_reduced);
      const int x = b.Op(K::kGt, b.Load(b.Buffer(T::Float, shape.strides)), b.Const(op == K::kReduceAny ? 3.9 : -3.9));
      b.Store(b.KeptBuffer(T::Bool, true), b.Op(op, x));
      EXPECT_EQ(CheckKernel(b.kernel(), Options()), "") << codegen::KOpName(op);
    }
  }
}

KernelIR Softmax(const Shape& shape, bool in_place) {
  KernelBuilder b(shape.sizes, shape.num_reduced);
  const int in = b.Buffer(T::Float, shape.strides, in_place);
  const int out = in_place ? in : b.Buffer(T::Float, shape.strides, true);
  const int x = b.Load(in);
  const int e = b.Op(K::kExp, b.Op(K::kSub, x, b.Op(K::kReduceMax, x)));
  b.Store(out, b.Op(K::kDiv, e, b.Op(K::kReduceSum, e)));
  return b.kernel();
}

TEST_P(KernelLoops, Softmax) {
  for (const Shape& shape : Shapes()) {
    for (bool in_place : {false, true}) EXPECT_EQ(CheckKernel(Softmax(shape, in_place), Options(32)), "");
  }
}

// Mean, deviation, variance, scaled output; mean and 1/std saved; a running mean updated in place.
KernelIR LayerNorm(const Shape& shape, T type) {
  KernelBuilder b(shape.sizes, shape.num_reduced);
  double count = 1;
  c10::DimVector weight_strides(shape.sizes.size(), 0);
  for (size_t d = shape.sizes.size() - shape.num_reduced; d < shape.sizes.size(); ++d) count *= static_cast<double>(shape.sizes[d]);
  weight_strides.back() = 1;
  const int x = b.Cast(b.Load(b.Buffer(type, shape.strides)), T::Float);
  const int w = b.Load(b.Buffer(T::Float, weight_strides));
  const int mean = b.Op(K::kDiv, b.Op(K::kReduceSum, x), b.Const(count));
  const int d = b.Op(K::kSub, x, mean);
  const int var = b.Op(K::kDiv, b.Op(K::kReduceSum, b.Op(K::kMul, d, d)), b.Const(count));
  const int rstd = b.Op(K::kDiv, b.Const(1), b.Op(K::kSqrt, b.Op(K::kAdd, var, b.Const(1e-5))));
  b.Store(b.Buffer(type, shape.strides, true), b.Cast(b.Op(K::kMul, b.Op(K::kMul, d, rstd), w), type));
  b.Store(b.KeptBuffer(T::Float, true), mean);
  b.Store(b.KeptBuffer(T::Float, true), rstd);
  const int running = b.KeptBuffer(T::Float, true);
  b.Store(running, b.Op(K::kAdd, b.Op(K::kMul, b.Load(running), b.Const(0.9)), b.Op(K::kMul, mean, b.Const(0.1))));
  return b.kernel();
}

TEST_P(KernelLoops, LayerNorm) {
  for (const Shape& shape : Shapes()) {
    if (shape.sizes.back() < 4) continue;  // Variances of next to nothing are ill-conditioned.
    EXPECT_EQ(CheckKernel(LayerNorm(shape, T::Float), Options(16, 3e-5)), "");
    EXPECT_EQ(CheckKernel(LayerNorm(shape, T::BFloat16), Options(2, 3e-5)), "");
  }
}

// Reduce results feeding reduces of other inputs, stores at both levels, kept-level inputs: the gradient of layer norm.
TEST_P(KernelLoops, LayerNormBackward) {
  for (const Shape& shape : Shapes()) {
    KernelBuilder b(shape.sizes, shape.num_reduced);
    const int dy = b.Load(b.Buffer(T::Float, shape.strides)), x = b.Load(b.Buffer(T::Float, shape.strides));
    const int mean = b.Load(b.KeptBuffer(T::Float)), rstd = b.Load(b.KeptBuffer(T::Float));
    const int xhat = b.Op(K::kMul, b.Op(K::kSub, x, mean), rstd);
    const int sum1 = b.Op(K::kReduceSum, dy), sum2 = b.Op(K::kReduceSum, b.Op(K::kMul, dy, xhat));
    const int inner = b.Op(K::kSub, b.Op(K::kMul, dy, b.Const(64)), b.Op(K::kAdd, sum1, b.Op(K::kMul, xhat, sum2)));
    const int dx = b.Op(K::kMul, b.Op(K::kMul, rstd, b.Const(1e-6)), inner);
    b.Store(b.Buffer(T::Float, shape.strides, true), dx);
    b.Store(b.KeptBuffer(T::Float, true), b.Op(K::kReduceMax, b.Op(K::kAbs, dx)));
    EXPECT_EQ(CheckKernel(b.kernel(), Options(64, 0.05)), "");
  }
}

TEST_P(KernelLoops, ReduceOfUniformAndIndexValues) {
  for (const Shape& shape : Shapes()) {
    KernelBuilder b(shape.sizes, shape.num_reduced);
    const int row = b.Load(b.KeptBuffer(T::Float));
    const int last = static_cast<int>(shape.sizes.size()) - 1;
    b.Store(b.KeptBuffer(T::Float, true), b.Op(K::kReduceSum, row));
    b.Store(b.KeptBuffer(T::Long, true), b.Op(K::kReduceSum, b.Index(last)));
    b.Store(b.KeptBuffer(T::Long, true), b.Op(K::kReduceSum, b.Const(2, T::Long)));
    EXPECT_EQ(CheckKernel(b.kernel(), Options(64, 0.05)), "");
  }
}

// Rounding all goes one way here, so that a plain loop of vector additions is off by several units.
TEST_P(KernelLoops, FloatSumIsAccurate) {
  KernelBuilder b({1000000}, 1);
  const int row = b.Buffer(T::Float);
  b.Store(b.Buffer(T::Float, {0}, true), b.Op(K::kReduceSum, b.Load(row)));
  auto compiled = codegen::CompileKernel(b.kernel(), {GetParam(), "eager"}, nullptr);
  ASSERT_TRUE(compiled.ok());
  std::vector<float> in(1000000, 0.1f);
  float out = 0;
  void* buffers[] = {in.data(), &out};
  (*compiled)->Run(buffers, nullptr);
  EXPECT_NEAR(out, 1000000 * static_cast<double>(0.1f), 0.5);
  in.assign(in.size(), std::numeric_limits<float>::quiet_NaN());
  (*compiled)->Run(buffers, nullptr);
  EXPECT_TRUE(std::isnan(out));
}

INSTANTIATE_TEST_SUITE_P(Isa, KernelLoops, ::testing::ValuesIn(AllIsas()));

}  // namespace
}  // namespace lazuli::testing
