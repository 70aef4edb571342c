// Every KOp over its dtypes, on every ISA, against the reference.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/support/kernel_builder.h"
#include "tests/support/kernel_check.h"

namespace lazuli::testing {
namespace {

using T = c10::ScalarType;
using K = codegen::KOp;

constexpr T kIntegers[] = {T::Long, T::Int, T::Short, T::Char, T::Byte};
constexpr T kFloats[] = {T::Float, T::Double};
constexpr T kAllTypes[] = {T::Float, T::Double, T::Long, T::Int, T::Short, T::Char, T::Byte, T::Bool, T::BFloat16, T::Half};

class KernelOps : public ::testing::TestWithParam<std::string> {
 protected:
  CheckOptions Options() const {
    CheckOptions options;
    options.target.isa = GetParam();
    return options;
  }

  // out = op(a), or op(a, b), on `size` elements.
  static codegen::KernelIR Apply(K op, T type, int arity, int64_t size) {
    KernelBuilder b({size});
    int in[3] = {-1, -1, -1};
    for (int k = 0; k < arity; ++k) in[k] = b.Load(b.Buffer(type));
    const int result = b.Op(op, in[0], in[1], in[2]);
    b.Store(b.Buffer(b.kernel().insts[result].type, true), result);
    return b.kernel();
  }
};

TEST_P(KernelOps, ExactFloatingOps) {
  const K ops[] = {K::kAdd, K::kSub, K::kMul, K::kDiv, K::kMin,  K::kMax,   K::kFmin, K::kFmax,  K::kEq,    K::kNe,    K::kLt, K::kLe,
                   K::kGt,  K::kGe,  K::kNeg, K::kAbs, K::kSqrt, K::kFloor, K::kCeil, K::kTrunc, K::kRound, K::kIsNan, K::kFma};
  for (K op : ops) {
    for (T type : kFloats) {
      for (bool specials : {false, true}) {
        CheckOptions options = Options();
        options.specials = specials;
        // Zeros of either sign may win a tie between them.
        if (op == K::kMin || op == K::kMax || op == K::kFmin || op == K::kFmax) options.absolute = 1e-300;
        EXPECT_EQ(CheckKernel(Apply(op, type, codegen::KOpArity(op), 203), options), "") << codegen::KOpName(op);
      }
    }
  }
}

TEST_P(KernelOps, BitsOfFloats) {
  CheckOptions options = Options();
  EXPECT_EQ(CheckKernel(Apply(K::kBits, T::Float, 1, 203), options), "");
  options.whole = true;
  EXPECT_EQ(CheckKernel(Apply(K::kBits, T::Float, 1, 203), options), "");
  EXPECT_FALSE(codegen::VerifyKernel(Apply(K::kBits, T::Double, 1, 9)).ok());
}

TEST_P(KernelOps, IntegerOps) {
  const K ops[] = {K::kAdd, K::kSub, K::kMul, K::kDiv, K::kMod, K::kMin, K::kMax, K::kFmin, K::kFmax, K::kAnd, K::kOr, K::kXor,
                   K::kShl, K::kShr, K::kEq,  K::kNe,  K::kLt,  K::kLe,  K::kGt,  K::kGe,   K::kNeg,  K::kAbs, K::kNot};
  for (K op : ops) {
    for (T type : kIntegers) {
      CheckOptions options = Options();
      options.zeros = op != K::kDiv && op != K::kMod;
      EXPECT_EQ(CheckKernel(Apply(op, type, codegen::KOpArity(op), 139), options), "") << codegen::KOpName(op);
    }
  }
}

TEST_P(KernelOps, BoolOps) {
  for (K op : {K::kAnd, K::kOr, K::kXor, K::kNot, K::kAdd, K::kMul, K::kMin, K::kMax, K::kEq, K::kNe, K::kLt, K::kLe, K::kGt, K::kGe}) {
    EXPECT_EQ(CheckKernel(Apply(op, T::Bool, codegen::KOpArity(op), 77), Options()), "") << codegen::KOpName(op);
  }
}

TEST_P(KernelOps, Casts) {
  for (T from : kAllTypes) {
    for (T to : kAllTypes) {
      KernelBuilder b({181});
      b.Store(b.Buffer(to, true), b.Cast(b.Load(b.Buffer(from)), to));
      for (double scale : {1.0, 300.0, 1e5, 1e12}) {
        CheckOptions options = Options();
        options.low = -3 * scale;
        options.high = 3 * scale;
        options.specials = true;
        EXPECT_EQ(CheckKernel(b.kernel(), options), "");
      }
    }
  }
}

TEST_P(KernelOps, SelectOfEveryType) {
  for (T type : kAllTypes) {
    if (type == T::BFloat16 || type == T::Half) continue;
    KernelBuilder b({91});
    const int condition = b.Load(b.Buffer(T::Bool)), x = b.Load(b.Buffer(type)), y = b.Load(b.Buffer(type));
    b.Store(b.Buffer(type, true), b.Op(K::kSelect, condition, x, y));
    EXPECT_EQ(CheckKernel(b.kernel(), Options()), "");
  }
}

TEST_P(KernelOps, ConstScalarIndex) {
  for (T type : {T::Float, T::Double, T::Long, T::Int, T::Short, T::Char, T::Byte}) {
    KernelBuilder b({5, 37});
    const int x = b.Load(b.Buffer(type));
    const int y = b.Op(K::kAdd, b.Op(K::kMul, x, b.Const(3, type)), b.Scalar(type));
    const int z = b.Op(K::kAdd, y, b.Cast(b.Op(K::kAdd, b.Index(1), b.Op(K::kMul, b.Index(0), b.Const(7, T::Long))), type));
    b.Store(b.Buffer(type, true), z);
    CheckOptions options = Options();
    options.scalars = {type == T::Float || type == T::Double ? BitsOf(1.7) : static_cast<uint64_t>(-300)};
    EXPECT_EQ(CheckKernel(b.kernel(), options), "");
  }
}

// LLVM 19's InstCombine gets this one wrong.
TEST_P(KernelOps, MaximumOfMagnitudeAndZero) {
  for (T type : kFloats) {
    KernelBuilder b({131});
    const int magnitude = b.Op(K::kAbs, b.Load(b.Buffer(type)));
    b.Store(b.Buffer(type, true), b.Op(K::kMax, magnitude, b.Const(0, type)));
    EXPECT_EQ(CheckKernel(b.kernel(), Options()), "");
  }
}

struct MathCase {
  K op;
  double low, high;
};

// Within 1 ulp of the true value, which the double libm gives for Float; libm's own error adds to the bound for Double.
TEST_P(KernelOps, Transcendental) {
  const MathCase cases[] = {
      {K::kExp, -20, 20},  {K::kExpm1, -3, 3},   {K::kLog, 1e-3, 50}, {K::kLog1p, -0.9, 9}, {K::kLog2, 1e-3, 50},     {K::kLog10, 1e-3, 50},
      {K::kExp2, -20, 20}, {K::kTan, -1.5, 1.5}, {K::kAsin, -1, 1},   {K::kAcos, -1, 1},    {K::kAtan, -9, 9},        {K::kSinh, -6, 6},
      {K::kCosh, -6, 6},   {K::kTanh, -5, 5},    {K::kAsinh, -9, 9},  {K::kAcosh, 1, 9},    {K::kAtanh, -0.99, 0.99}, {K::kErf, -3, 3},
      {K::kPow, 0.1, 4},   {K::kAtan2, -3, 3},   {K::kHypot, -3, 3},
  };
  for (const MathCase& c : cases) {
    for (T type : kFloats) {
      for (const char* precision : {"eager", "strict"}) {
        CheckOptions options = Options();
        options.target.precision = precision;
        options.low = c.low;
        options.high = c.high;
        // Without SLEEF, strict means libm's float functions, as in ATen: up to 2 ulp.
        options.ulps = type == T::Float && !(options.target.precision == "strict" && GetParam() == "sse4") ? 1 : 2;
        EXPECT_EQ(CheckKernel(Apply(c.op, type, codegen::KOpArity(c.op), 1003), options), "") << codegen::KOpName(c.op);
        options.specials = true;
        // SLEEF, and so ATen, overflows early in these, or is less accurate far out.
        if (c.op == K::kPow || c.op == K::kAtan2 || c.op == K::kTan || c.op == K::kAcosh) continue;
        EXPECT_EQ(CheckKernel(Apply(c.op, type, codegen::KOpArity(c.op), 403), options), "") << codegen::KOpName(c.op);
      }
    }
  }
}

// The functions for which ATen's own bound is wider.
TEST_P(KernelOps, LooserTranscendental) {
  for (T type : kFloats) {
    for (K op : {K::kSin, K::kCos, K::kErfc, K::kErfinv, K::kLgamma, K::kMod}) {
      CheckOptions options = Options();
      options.low = op == K::kLgamma ? 0.1 : op == K::kErfinv ? -0.99 : -2.5;
      options.high = op == K::kErfinv ? 0.99 : 2.5;
      options.ulps = op == K::kErfinv ? 1e5 : 4;  // The reference's erfinv is the inaccurate one.
      options.absolute = op == K::kMod || op == K::kLgamma ? 1e-6 : 1e-15;
      EXPECT_EQ(CheckKernel(Apply(op, type, codegen::KOpArity(op), 501), options), "") << codegen::KOpName(op);
    }
  }
}

// A value does not depend on its place in the vector, nor on being computed once for a whole row.
TEST_P(KernelOps, TranscendentalsDoNotDependOnPosition) {
  for (K op : {K::kExp, K::kTanh, K::kLog, K::kErf, K::kSin, K::kExpm1, K::kLog1p, K::kExp2, K::kCosh, K::kTan, K::kErfc, K::kAtan}) {
    auto run = [&](int64_t size, int64_t stride) {
      KernelBuilder b({size});
      const int x = b.Load(b.Buffer(T::Float, c10::DimVector(1, stride)));
      b.Store(b.Buffer(T::Float, true), b.Op(op, x));
      auto compiled = codegen::CompileKernel(b.kernel(), {GetParam(), "eager"}, nullptr);
      EXPECT_TRUE(compiled.ok());
      std::vector<float> in(size, 0.7312f), out(size);
      void* buffers[] = {in.data(), out.data()};
      (*compiled)->Run(buffers, nullptr);
      return out;
    };
    const float expected = run(64, 1)[0];
    for (int64_t size : {1, 7, 33, 67}) {
      for (int64_t stride : {0, 1}) {
        for (float value : run(size, stride)) EXPECT_EQ(value, expected) << codegen::KOpName(op) << " " << size << " " << stride;
      }
    }
  }
}

// Doubles beside floats are in vectors twice as long, which some instructions do not have.
TEST_P(KernelOps, DoublesDoNotDependOnFloatsBesideThem) {
  constexpr int64_t kSize = 131;
  const at::Tensor x = at::linspace(-750, 750, kSize, T::Double), other = at::ones({kSize}, T::Float);
  for (K op : {K::kExp, K::kExp2, K::kExpm1, K::kLog, K::kTanh, K::kSinh, K::kSin, K::kErf, K::kPow}) {
    const auto run = [&](bool floats) {
      KernelBuilder b({kSize});
      const int in = b.Load(b.Buffer(T::Double));
      const int exponent = codegen::KOpArity(op) > 1 ? b.Const(3.5, T::Double) : -1;
      const int result = b.Op(op, in, exponent);
      b.Store(b.Buffer(T::Double, true), result);
      if (floats) {
        const int loaded = b.Load(b.Buffer(T::Float));
        b.Store(b.Buffer(T::Float, true), b.Op(K::kNeg, loaded));
      }
      auto compiled = codegen::CompileKernel(b.kernel(), {GetParam(), "eager"}, nullptr);
      EXPECT_TRUE(compiled.ok());
      at::Tensor y = at::empty_like(x), z = at::empty_like(other);
      void* buffers[] = {x.data_ptr(), y.data_ptr(), other.data_ptr(), z.data_ptr()};
      (*compiled)->Run(buffers, nullptr);
      return y;
    };
    const at::Tensor alone = run(false), beside = run(true);
    EXPECT_EQ(std::memcmp(alone.data_ptr(), beside.data_ptr(), kSize * sizeof(double)), 0) << codegen::KOpName(op);
  }
}

// Numbers that leave the inlined code do not change what their neighbours give, and are right themselves.
TEST_P(KernelOps, RareArgumentsAmongOthers) {
  const auto run = [&](K op, const std::vector<double>& in) {
    const int64_t size = static_cast<int64_t>(in.size());
    std::vector<double> out;
    for (T type : kFloats) {
      auto compiled = codegen::CompileKernel(Apply(op, type, 1, size), {GetParam(), "eager"}, nullptr);
      EXPECT_TRUE(compiled.ok());
      at::Tensor x = at::tensor(in).to(type), y = at::empty_like(x);
      void* buffers[] = {x.data_ptr(), y.data_ptr()};
      (*compiled)->Run(buffers, nullptr);
      y = y.to(T::Double);
      out.insert(out.end(), y.const_data_ptr<double>(), y.const_data_ptr<double>() + size);
    }
    return out;
  };
  std::vector<double> usual(67), mixed(67);
  for (size_t i = 0; i < usual.size(); ++i) usual[i] = mixed[i] = 0.25 * (static_cast<double>(i) - 30);
  const double rare[] = {1e5, -1e9, 1e20, -1e30, HUGE_VAL, std::nan("")};
  for (size_t i = 0; i < 6; ++i) mixed[11 * i + 3] = rare[i];
  for (K op : {K::kSin, K::kCos, K::kTan}) {
    const std::vector<double> expected = run(op, usual), got = run(op, mixed);
    for (size_t i = 0; i < got.size(); ++i) {
      const double x = mixed[i % 67];
      const double in = i < 67 ? static_cast<float>(x) : x;
      const double exact = op == K::kSin ? std::sin(in) : op == K::kCos ? std::cos(in) : std::tan(in);
      if (x == usual[i % 67]) {
        EXPECT_EQ(got[i], expected[i]) << codegen::KOpName(op) << " " << x;
      } else if (std::isnan(exact)) {
        EXPECT_TRUE(std::isnan(got[i])) << codegen::KOpName(op) << " " << x;
      } else {
        EXPECT_NEAR(got[i], exact, std::fabs(exact) * (i < 67 ? 1e-6 : 1e-15)) << codegen::KOpName(op) << " " << x;
      }
    }
  }
}

// Sine and cosine of one number reduce it once, and have both polynomials in common: only what they choose differs.
TEST(KernelCode, SineAndCosineShareTheirWork) {
  const auto multiplications = [](std::vector<K> ops, T type) {
    KernelBuilder b({256});
    const int x = b.Load(b.Buffer(type));
    for (K op : ops) b.Store(b.Buffer(type, true), b.Op(op, x));
    const auto text = codegen::KernelSource(b.kernel(), {"avx512", "eager"});
    EXPECT_TRUE(text.ok()) << text.status();
    const std::string kernel = text->substr(0, text->find("\n}\n"));  // Without the functions of rare arguments.
    size_t count = 0;
    for (size_t at = kernel.find("call <"); at != std::string::npos; at = kernel.find("call <", at + 1)) {
      count += kernel.compare(kernel.find('@', at), 9, "@llvm.fma") == 0 ? 1 : 0;
    }
    return count;
  };
  for (T type : kFloats) {
    const size_t sine = multiplications({K::kSin}, type);
    EXPECT_GT(sine, 10u);
    EXPECT_EQ(multiplications({K::kCos}, type), sine);
    EXPECT_EQ(multiplications({K::kSin, K::kCos}, type), sine);
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, KernelOps, ::testing::ValuesIn(AllIsas()));

}  // namespace
}  // namespace lazuli::testing
