// Products of a few rows against sums in double, for every shape of tile, with strides, and without a write outside the result.
#include "codegen/products/product.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "runtime/cpu_features.h"

namespace lazuli::codegen {
namespace {

constexpr float kUntouched = 12345.0f;

// Operands in memory with gaps of NaN, which spoil every sum that reads one.
class ProductCase {
 public:
  ProductCase(int64_t rows, int64_t cols, int64_t depth, bool bias, int64_t gap = 3)
      : x_(Matrix(rows, depth + gap, depth)),
        w_(Matrix(cols, depth + gap, depth)),
        bias_(Matrix(1, cols, cols)),
        y_((rows + 1) * (cols + gap), kUntouched) {
    product_.rows = rows;
    product_.cols = cols;
    product_.depth = depth;
    product_.x = x_.data();
    product_.w = w_.data();
    product_.x_stride = product_.w_stride = depth + gap;
    product_.bias = bias ? bias_.data() : nullptr;
    product_.y = y_.data();
    product_.y_stride = cols + gap;
  }

  void Run(runtime::Isa isa) {
    std::fill(y_.begin(), y_.end(), kUntouched);
    RunProduct(product_, isa);
  }

  // Each element within what rounding each product and each sum may give: Higham, Accuracy and Stability of Numerical Algorithms, 3.5.
  ::testing::AssertionResult IsRight() const {
    const Product& p = product_;
    for (int64_t i = 0; i <= p.rows; ++i) {
      for (int64_t j = 0; j < p.y_stride; ++j) {
        const float got = y_[static_cast<size_t>(i * p.y_stride + j)];
        if (i == p.rows || j >= p.cols) {
          if (got != kUntouched) return ::testing::AssertionFailure() << "wrote outside, at " << i << ", " << j;
          continue;
        }
        double sum = p.bias != nullptr ? p.bias[j] : 0, magnitude = std::abs(sum);
        for (int64_t k = 0; k < p.depth; ++k) {
          const double term = static_cast<double>(p.x[i * p.x_stride + k]) * p.w[j * p.w_stride + k];
          sum += term;
          magnitude += std::abs(term);
        }
        const double bound = static_cast<double>(p.depth + 1) * 0x1p-24 * magnitude;
        if (!(std::abs(got - sum) <= bound))
          return ::testing::AssertionFailure() << got << " instead of " << sum << " at " << i << ", " << j;
      }
    }
    return ::testing::AssertionSuccess();
  }

  // With stages that make x, by copying it, and use y, by copying it: in `private_*` rows that exist for the time of a block.
  void RunInStages(runtime::Isa isa, bool private_x, bool private_y, int64_t granule) {
    std::fill(y_.begin(), y_.end(), kUntouched);
    Product product = product_;
    std::vector<std::atomic<int>> made(static_cast<size_t>(product.rows)), used(static_cast<size_t>(product.rows));
    const auto check = [&](int64_t begin, int64_t end) {
      EXPECT_LT(begin, end);
      EXPECT_EQ(begin % granule, 0);
      EXPECT_TRUE(end % granule == 0 || end == product.rows) << end;
    };
    const auto before = [&](int64_t begin, int64_t end, float* rows) {
      check(begin, end);
      EXPECT_EQ(rows != nullptr, private_x);
      for (int64_t r = begin; r < end; ++r) {
        ++made[static_cast<size_t>(r)];
        if (private_x) std::copy_n(product_.x + r * product_.x_stride, product.depth, rows + r * product.depth);
      }
    };
    const auto after = [&](int64_t begin, int64_t end, float* rows) {
      check(begin, end);
      EXPECT_EQ(rows != nullptr, private_y);
      for (int64_t r = begin; r < end; ++r) {
        ++used[static_cast<size_t>(r)];
        if (private_y) std::copy_n(rows + r * product.cols, product.cols, y_.data() + r * product_.y_stride);
      }
    };
    if (private_x) product.x = nullptr;
    if (private_y) product.y = nullptr;
    RunProduct(product, RowStages{before, after, private_x, private_y, granule}, isa);
    for (int64_t r = 0; r < product.rows; ++r) EXPECT_EQ(made[static_cast<size_t>(r)] * 10 + used[static_cast<size_t>(r)], 11) << r;
  }

