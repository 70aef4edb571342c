// Attention over short sequences against sums in double: every shape of block, gaps between rows, shared heads, hidden keys, and no write
// outside the result.
#include "codegen/products/attention.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "runtime/cpu_features.h"

namespace lazuli::codegen {
namespace {

constexpr float kUntouched = 12345.0f;

struct Sizes {
  int64_t batch = 1, heads = 1, kv_heads = 1, queries = 16, keys = 16, width = 8;
  bool causal = false;
  float spread = 1;  // Of the numbers.
};
std::ostream& operator<<(std::ostream& out, const Sizes& s) {
  return out << s.batch << " x " << s.heads << " (" << s.kv_heads << ") x " << s.queries << " x " << s.keys << " x " << s.width
             << (s.causal ? " causal" : "");
}

// Heads side by side in a row, as a layer for q, k and v leaves them, and gaps of NaN, which spoil every sum that reads one.
class AttentionCase {
 public:
  explicit AttentionCase(const Sizes& sizes)
      : sizes_(sizes),
        q_(Rows(sizes.heads, sizes.queries)),
        k_(Rows(sizes.kv_heads, sizes.keys)),
        v_(Rows(sizes.kv_heads, sizes.keys)),
        y_(sizes.batch * sizes.queries * RowFloats(sizes.heads), kUntouched),
        logsumexp_(sizes.batch * sizes.queries * (sizes.heads + 1), kUntouched) {
    attention_.batch = sizes.batch;
    attention_.heads = sizes.heads;
    attention_.kv_heads = sizes.kv_heads;
    attention_.queries = sizes.queries;
    attention_.keys = sizes.keys;
    attention_.width = sizes.width;
    attention_.q = Place<const float>(q_.data(), sizes.heads, sizes.queries);
    attention_.k = Place<const float>(k_.data(), sizes.kv_heads, sizes.keys);
    attention_.v = Place<const float>(v_.data(), sizes.kv_heads, sizes.keys);
    attention_.y = Place<float>(y_.data(), sizes.heads, sizes.queries);
    attention_.logsumexp = {logsumexp_.data(), sizes.queries * (sizes.heads + 1), 1, sizes.heads + 1};
    attention_.causal = sizes.causal;
    attention_.scale = 1 / std::sqrt(static_cast<float>(sizes.width));
  }

  void Run(runtime::Isa isa) {
    std::fill(y_.begin(), y_.end(), kUntouched);
    std::fill(logsumexp_.begin(), logsumexp_.end(), kUntouched);
    RunAttention(attention_, isa);
  }

  std::vector<float>* q() { return &q_; }
  std::vector<float>* k() { return &k_; }
  const std::vector<float>& y() const { return y_; }
  const Attention& attention() const { return attention_; }

  void ExpectRight() const {
    for (int64_t b = 0; b < sizes_.batch; ++b) {
      for (int64_t h = 0; h < sizes_.heads; ++h) {
        for (int64_t i = 0; i < sizes_.queries; ++i) ASSERT_NO_FATAL_FAILURE(ExpectRow(b, h, i)) << sizes_;
      }
    }
    const auto touched = [](const std::vector<float>& all) {
      return std::count_if(all.begin(), all.end(), [](float value) { return value != kUntouched; });
    };
    EXPECT_EQ(touched(y_), sizes_.batch * sizes_.heads * sizes_.queries * sizes_.width) << sizes_;
    EXPECT_EQ(touched(logsumexp_), sizes_.batch * sizes_.heads * sizes_.queries) << sizes_;
  }

 private:
  static constexpr int64_t kGap = 3;
  int64_t RowFloats(int64_t heads) const { return heads * sizes_.width + kGap; }

  std::vector<float> Rows(int64_t heads, int64_t rows) {
    std::normal_distribution<float> normal(0, sizes_.spread);
    std::vector<float> all(static_cast<size_t>(sizes_.batch * rows * RowFloats(heads)), std::numeric_limits<float>::quiet_NaN());
    for (size_t i = 0; i < all.size(); ++i) {
      if (static_cast<int64_t>(i) % RowFloats(heads) < heads * sizes_.width) all[i] = normal(random_);
    }
    return all;
  }

  template <class Float>
  HeadRows<Float> Place(Float* data, int64_t heads, int64_t rows) const {
    return {data, rows * RowFloats(heads), sizes_.width, RowFloats(heads)};
  }

