// What makes tensors of numbers alone is recorded like any operator: what it makes is part of the kernels that use it.

#include <ATen/ops/eye.h>

#include "tests/support/error_of.h"
#include "tests/support/expect_launches.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

class FactoriesTest : public BackendTest {};

TEST_P(FactoriesTest, OfEveryDtypeAndSize) {
  ExpectSameAsEager([] {
    Tensors results;
    for (const torch::ScalarType dtype :
         {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16, torch::kLong, torch::kInt, torch::kByte, torch::kBool}) {
      for (const auto& sizes : std::vector<std::vector<int64_t>>{{3, 4}, {1}, {0, 2}, {}}) {
        results.push_back(torch::zeros(sizes, dtype));
        results.push_back(torch::ones(sizes, dtype));
        results.push_back(torch::full(sizes, 1, dtype));
      }
      results.push_back(torch::eye(4, dtype));
      results.push_back(torch::eye(3, 5, dtype));
      if (dtype == torch::kBool) continue;
      results.push_back(torch::arange(7, dtype));
      results.push_back(torch::arange(3, 20, 4, dtype));
      results.push_back(torch::arange(9, 2, -3, dtype));
      results.push_back(torch::arange(0, 3000, 7, dtype));
    }
    return results;
  });
}

TEST_P(FactoriesTest, NumbersThatAreNotWholeAndOtherTypes) {
  ExpectSameAsEager([] {
    return Tensors{torch::arange(0.0, 2.0, 0.3),
                   torch::arange(5.5),
                   torch::arange(1, 4, torch::requires_grad().dtype(torch::kDouble)),
                   torch::full({2, 2}, 2.5),
                   torch::full({2}, 3),
                   torch::full({2}, true),
                   torch::full({2}, c10::complex<double>(1, 2)),
                   torch::zeros({2}, torch::kComplexFloat),
                   torch::eye(2, torch::kComplexFloat),
                   torch::ones({2}, torch::requires_grad()) * 2,
                   torch::arange(0),
                   torch::eye(0),
                   torch::eye(0, 3)};
  });
}

TEST_P(FactoriesTest, TheDefaultDtypeIsTheCallers) {
  ExpectSameAsEager([] {
    Tensors results{torch::eye(2), torch::zeros({2}), torch::full({2}, 0.5)};
    torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
    for (const auto& x : {torch::eye(2), torch::zeros({2}), torch::ones({2}), torch::full({2}, 0.1)}) results.push_back(x + 1);
    torch::set_default_dtype(caffe2::TypeMeta::Make<float>());
    return results;
  });
}

TEST_P(FactoriesTest, TheirMemoryIsWrittenThroughPointersAndInPlace) {
  ExpectSameAsEager([] {
    auto table = torch::zeros({4, 3});
    auto rows = torch::arange(4);
    table.select(0, 1).add_(5);
    if (table.is_cpu()) table.data_ptr<float>()[0] = 7;
    rows.mul_(2);
    table.index_put_({rows.slice(0, 0, 2)}, torch::ones({2, 3}), /*accumulate=*/true);
    return Tensors{table, rows, table.sum()};
  });
}

// ATen's vectors start from rounded numbers where floats no longer tell whole numbers apart.
TEST_P(FactoriesTest, RangesOfFloatsPastWhatTheyCanCount) {
  const auto end = [](int64_t n) { return (torch::arange(5, (int64_t{1} << 24) - 24 + 8 * n, torch::kFloat).slice(0, -20) * 1).clone(); };
  std::vector<torch::Tensor> expected;
  for (int64_t n = 0; n < 8; ++n) expected.push_back(end(n));
  const lazuli::DeviceMode mode(options());
  for (int64_t n = 0; n < 8; ++n) {
    const torch::Tensor range = end(n);
    lazuli::sync();
    EXPECT_TRUE(torch::equal(range, expected[static_cast<size_t>(n)])) << n;
  }
}

TEST_P(FactoriesTest, VersionsAreEagers) {
  const auto versions = [] {
    std::vector<int64_t> result;
    for (const auto& x :
         {torch::zeros({3}), torch::one_hot(torch::ones({2}, torch::kLong), 3), torch::arange(4), torch::ones({2}).mul_(2)}) {
      result.push_back(x._version());
    }
    return result;
  };
  const auto eager = versions();
  const lazuli::DeviceMode mode(options());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(versions(), eager);
    lazuli::sync();
  }
}

TEST_P(FactoriesTest, RangesOfChangingSizesAreOneProgram) {
  const lazuli::DeviceMode mode(options());
  const StatsDelta delta;
  for (int64_t size = 20; size < 40; ++size) {
    const auto mask = torch::arange(size).unsqueeze(0) < torch::arange(2, size + 2).unsqueeze(1);
    const auto later = torch::arange(size, 2 * size) * 2;
    EXPECT_EQ(mask.sum().item<int64_t>(), size * (size + 1) / 2 + size - 1) << size;
    EXPECT_EQ(later[3].item<int64_t>(), 2 * size + 6);
  }
  EXPECT_EQ(delta.of(&Stats::recompile_limit_hits), 0);
  EXPECT_LE(delta.of(&Stats::programs_compiled), 8);
}

TEST_P(FactoriesTest, ErrorsAreEagers) {
  const std::vector<std::function<void()>> calls = {[] { torch::zeros({-1}); },     [] { torch::arange(0, 5, -1); },
                                                    [] { torch::arange(0, 5, 0); }, [] { torch::eye(-2); },
                                                    [] { torch::full({-3}, 1); },   [] { torch::arange(3, torch::kBool); }};
  for (const auto& call : calls) {
    const std::string eager = ErrorOf(call);
    ASSERT_NE(eager, "no error");
    const lazuli::DeviceMode mode(options());
    EXPECT_EQ(ErrorOf([&] {
                call();
                lazuli::sync();
              }),
              eager);
  }
}

TEST_P(FactoriesTest, NumbersThatTheDtypeCannotHold) {
  const std::vector<std::function<void()>> calls = {
      [] { torch::full({2}, 1e300); }, [] { torch::full({2}, 70000, torch::kHalf); },
      [] { torch::ones({2}, torch::kBFloat16).fill_(1e39); }, [] { torch::full_like(torch::ones({2}), -1e39); },
      [] { torch::zeros({2}, torch::kHalf).masked_fill(torch::ones({2}, torch::kBool), -1e9); }};
  for (const auto& call : calls) {
    EXPECT_THROW(call(), std::runtime_error);
    const lazuli::DeviceMode mode(options());
    EXPECT_THROW(call(), std::runtime_error) << "at the call";
  }
  const lazuli::DeviceMode mode(options());
  EXPECT_TRUE(torch::isinf(torch::full({2}, -INFINITY, torch::kHalf)).all().item<bool>());
}

TEST(Factories, ArePartOfTheKernelThatUsesThem) {
  const auto row = torch::randn({6}), x = torch::randn({8, 6});
  const std::vector<std::function<torch::Tensor()>> sums = {
      [&] { return (row + torch::arange(6)) * torch::ones({6}) + torch::arange(3, 9) + torch::zeros({1}); },
      [&] {
        return x * torch::eye(8, 6) + torch::full({8, 1}, 0.5) + torch::zeros({6});
      }};
  for (const auto& sum : sums) {
    const torch::Tensor expected = sum();
    torch::Tensor y;
    ExpectLaunches(1, [&] {
      y = sum();
      lazuli::sync();
    });
    EXPECT_TRUE(torch::equal(y, expected));
  }
}

LAZULI_FOR_EACH_BACKEND(FactoriesTest);

}  // namespace
}  // namespace lazuli::testing
