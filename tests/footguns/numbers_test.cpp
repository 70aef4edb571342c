// Values where a compiled kernel could easily differ from eager.

#include <ATen/ScalarOps.h>

#include <functional>
#include <limits>

#include "runtime/default_dtype.h"
#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

class NumbersTest : public BackendTest {};

torch::Tensor Special(torch::ScalarType dtype) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  // Longer than a vector register, so that both the vector body and the tail of a loop see each value.
  return OnTestDevice(
             torch::tensor({0.0f, -0.0f, 1.0f, -1.0f, inf, -inf, nan, 1e-40f, -1e-40f, 3.4e38f, -3.4e38f, 0.5f, -2.5f, 1e-8f, 7.0f}))
      .repeat({5})
      .to(dtype);
}

TEST_P(NumbersTest, NotANumberInfinityAndNegativeZeroInArithmetic) {
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kHalf}) {
    SCOPED_TRACE(torch::toString(dtype));
    ExpectSameAsEager([dtype] {
      auto x = Special(dtype) + 0.0;
      auto y = x.flip(0);
      return Tensors{x + y,          x - y,    x * y,       x / y,    -x,       x.abs(),   x.sqrt(),
                     x.reciprocal(), x * -0.0, x.neg() + x, x.relu(), x.sign(), x.square()};
    });
  }
}

// LibTorch's kernels round the number to the type in some of these, and not in others.
TEST_P(NumbersTest, HalvesTimesNumbers) {
  for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
    SCOPED_TRACE(torch::toString(dtype));
    ExpectSameAsEager([&] {
      const auto x = OnTestDevice(torch::arange(1, 200, torch::kFloat) / 7).to(dtype);
      Tensors results;
      for (const at::Scalar& number : {at::Scalar(0.9), at::Scalar(257), at::Scalar(1e-9), at::Scalar(300.7)}) {
        Tensors list{x + 1, x * 2};
        torch::_foreach_mul_(list, number);
        results.insert(results.end(), list.begin(), list.end());
        for (const auto& y : {(x + 0).mul_(number), x.mul(number), torch::_foreach_mul({x}, number)[0], (x + 0).div_(number),
                              (x + 0).add_(number), (x + 0).sub_(number), torch::addcmul(x, x, x, number)}) {
          results.push_back(y);
        }
      }
      return results;
    });
  }
}

// A sum that the type cannot hold, and one that it would round.
TEST_P(NumbersTest, MeansOfHalves) {
  for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
    ExpectSameAsEager([&] {
      const auto large = torch::full({2, 128}, 600, dtype), x = torch::arange(2 * 128, torch::kFloat).view({2, 128}).to(dtype) / 7;
      return Tensors{large.mean(), large.mean(1), x.mean(), x.mean(0), x.mean(1, /*keepdim=*/true)};
    });
  }
}

TEST_P(NumbersTest, NotANumberInComparisonsMinAndMax) {
  ExpectSameAsEager([] {
    auto x = Special(torch::kFloat) * 1;
    auto y = x.flip(0);
    return Tensors{x == y,
                   x != y,
                   x<y, x <= y, x> y,
                   x >= y,
                   torch::maximum(x, y),
                   torch::minimum(x, y),
                   x.clamp(-1, 1),
                   x.clamp_min(0),
                   x.clamp_max(0),
                   x.clamp(0, 1),
                   x.relu(),
                   torch::hardtanh(x, 0, 2),
                   torch::relu6(x),
                   torch::where(x > y, x, y),
                   x.isnan(),
                   x.isinf(),
                   x.max(),
                   x.min(),
                   torch::logical_and(x, y)};
  });
}

TEST_P(NumbersTest, InfinitiesAreFound) {
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kHalf}) {
    SCOPED_TRACE(torch::toString(dtype));
    ExpectSameAsEager([dtype] {
      const auto x = Special(dtype);
      return Tensors{x.isinf(), (x + 0).isinf(), x.isfinite(), x.isposinf(), x.isneginf(), x[4].isinf(), x.t().isinf()};
    });
  }
  ExpectSameAsEager([] {
    const auto integers = torch::arange(5, torch::kLong) + 1;
    return Tensors{integers.isinf(), (integers > 2).isinf()};
  });
}

