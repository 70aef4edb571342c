// The inlined float functions over a dense sample of all floats, against double libm.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "tests/support/kernel_builder.h"
#include "tests/support/kernel_check.h"

namespace lazuli::testing {
namespace {

using T = c10::ScalarType;
using K = codegen::KOp;

struct Function {
  K op;
  double (*reference)(double);
};

constexpr int64_t kBlock = 1 << 16;
// Every how many-th bit pattern is tried; a prime, so that low bits vary. 1 tries all floats and takes minutes.
constexpr uint64_t kStep = 1009;

double UlpOf(double value) {
  const float rounded = std::fabs(static_cast<float>(value));
  if (std::isinf(rounded)) return std::ldexp(1.0, 104);
  return static_cast<double>(std::nextafter(rounded, std::numeric_limits<float>::infinity())) - rounded;
}

double ErrorInUlps(float got, double expected) {
  if (std::isnan(expected)) return std::isnan(got) ? 0 : 1e9;
  if (std::isnan(got)) return 1e9;
  // What rounds to infinity, or lies within 1 ulp of it, may be infinity.
  if (std::isinf(got)) return std::fabs(expected) > 3.4028234e38 && std::signbit(got) == std::signbit(expected) ? 0 : 1e9;
  if (std::isinf(expected)) return 1e9;
  if (expected == 0 && (got != 0 || std::signbit(got) != std::signbit(expected))) return 1e9;
  return std::fabs(got - expected) / UlpOf(expected);
}

class KernelAccuracy : public ::testing::TestWithParam<std::string> {};

TEST_P(KernelAccuracy, WithinOneUlp) {
  const Function functions[] = {{K::kExp, std::exp}, {K::kExpm1, std::expm1}, {K::kTanh, std::tanh},
                                {K::kErf, std::erf}, {K::kLog, std::log},     {K::kLog1p, std::log1p}};
  for (const Function& function : functions) {
    KernelBuilder b({kBlock});
    const int x = b.Load(b.Buffer(T::Float));
    b.Store(b.Buffer(T::Float, true), b.Op(function.op, x));
    auto compiled = codegen::CompileKernel(b.kernel(), {GetParam(), "eager"}, nullptr);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    std::vector<float> in(kBlock), out(kBlock);
    double worst = 0;
    float worst_at = 0;
    for (uint64_t bits = 0; bits < (uint64_t{1} << 32);) {
      int64_t n = 0;
      for (; n < kBlock && bits < (uint64_t{1} << 32); ++n, bits += kStep) {
        const auto pattern = static_cast<uint32_t>(bits);
        std::memcpy(&in[n], &pattern, sizeof(float));
      }
      void* buffers[] = {in.data(), out.data()};
      (*compiled)->Run(buffers, nullptr);
      for (int64_t i = 0; i < n; ++i) {
        const double error = ErrorInUlps(out[i], function.reference(in[i]));
        if (error > worst) {
          worst = error;
          worst_at = in[i];
        }
      }
    }
    RecordProperty(codegen::KOpName(function.op), std::to_string(worst));
    EXPECT_LE(worst, 1.0) << codegen::KOpName(function.op) << "(" << worst_at << ") on " << GetParam();
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, KernelAccuracy, ::testing::Values("avx512", "avx2"));

}  // namespace
}  // namespace lazuli::testing