  // Takes every second row of the first half of each group of `group` rows.
  void TakeHalves(int64_t group) {
    product_.x_group = group;
    product_.x_group_stride = 2 * group * product_.x_stride;
    std::vector<float> spread(2 * x_.size(), std::numeric_limits<float>::quiet_NaN());
    for (int64_t r = 0; r < product_.rows; ++r) {
      std::copy_n(&x_[static_cast<size_t>(r * product_.x_stride)], product_.depth,
                  &spread[static_cast<size_t>(r / group * product_.x_group_stride + r % group * product_.x_stride)]);
    }
    spread_ = std::move(spread);
  }

  void RunGroups(runtime::Isa isa) {
    std::fill(y_.begin(), y_.end(), kUntouched);
    Product product = product_;
    product.x = spread_.data();
    const auto nothing = [](int64_t, int64_t, float*) {};
    RunProduct(product, RowStages{nothing, nothing}, isa);
  }

  const std::vector<float>& y() const { return y_; }

 private:
  static std::vector<float> Matrix(int64_t rows, int64_t stride, int64_t width) {
    static std::mt19937 random(17);
    std::normal_distribution<float> normal;
    std::vector<float> out(static_cast<size_t>(rows * stride), std::numeric_limits<float>::quiet_NaN());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < width; ++j) out[static_cast<size_t>(i * stride + j)] = normal(random);
    }
    return out;
  }

  std::vector<float> x_, w_, bias_, y_, spread_;
  Product product_;
};

class ProductTest : public ::testing::TestWithParam<runtime::Isa> {
 protected:
  void SetUp() override {
    if (runtime::WidestIsa() < GetParam()) GTEST_SKIP() << "this CPU has no " << runtime::IsaName(GetParam());
  }

  void Expect(int64_t rows, int64_t cols, int64_t depth, bool bias) const {
    ProductCase c(rows, cols, depth, bias);
    c.Run(GetParam());
    EXPECT_TRUE(c.IsRight()) << rows << " rows, " << cols << " columns, depth " << depth;
  }
};

TEST_P(ProductTest, EveryNumberOfRows) {
  for (int64_t rows = 1; rows <= 130; ++rows) Expect(rows, 37, 21, rows % 2 == 0);
}

TEST_P(ProductTest, EveryNumberOfColumns) {
  for (int64_t cols = 1; cols <= 100; ++cols) {
    for (const int64_t rows : {1, 2, 3, 7, 16, 30, 45, 64}) Expect(rows, cols, 19, cols % 2 == 0);
  }
}

TEST_P(ProductTest, EveryDepth) {
  for (int64_t depth = 1; depth <= 70; ++depth) {
    for (const int64_t rows : {1, 5, 33}) Expect(rows, 20, depth, true);
  }
  for (const int64_t depth : {255, 256, 257, 511, 512, 700, 1025}) {
    for (const int64_t rows : {2, 20, 64, 100}) Expect(rows, 53, depth, true);
  }
}

TEST_P(ProductTest, EqualOnAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  for (const int64_t rows : {1, 8, 16, 33, 64, 128}) {
    ProductCase c(rows, 1000, 300, true);
    at::set_num_threads(1);
    c.Run(GetParam());
    EXPECT_TRUE(c.IsRight());
    const std::vector<float> alone = c.y();
    at::set_num_threads(5);
    c.Run(GetParam());
    EXPECT_EQ(c.y(), alone) << rows;
  }
  at::set_num_threads(threads);
}

