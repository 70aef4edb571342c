// Divisions of rows by one number, which kernels do by multiplications where that is faster: bit-equal to IEEE division all the same.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "codegen/emit_llvm_plan.h"
#include "codegen/kernel_compiler.h"
#include "tests/support/kernel_builder.h"

namespace lazuli::testing {
namespace {

using T = c10::ScalarType;
using K = codegen::KOp;

constexpr int64_t kRow = 1024;
constexpr unsigned kSeed = 20;
const codegen::IsaInfo kWide{64, true, true};

// A row over a number, and `work` more operations for each element.
codegen::KernelIR DivisionKernel(T type, int work = 0) {
  KernelBuilder k({kRow});
  const int in = k.Buffer(type), out = k.Buffer(type, true);
  int value = k.Op(K::kDiv, k.Load(in), k.Scalar(type));
  for (int i = 0; i < work; ++i) value = k.Op(K::kAdd, value, k.Const(i, type));
  k.Store(out, value);
  return k.kernel();
}

template <class F>
using BitsType = std::conditional_t<sizeof(F) == 4, uint32_t, uint64_t>;

template <class F>
BitsType<F> Bits(F value) {
  BitsType<F> bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

template <class F>
F FromBits(uint64_t pattern) {
  const auto bits = static_cast<BitsType<F>>(pattern);
  F value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

template <class F>
class Divisions : public ::testing::Test {
 protected:
  static constexpr int kDigits = std::numeric_limits<F>::digits;
  static constexpr T kType = c10::CppTypeToScalarType<F>::value;

  void SetUp() override {
    auto made = codegen::CompileKernel(DivisionKernel(kType), {"avx512", "eager"}, nullptr);
    ASSERT_TRUE(made.ok()) << made.status();
    kernel_ = *made;
  }

  void ExpectQuotients(std::vector<F> dividends, F divisor) {
    dividends.resize(kRow, 1);
    std::vector<F> out(kRow);
    void* buffers[] = {dividends.data(), out.data()};
    const uint64_t scalar = Bits(static_cast<double>(divisor));
    kernel_->Run(buffers, &scalar);
    for (int64_t i = 0; i < kRow; ++i) {
      const F expected = dividends[i] / divisor;
      if (std::isnan(expected) && std::isnan(out[i])) continue;
      ASSERT_EQ(Bits(out[i]), Bits(expected)) << dividends[i] << " / " << divisor << " = " << out[i] << ", seed " << kSeed;
    }
  }

  F Random() { return FromBits<F>(random_()); }
  F RandomMiddle() { return static_cast<F>(std::ldexp(Mantissa(), static_cast<int>(random_() % 100) - 50)); }
  F Mantissa() { return FromBits<F>((random_() & (Bits(F{2}) - Bits(F{1}) - 1)) | Bits(F{1})); }

  // Dividends whose quotients by the odd whole number `divisor` are as close as it gets to the middle of two neighbours.
  std::vector<F> HardDividends(uint64_t divisor) {
    uint64_t inverse = divisor;  // Modulo 2^64.
    for (int i = 0; i < 6; ++i) inverse *= 2 - divisor * inverse;
    std::vector<F> found;
    const uint64_t smallest = uint64_t{1} << (kDigits - 1), end = smallest << 1;
    for (int64_t off = -7; off <= 7; off += 2) {
      for (int shift = kDigits; shift <= kDigits + 1; ++shift) {  // divisor * middle + off = dividend * 2^shift
        const uint64_t modulus = uint64_t{1} << shift;
        uint64_t middle = -static_cast<uint64_t>(off) * inverse & (modulus - 1);
        if (shift == kDigits) middle += modulus;
        if (middle < end) continue;
        const auto product = static_cast<unsigned __int128>(divisor) * middle + static_cast<unsigned __int128>(static_cast<__int128>(off));
        const auto dividend = static_cast<uint64_t>(product >> shift);
        if (dividend >= smallest && dividend < end) found.push_back(static_cast<F>(dividend));
      }
    }
    return found;
  }

  std::shared_ptr<const codegen::CompiledKernel> kernel_;
  std::mt19937_64 random_{kSeed};
};

using Floats = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Divisions, Floats);

TYPED_TEST(Divisions, HardQuotients) {
  using F = TypeParam;
  const uint64_t smallest = uint64_t{1} << (this->kDigits - 1);
  size_t hard = 0;
  for (int i = 0; i < 4000; ++i) {
    const uint64_t random = this->random_() % smallest, near = static_cast<uint64_t>(i) / 2;
    const uint64_t divisor = (i % 4 == 0 ? smallest + near : i % 4 == 1 ? 2 * smallest - 1 - near : smallest + random) | 1;
    std::vector<F> dividends = this->HardDividends(divisor);
    hard += dividends.size();
    for (size_t j = dividends.size(); j < 64; ++j) dividends.push_back(this->RandomMiddle());
    this->ExpectQuotients(dividends, static_cast<F>(divisor));
    this->ExpectQuotients(dividends, static_cast<F>(std::ldexp(static_cast<F>(divisor), -this->kDigits - 5)));
    if (this->HasFatalFailure()) return;
  }
  EXPECT_GT(hard, 20000U);
}

TYPED_TEST(Divisions, EndsOfTheRange) {
  using F = TypeParam;
  using Limits = std::numeric_limits<F>;
  std::vector<F> values = {0, 1, 3, Limits::denorm_min(), Limits::min(), Limits::max(), Limits::infinity(), Limits::quiet_NaN()};
  for (const int exponent : {-1000, -501, -500, -499, -400, -126, -61, -60, -59, -1, 59, 60, 61, 126, 400, 499, 500, 501, 1000}) {
    const F power = static_cast<F>(std::ldexp(1.0, exponent));
    values.insert(values.end(), {power, std::nextafter(power, F{0}), std::nextafter(power, Limits::infinity()), power * F(1.7)});
  }
  for (size_t i = values.size(); i-- > 0;) values.push_back(-values[i]);
  for (const F divisor : values) {
    this->ExpectQuotients(values, divisor);
    for (const F dividend : values) this->ExpectQuotients(std::vector<F>(kRow, dividend), divisor);
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(Divisions, RandomNumbers) {
  using F = TypeParam;
  for (int i = 0; i < 2000; ++i) {
    std::vector<F> dividends(kRow);
    // Whole rows of one kind, and mixed ones: vectors with a lane that has to be divided, and without.
    for (F& a : dividends) a = i % 3 == 0 || (i % 3 == 1 && this->random_() % 40 == 0) ? this->Random() : this->RandomMiddle();
    this->ExpectQuotients(dividends, i % 7 == 0 ? this->Random() : this->RandomMiddle());
    if (this->HasFatalFailure()) return;
  }
}

TEST(DivisionPlan, ByTheReciprocalWhereThereIsLittleElseToDo) {
  const auto multiplied = [](const codegen::KernelIR& kernel, const codegen::IsaInfo& isa) {
    const codegen::LoopPlan plan = codegen::PlanLoops(kernel, isa);
    return std::count(plan.by_reciprocal.begin(), plan.by_reciprocal.end(), true);
  };
  EXPECT_EQ(multiplied(DivisionKernel(T::Float), kWide), 1);
  EXPECT_EQ(multiplied(DivisionKernel(T::Double), kWide), 1);
  EXPECT_EQ(multiplied(DivisionKernel(T::Float, 30), kWide), 0);
  EXPECT_EQ(multiplied(DivisionKernel(T::Float), {32, false, true}), 0);
  EXPECT_EQ(multiplied(DivisionKernel(T::Long), kWide), 0);
  KernelBuilder by_vector({kRow});
  const int a = by_vector.Load(by_vector.Buffer(T::Float)), b = by_vector.Load(by_vector.Buffer(T::Float));
  by_vector.Store(by_vector.Buffer(T::Float, true), by_vector.Op(K::kDiv, a, b));
  EXPECT_EQ(multiplied(by_vector.kernel(), kWide), 0);
}

TEST(DivisionPlan, SoftmaxOfRows) {
  KernelBuilder k({64, kRow}, 1);
  const int x = k.Load(k.Buffer(T::Float));
  const int exp = k.Op(K::kExp, k.Op(K::kSub, x, k.Op(K::kReduceMax, x)));
  const int quotient = k.Op(K::kDiv, exp, k.Op(K::kReduceSum, exp));
  k.Store(k.Buffer(T::Float, true), quotient);
  EXPECT_TRUE(codegen::PlanLoops(k.kernel(), kWide).by_reciprocal[quotient]);
}

}  // namespace
}  // namespace lazuli::testing