// Kernels turn numbers into the type that they compute in, and throw where it does not hold them: eager's decide.
TEST_P(NumbersTest, NumbersThatTheTypeDoesNotHold) {
  constexpr double kWide = 1e300;
  const auto what = [](const std::function<torch::Tensor()>& call) -> std::string {
    try {
      call().sum().cpu();
    } catch (const std::exception& error) {
      return std::string(error.what()).substr(0, 60);
    }
    return "nothing";
  };
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kBFloat16}) {
    SCOPED_TRACE(torch::toString(dtype));
    const auto x = torch::ones({5}, torch::TensorOptions(TestDevice()).dtype(dtype));
    const std::vector<std::function<torch::Tensor()>> calls = {
        [&] { return x.clamp_min(kWide); },
        [&] { return x.clamp_max(-kWide); },
        [&] { return x.clamp(0, kWide); },
        [&] { return (x + 0).clamp_(-kWide, 1); },
        [&] { return at::hardtanh(x, -1, kWide); },
        [&] { return at::threshold(x, 0, kWide); },
        [&] { return at::leaky_relu(x, kWide); },
        [&] { return at::elu(x, kWide); },
        [&] { return at::softplus(x, 1, kWide); },
        [&] { return x.add(x, kWide); },
        [&] { return at::addcmul(x, x, x, kWide); },
        [&] { return x.lerp(x, kWide); },
        [&] {
          return at::constant_pad_nd(x, {1, 1}, kWide);
        },
        [&] { return x.mul(kWide); },
        [&] { return x.sub(-kWide); },
        [&] { return x.pow(kWide); },
    };
    for (size_t i = 0; i < calls.size(); ++i) {
      const std::string eager = what(calls[i]);
      const lazuli::DeviceMode mode(options());
      for (int run = 0; run < 3; ++run) {
        EXPECT_EQ(what(calls[i]), eager) << i;
        EXPECT_NO_THROW(lazuli::sync()) << i;
      }
    }
  }
}

// Exponents that a float is another number for: odd, not zero, not infinite. (Other exponents are rounded as in a vector of ATen's.)
TEST_P(NumbersTest, ExponentsThatFloatsDoNotHold) {
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    SCOPED_TRACE(torch::toString(dtype));
    ExpectSameAsEager([dtype] {
      Tensors results;
      const auto x = torch::full({5}, -1.0, torch::TensorOptions(TestDevice()).dtype(dtype)), zero = x + 1;
      for (const at::Scalar& exponent : {at::Scalar(2147483647), at::Scalar(-2147483647), at::Scalar(16777217), at::Scalar(16777216)}) {
        results.push_back(x.pow(exponent) * 2);
        results.push_back((x + 0).pow_(exponent));
      }
      for (const double exponent : {1e-60, 1e-30}) results.push_back(zero.pow(exponent) + 1);
      results.push_back(torch::pow(at::Scalar(-1), torch::full({3}, 3, torch::TensorOptions(TestDevice()).dtype(dtype))));
      return results;
    });
  }
}

TEST_P(NumbersTest, RoundingAndRemainders) {
  ExpectSameAsEager([] {
    auto x = OnTestDevice(torch::tensor({-2.5, -1.5, -0.5, -0.0, 0.0, 0.5, 1.5, 2.5, 7.0, -7.0, 1e10, -3.7})).to(torch::kFloat).repeat({3});
    auto y = OnTestDevice(torch::tensor({2.0, -2.0, 3.0})).to(torch::kFloat).repeat({12});
    return Tensors{x.round(),
                   x.floor(),
                   x.ceil(),
                   x.trunc(),
                   x.frac(),
                   torch::fmod(x, y),
                   torch::remainder(x, y),
                   torch::floor_divide(x, y),
                   torch::div(x, y, "trunc"),
                   torch::div(x, y, "floor")};
  });
}

TEST_P(NumbersTest, IntegerDivisionAndRemainder) {
  for (const auto dtype : {torch::kInt, torch::kLong, torch::kShort, torch::kChar, torch::kByte}) {
    SCOPED_TRACE(torch::toString(dtype));
    ExpectSameAsEager([dtype] {
      auto x = torch::arange(1, 41).to(dtype) * 3;
      auto y = torch::arange(40, 0, -1).to(dtype);
      if (dtype != torch::kByte) x = torch::where(y > 20, -x, x);
      return Tensors{x / y,
                     torch::div(x, y, "trunc"),
                     torch::div(x, y, "floor"),
                     torch::floor_divide(x, y),
                     torch::remainder(x, y),
                     torch::fmod(x, y),
                     x % 7,
                     x.true_divide(y),
                     x + 1.5,
                     x * 2};
    });
  }
}