  // Rounding of a score moves exp(score) by as much; what is left are weighted means of v.
  void ExpectRow(int64_t b, int64_t h, int64_t i) const {
    const Attention& a = attention_;
    const auto row = [&](const auto& rows, int64_t head, int64_t r) {
      return rows.data + b * rows.batch + head * rows.head + r * rows.row;
    };
    const int64_t kv_head = h / (a.heads / a.kv_heads), seen = a.causal ? std::min(a.keys, i + 1) : a.keys;
    std::vector<double> scores;
    double max = -std::numeric_limits<double>::infinity(), slack = 0;
    for (int64_t j = 0; j < seen; ++j) {
      double score = 0, magnitude = 0;
      for (int64_t e = 0; e < a.width; ++e) {
        const double term = static_cast<double>(row(a.q, h, i)[e]) * row(a.k, kv_head, j)[e];
        score += term;
        magnitude += std::abs(term);
      }
      scores.push_back(score * a.scale);
      max = std::max(max, scores.back());
      slack = std::max(slack, static_cast<double>(a.width + 2) * 0x1p-24 * magnitude * a.scale);
    }
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - max);
    const double expected = max + std::log(sum);
    ASSERT_NEAR(row(a.logsumexp, h, i)[0], expected, slack + (std::abs(expected) + static_cast<double>(seen)) * 0x1p-22);
    for (int64_t e = 0; e < a.width; ++e) {
      double value = 0, magnitude = 0;
      for (int64_t j = 0; j < seen; ++j) {
        const double term = std::exp(scores[j] - max) / sum * row(a.v, kv_head, j)[e];
        value += term;
        magnitude += std::abs(term);
      }
      ASSERT_NEAR(row(a.y, h, i)[e], value, (2 * slack + static_cast<double>(seen + 8) * 0x1p-23) * magnitude) << "query " << i;
    }
  }

  Sizes sizes_;
  std::mt19937 random_{7};
  std::vector<float> q_, k_, v_, y_, logsumexp_;
  Attention attention_;
};

class AttentionTest : public ::testing::TestWithParam<runtime::Isa> {
 protected:
  void SetUp() override {
    if (GetParam() > runtime::WidestIsa()) GTEST_SKIP() << "this CPU lacks the instructions";
    threads_ = at::get_num_threads();
  }
  void TearDown() override {
    if (threads_ > 0) at::set_num_threads(threads_);
  }
  static void Expect(const Sizes& sizes) {
    AttentionCase c(sizes);
    c.Run(GetParam());
    ASSERT_NO_FATAL_FAILURE(c.ExpectRight()) << sizes;
  }

 private:
  int threads_ = 0;
};

INSTANTIATE_TEST_SUITE_P(EachIsa, AttentionTest, ::testing::Values(runtime::Isa::kAvx2, runtime::Isa::kAvx512),
                         [](const auto& info) { return runtime::IsaName(info.param); });

TEST_P(AttentionTest, QueriesThatFillBlocksAndDoNot) {
  for (const int64_t queries : {1, 7, 8, 9, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 129}) {
    for (const bool causal : {false, true}) Expect({1, 2, 2, queries, queries, 24, causal});
  }
}

TEST_P(AttentionTest, KeysOfManyBlocks) {
  for (const int64_t keys : {1, 5, 127, 128, 129, 256, 300, 1000}) Expect({1, 2, 2, 20, keys, 16});
}

TEST_P(AttentionTest, Widths) {
  for (const int64_t width : {1, 3, 5, 6, 8, 11, 12, 13, 16, 17, 32, 64, 80, 96, 128, 200, 512}) Expect({1, 1, 1, 33, 40, width, true});
}

TEST_P(AttentionTest, HeadsThatShareKeys) {
  Expect({2, 6, 2, 20, 33, 16});
  Expect({3, 4, 1, 40, 40, 16, true});
}

// Query i sees keys 0 to i also where there are more of the one than of the other.
TEST_P(AttentionTest, CausalWithMoreKeysOrMoreQueries) {
  Expect({1, 2, 2, 40, 300, 16, true});
  Expect({1, 2, 2, 300, 40, 16, true});
}

// Most weights are less than a float can be, and maxima come late.
TEST_P(AttentionTest, LargeScores) { Expect({1, 2, 2, 40, 400, 16, false, 12}); }

// Sums are taken in the same order whatever the threads.
TEST_P(AttentionTest, ThreadsDoNotChangeBits) {
  AttentionCase c({2, 3, 3, 200, 200, 32, true});
  at::set_num_threads(1);
  c.Run(GetParam());
  const std::vector<float> one = c.y();
  for (const int threads : {2, 5, 16}) {
    at::set_num_threads(threads);
    c.Run(GetParam());
    EXPECT_EQ(c.y(), one) << threads << " threads";
  }
}

// What is not a number spoils the queries that see it, and no other.
TEST_P(AttentionTest, NotANumber) {
  AttentionCase c({1, 1, 1, 40, 40, 8, true});
  const Attention& a = c.attention();
  (*c.k())[static_cast<size_t>(20 * a.k.row)] = std::numeric_limits<float>::quiet_NaN();
  (*c.q())[static_cast<size_t>(3 * a.q.row)] = std::numeric_limits<float>::infinity();
  c.Run(GetParam());
  for (int64_t i = 0; i < 40; ++i) EXPECT_EQ(std::isnan(a.y.data[i * a.y.row]), i == 3 || i >= 20) << "query " << i;
}

}  // namespace
}  // namespace lazuli::codegen