// Few rows, for which weights are read where they lie, and many, for which they are packed.
TEST_P(ProductTest, StagesGetEachRowOnce) {
  const int threads = at::get_num_threads();
  for (const int64_t rows : {1, 63, 64, 200, 1500}) {
    for (const int64_t granule : {1, 3, 64, 100}) {
      for (const bool private_x : {false, true}) {
        ProductCase c(rows, rows % 2 == 0 ? 70 : 64, 30, granule == 3);
        for (const int t : {1, 3}) {
          at::set_num_threads(t);
          c.RunInStages(GetParam(), private_x, granule != 1, granule);
          EXPECT_TRUE(c.IsRight()) << rows << " rows, granule " << granule << ", " << t << " threads";
        }
      }
    }
  }
  at::set_num_threads(threads);
}

TEST_P(ProductTest, StagesWithEveryNumberOfColumns) {
  for (int64_t cols = 1; cols <= 140; cols += 5) {
    for (const int64_t depth : {7, 200}) {
      ProductCase c(1100, cols, depth, cols % 2 == 0);
      c.RunInStages(GetParam(), true, true, 4);
      EXPECT_TRUE(c.IsRight()) << cols << " columns, depth " << depth;
    }
  }
}

TEST_P(ProductTest, RowsInGroups) {
  for (const int64_t rows : {14, 700}) {
    ProductCase c(rows, 40, 33, true);
    c.TakeHalves(7);
    c.RunGroups(GetParam());
    EXPECT_TRUE(c.IsRight()) << rows;
  }
}

TEST(SuitsRowStages, ManyRowsThatFitACache) {
  if (runtime::WidestIsa() < runtime::Isa::kAvx2) GTEST_SKIP() << "this CPU has no AVX2";
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  const auto suits = [](int64_t rows, int64_t cols, int64_t depth, int64_t granule, bool fresh_w = false) {
    Product product;
    product.rows = rows;
    product.cols = cols;
    product.depth = depth;
    product.fresh_w = fresh_w;
    return SuitsRowStages(product, granule);
  };
  EXPECT_TRUE(suits(128, 256, 256, 1));
  EXPECT_TRUE(suits(10000, 1024, 1024, 64));
  EXPECT_FALSE(suits(10000, 4096, 4096, 64));
  EXPECT_FALSE(suits(10000, 1024, 1024, 0));
  EXPECT_FALSE(suits(10000, 64, 64, 1000));
  EXPECT_FALSE(suits(1, 1024, 1024, 1));
  // With fewer rows, only where nobody would divide columns: weights from another core's cache are divided.
  EXPECT_TRUE(suits(64, 256, 256, 1));
  EXPECT_FALSE(suits(64, 256, 256, 1, /*fresh_w=*/true));
  EXPECT_FALSE(suits(64, 256, 256, 48));
  at::set_num_threads(threads);
}

TEST(SuitsProduct, FewRowsThatTakeLittleRoom) {
  if (runtime::WidestIsa() < runtime::Isa::kAvx2) GTEST_SKIP() << "this CPU has no AVX2";
  EXPECT_TRUE(SuitsProduct(1, 1000, int64_t{1} << 24));
  EXPECT_TRUE(SuitsProduct(64, 50000, 4096));
  EXPECT_FALSE(SuitsProduct(64, 100, int64_t{1} << 20));  // Packing it would take 256 MB for each thread.
  EXPECT_TRUE(SuitsProduct(128, 4096, 1024));
  EXPECT_FALSE(SuitsProduct(128, 4096, 4096));
  EXPECT_FALSE(SuitsProduct(129, 10, 10));
  EXPECT_FALSE(SuitsProduct(0, 10, 10));
}

INSTANTIATE_TEST_SUITE_P(Isa, ProductTest, ::testing::Values(runtime::Isa::kAvx2, runtime::Isa::kAvx512),
                         [](const auto& info) { return std::string(runtime::IsaName(info.param)); });

}  // namespace
}  // namespace lazuli::codegen