TEST_P(NumbersTest, IntegersWrapAround) {
  ExpectSameAsEager([] {
    auto i8 = torch::full({37}, 120, torch::kChar) + 0;
    auto i32 = torch::full({37}, std::numeric_limits<int32_t>::max(), torch::kInt) + 0;
    auto i64 = torch::full({37}, std::numeric_limits<int64_t>::max(), torch::kLong) + 0;
    auto u8 = torch::full({37}, 200, torch::kByte) + 0;
    return Tensors{i8 + i8,   i8 * i8, i32 + 1,  i32 * 3, -(i32 + 1), (i32 + 1).abs(), i64 + 1,
                   i64 * i64, u8 + u8, u8 - 201, -u8,     i32.sum(),  i8.sum()};
  });
}

TEST_P(NumbersTest, ShiftsAndBitwise) {
  ExpectSameAsEager([] {
    auto x = torch::arange(-20, 20, torch::kInt);
    auto s = torch::arange(40, torch::kInt) % 31;
    return Tensors{torch::bitwise_left_shift(x, s),
                   torch::bitwise_right_shift(x, s),
                   torch::__lshift__(x, s),
                   torch::__rshift__(x, 1),
                   x & s,
                   x | s,
                   x ^ s,
                   x.bitwise_not(),
                   torch::bitwise_left_shift(x, 3),
                   torch::bitwise_right_shift(x, 2)};
  });
}

TEST_P(NumbersTest, BoolArithmetic) {
  ExpectSameAsEager([] {
    auto a = torch::arange(33) % 2 == 0;
    auto b = torch::arange(33) % 3 == 0;
    return Tensors{
        a + b, a * b, a & b, a | b, a ^ b, ~a, a.logical_not(), a + 1, a * 2.5, a.sum(), a.all(), b.any(), torch::where(a, 1.0, 2.0)};
  });
}

// Sums begin with +0, those of one element and of one that is repeated, too.
TEST_P(NumbersTest, NoSumIsNegativeZero) {
  ExpectSameAsEager([] {
    const auto zero = OnTestDevice(torch::full({4, 8}, -0.0F)), number = OnTestDevice(torch::full({1}, -0.0F));
    const auto computed = OnTestDevice(torch::ones({4, 8})) * -0.0;
    return Tensors{zero.sum(),
                   zero.sum(0),
                   zero.mean(1),
                   computed.sum(),
                   computed.sum(1),
                   number.sum(),
                   number.expand(7).sum(),
                   (number * 2).expand({3, 5}).sum(1),
                   zero.to(torch::kDouble).sum(),
                   torch::full({3, 4, 5}, -0.0).sum(at::IntArrayRef{0, 2})};
  });
}

TEST_P(NumbersTest, TypePromotionOfScalarsAndZeroDimTensors) {
  ExpectSameAsEager([] {
    auto half = torch::ones({5}, torch::kHalf) + 0;
    auto ints = torch::arange(5) + 0;
    auto zero_dim = torch::tensor(2.5, torch::kDouble) + 0;
    auto zero_dim_int = torch::tensor(3) + 0;
    return Tensors{half + 1,
                   half * 2.5,
                   half + zero_dim,
                   ints + zero_dim,
                   ints * 0.5,
                   half + zero_dim_int,
                   ints / 2,
                   zero_dim + zero_dim_int,
                   half + torch::ones({5}, torch::kBFloat16),
                   ints + (ints > 2)};
  });
}

TEST_P(NumbersTest, CastsRoundAndSaturateAsEager) {
  ExpectSameAsEager([] {
    auto x = torch::linspace(-300, 300, 61) * 1.01;
    auto safe = x.clamp(-100, 100);
    return Tensors{x.to(torch::kInt),
                   safe.to(torch::kChar),
                   safe.abs().to(torch::kByte),
                   x.to(torch::kBFloat16),
                   x.to(torch::kHalf),
                   x.to(torch::kBool),
                   x.to(torch::kBFloat16).to(torch::kFloat) - x,
                   x.to(torch::kLong).to(torch::kDouble)};
  });
}

TEST_P(NumbersTest, LowPrecisionRoundsAfterEveryOperation) {
  ExpectSameAsEager([] {
    auto x = torch::linspace(0.1, 3, 50).to(torch::kBFloat16);
    auto y = x * x;
    auto z = y + x;
    return Tensors{z, (z - y) / x, ((x + 100) - 100), (x.to(torch::kHalf) * 1.1 + 3.3)};
  });
}

