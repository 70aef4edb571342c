// Which functions a GPU's kernels compute by the hardware's own (codegen/cuda/rough_functions.h).
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "codegen/cuda/nvrtc_compiler.h"
#include "tests/support/gpu_target.h"
#include "tests/support/kernel_builder.h"
#include "tests/support/nvrtc.h"

namespace lazuli::testing {
namespace {

using T = c10::ScalarType;
using K = codegen::KOp;
using codegen::KernelIR;

// Whether the text calls `name` other than in its definition.
bool Calls(const KernelIR& kernel, const std::string& name) {
  const std::string text = GpuSource(kernel);
  const size_t body = text.find("_body(");
  return body != std::string::npos && absl::StrContains(text.substr(body), name);
}

// f(x), as `type`; with `as_well` as a Float, too.
KernelIR Function(K f, T type, bool as_well = false) {
  KernelBuilder b({1 << 20});
  const int y = b.Op(f, b.Cast(b.Load(b.Buffer(type)), T::Float));
  b.Store(b.Buffer(type, true), b.Cast(y, type));
  if (as_well) b.Store(b.Buffer(T::Float, true), y);
  return b.kernel();
}

TEST(RoughFunctions, WhatIsRoundedToHalves) {
  for (const T type : {T::BFloat16, T::Half}) {
    EXPECT_TRUE(Calls(Function(K::kExp, type), "rough_exp("));
    EXPECT_TRUE(Calls(Function(K::kTanh, type), "rough_tanh("));
    EXPECT_FALSE(Calls(Function(K::kLog, type), "rough_"));
    EXPECT_FALSE(Calls(Function(K::kSqrt, type), "rough_"));
    EXPECT_FALSE(Calls(Function(K::kExp, type, /*as_well=*/true), "rough_"));
  }
  EXPECT_FALSE(Calls(Function(K::kExp, T::Float), "rough_"));
  EXPECT_FALSE(Calls(Function(K::kTanh, T::Float), "rough_"));
}

// The kernel of `Make(b, x)`, a Float of the Float `x`, from and to `type`.
template <class Make>
KernelIR Of(T type, const Make& make, int num_reduced = 0) {
  KernelBuilder b({1024, 1024}, num_reduced);
  const int x = b.Cast(b.Load(b.Buffer(type)), T::Float);
  b.Store(b.Buffer(type, true), b.Cast(make(b, x), type));
  return b.kernel();
}

TEST(RoughFunctions, ThroughArithmetic) {
  const auto swish = [](KernelBuilder& b, int x) { return b.Op(K::kDiv, x, b.Op(K::kAdd, b.Op(K::kExp, b.Op(K::kNeg, x)), b.Const(1))); };
  EXPECT_TRUE(Calls(Of(T::BFloat16, swish), "rough_exp("));
  EXPECT_TRUE(Calls(Of(T::BFloat16, swish), "rough_div("));
  EXPECT_FALSE(Calls(Of(T::Float, swish), "rough_"));
  const auto of_log = [](KernelBuilder& b, int x) { return b.Op(K::kLog, b.Op(K::kExp, x)); };
  EXPECT_FALSE(Calls(Of(T::BFloat16, of_log), "rough_")) << "who knows what a logarithm does to errors";
}

// What eager mode computes bit for bit stays so.
TEST(RoughFunctions, QuotientsOfWhatIsExactAreExact) {
  const auto inverse = [](KernelBuilder& b, int x) { return b.Op(K::kDiv, b.Const(1), b.Op(K::kAdd, x, b.Const(2))); };
  EXPECT_FALSE(Calls(Of(T::BFloat16, inverse), "rough_"));
  // An exponential that was rounded to a half is as exact as any half.
  const auto of_half = [](KernelBuilder& b, int x) { return b.Op(K::kDiv, x, b.Cast(b.Cast(b.Op(K::kExp, x), T::BFloat16), T::Float)); };
  EXPECT_TRUE(Calls(Of(T::BFloat16, of_half), "rough_exp("));
  EXPECT_FALSE(Calls(Of(T::BFloat16, of_half), "rough_div("));
}

int Exponential(KernelBuilder& b, int x) { return b.Op(K::kExp, b.Op(K::kSub, x, b.Op(K::kReduceMax, x))); }

TEST(RoughFunctions, SumsOfExponentials) {
  const auto softmax = [](KernelBuilder& b, int x) {
    const int e = Exponential(b, x);
    return b.Op(K::kDiv, e, b.Op(K::kReduceSum, e));
  };
  EXPECT_TRUE(Calls(Of(T::Half, softmax, 1), "rough_exp("));
  EXPECT_TRUE(Calls(Of(T::Half, softmax, 1), "rough_div("));
  EXPECT_FALSE(Calls(Of(T::Float, softmax, 1), "rough_")) << "they are results, too";
  const auto log_softmax = [](KernelBuilder& b, int x) {
    const int below = b.Op(K::kSub, x, b.Op(K::kReduceMax, x));
    return b.Op(K::kSub, below, b.Op(K::kLog, b.Op(K::kReduceSum, b.Op(K::kExp, below))));
  };
  EXPECT_TRUE(Calls(Of(T::Float, log_softmax, 1), "rough_exp("));
  const auto of_any_size = [](KernelBuilder& b, int x) { return b.Op(K::kSub, x, b.Op(K::kReduceSum, b.Op(K::kExp, x))); };
  EXPECT_FALSE(Calls(Of(T::Float, of_any_size, 1), "rough_")) << "large ones' errors are large";
  const auto below_others = [](KernelBuilder& b, int x) {
    const int e = b.Op(K::kExp, b.Op(K::kSub, b.Op(K::kMul, x, b.Const(3)), b.Op(K::kReduceMax, x)));
    return b.Op(K::kSub, x, b.Op(K::kReduceSum, e));
  };
  EXPECT_FALSE(Calls(Of(T::Float, below_others, 1), "rough_")) << "above them, perhaps";
}

TEST(RoughFunctions, NoneWherePrecisionIsStrict) {
  EXPECT_FALSE(absl::StrContains(GpuSource(Function(K::kExp, T::BFloat16), "strict"), "rough_"));
}

TEST(RoughFunctions, Compile) {
  LAZULI_SKIP_WITHOUT_NVRTC();
  for (const K f : {K::kExp, K::kTanh}) {
    const auto code = codegen::CompileCuda(GpuSource(Function(f, T::BFloat16)), kTestedArch, false);
    EXPECT_TRUE(code.ok()) << code.status();
  }
}

}  // namespace
}  // namespace lazuli::testing