TEST_P(NumbersTest, EmptyAndSingleElementTensors) {
  ExpectSameAsEager([] {
    auto empty = torch::empty({0, 3}) + 1;
    auto one = torch::full({1, 1}, 2.0) * 3;
    auto scalar = torch::tensor(4.0) * 2;
    return Tensors{empty,
                   empty * 2,
                   empty.sum(),
                   empty.sum(0),
                   empty.t() + 1,
                   one + scalar,
                   one.sum(),
                   one.expand({3, 2}) * 2,
                   scalar,
                   scalar.exp(),
                   empty.mean(1),
                   one.softmax(1),
                   torch::cat({empty, one.expand({1, 3})}),
                   torch::zeros({2, 0}).sum(1),
                   one.mean(torch::IntArrayRef{0, 1}),
                   torch::matmul(torch::ones({2, 0}), torch::ones({0, 3})),
                   empty.amax(1)};
  });
}

TEST_P(NumbersTest, ReductionsOfSpecialValues) {
  ExpectSameAsEager([] {
    auto x = Special(torch::kFloat).view({5, 15}) * 1;
    auto finite = torch::arange(75, torch::kFloat).view({5, 15}) * 0.1;
    return Tensors{x.sum(1),
                   x.mean(0),
                   x.amax(1),
                   x.amin(0),
                   finite.softmax(1),
                   finite.log_softmax(0),
                   finite.var(1),
                   finite.std(0),
                   finite.logsumexp(1),
                   (finite * 1e4).softmax(1),
                   torch::full({2, 4}, -std::numeric_limits<float>::infinity()).softmax(1)};
  });
}

// Python's `x.copy_(2.5)`: the number is an operand, of its own type.
TEST_P(NumbersTest, CopiesOfNumbers) {
  for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kLong, torch::kInt, torch::kByte, torch::kBool, torch::kComplexFloat}) {
    SCOPED_TRACE(torch::toString(dtype));
    ExpectSameAsEager([dtype] {
      Tensors all;
      for (const at::Scalar& number : {at::Scalar(2.5), at::Scalar(3), at::Scalar(true)}) {
        auto x = torch::ones({37}, OnTestDevice(torch::zeros({})).options().dtype(dtype)).logical_not().to(dtype);
        x.copy_(at::native::wrapped_scalar_tensor(number));
        all.push_back(x);
        all.push_back(x + x);
        // As transforms over functions copy numbers: to another dtype and back, and as they are.
        const auto pending = at::native::wrapped_scalar_tensor(number);
        const auto cast = at::_to_copy(pending, dtype);
        all.push_back(cast);
        all.push_back(at::_to_copy(cast, torch::kDouble));
        all.push_back(pending.clone());
        all.push_back(x + cast);
      }
      return all;
    });
  }
}

// What numbers are, and what integers become, is the default dtype's, which the program may change at any time.
TEST_P(NumbersTest, DefaultDtypeChanges) {
  ExpectSameAsEager([] {
    const auto x = OnTestDevice(torch::arange(1, 38)) + 1;
    Tensors all;
    const auto run = [&] {
      const auto third = x / 3;
      for (const auto& result : {third, x * 0.1, x.sqrt(), third + torch::full({37}, 0.1, x.device()), torch::zeros({2}, x.device())}) {
        all.push_back(result);
      }
    };
    for (int i = 0; i < 2; ++i) {
      run();
      {
        const runtime::DefaultDtypeScope dtype(torch::kDouble);
        run();
      }
      run();  // What was recorded before runs when the default is another one already.
      const runtime::DefaultDtypeScope dtype(i == 0 ? torch::kDouble : torch::kFloat);
      run();
    }
    return all;
  });
}

TEST_P(NumbersTest, DefaultDtypeIsPartOfAProgram) {
  const DeviceMode mode(options());
  const auto x = OnTestDevice(torch::arange(1, 38));
  const auto run = [&x](c10::ScalarType dtype) {
    const runtime::DefaultDtypeScope scope(dtype);
    const auto result = (x / 3) * 2;
    lazuli::sync();
    return result.scalar_type();
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(run(torch::kFloat), torch::kFloat);
    EXPECT_EQ(run(torch::kDouble), torch::kDouble);
  }
  const StatsDelta delta;
  run(torch::kDouble);
  run(torch::kFloat);
  EXPECT_EQ(delta.of(&Stats::cache_hits), 2);
  EXPECT_EQ(delta.of(&Stats::programs_compiled), 0);
}

LAZULI_FOR_EACH_BACKEND(NumbersTest);

}  // namespace
}  // namespace lazuli::testing
