// Gradients of attention against sums in double: every shape of block, gaps between rows, shared heads, hidden keys, tables of scores, sums
// over queries in parts, and no write outside the results.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/unit/codegen/attention_reference.h"

namespace lazuli::codegen {
namespace {

// Sums over queries for each element of each key, of all heads of a batch.
struct KeySums {
  std::vector<SumWithError> k, v;
};

class GradientCase : public AttentionCase {
 public:
  explicit GradientCase(const AttentionSizes& s)
      : AttentionCase(s),
        grad_y_(s.batch, s.heads, s.queries, s.width, 7),
        grad_q_(s.batch, s.heads, s.queries, s.width, 8),
        grad_k_(s.batch, s.kv_heads, s.keys, s.width, 9),
        grad_v_(s.batch, s.kv_heads, s.keys, s.width, 10) {
    grad_y_.Randomize(1, random());
    gradient_.grad_y = grad_y_.Rows<const float>();
    gradient_.grad_q = grad_q_.Rows<float>();
    gradient_.grad_k = grad_k_.Rows<float>();
    gradient_.grad_v = grad_v_.Rows<float>();
  }

  void Run(runtime::Isa isa) {
    AttentionCase::Run(isa);
    RunBack(isa);
  }
  void RunBack(runtime::Isa isa) {
    for (HeadNumbers* grad : {&grad_q_, &grad_k_, &grad_v_}) grad->Clear();
    gradient_.attention = attention();
    RunAttentionGradient(gradient_, isa);
  }

  float* grad_y(int64_t row) { return RowOf(grad_y_.Rows<float>(), 0, 0, row); }
  const AttentionGradient& gradient() const { return gradient_; }
  std::vector<std::vector<float>> Results() const { return {grad_q_.all(), grad_k_.all(), grad_v_.all()}; }

  void ExpectRight() const {
    const AttentionSizes& s = sizes();
    for (int64_t b = 0; b < s.batch; ++b) {
      const auto floats = static_cast<size_t>(s.kv_heads * s.keys * s.width);
      KeySums sums = {std::vector<SumWithError>(floats), std::vector<SumWithError>(floats)};
      for (int64_t h = 0; h < s.heads; ++h) {
        for (int64_t i = 0; i < s.queries; ++i) ASSERT_NO_FATAL_FAILURE(ExpectQuery(b, h, i, &sums)) << s;
      }
      ASSERT_NO_FATAL_FAILURE(ExpectKeys(gradient_.grad_k, b, sums.k)) << "keys of " << s;
      ASSERT_NO_FATAL_FAILURE(ExpectKeys(gradient_.grad_v, b, sums.v)) << "values of " << s;
    }
    EXPECT_EQ(grad_q_.Touched(), s.batch * s.heads * s.queries * s.width) << s;
    EXPECT_EQ(grad_k_.Touched(), s.batch * s.kv_heads * s.keys * s.width) << s;
    EXPECT_EQ(grad_v_.Touched(), s.batch * s.kv_heads * s.keys * s.width) << s;
  }

  // The gradient of a query; what it adds to those of keys and values goes to `sums`. Where a score comes from q and k, its gradient is
  // weight * (grad_y v - grad_y y) * scale: besides what is wrong with its operands, a difference and two products are rounded.
  void ExpectQuery(int64_t b, int64_t h, int64_t i, KeySums* sums) const {
    const Attention& a = attention();
    const int64_t kv_head = h / (a.heads / a.kv_heads);
    const float *grad_y = RowOf(gradient_.grad_y, b, h, i), *q = RowOf(a.q, b, h, i);
    const AttentionReference query(a, b, h, i);
    SumWithError of_y;
    for (int64_t e = 0; e < a.width; ++e) of_y.Add(query.y[static_cast<size_t>(e)], query.y_errors[static_cast<size_t>(e)], grad_y[e]);
    std::vector<SumWithError> grad_q(static_cast<size_t>(a.width));
    for (int64_t j = 0; j < a.keys; ++j) {
      const AttentionReference::Key& key = query.keys[static_cast<size_t>(j)];
      if (!key.seen) continue;
      const float *k = RowOf(a.k, b, kv_head, j), *v = RowOf(a.v, b, kv_head, j);
      SumWithError of_v;
      for (int64_t e = 0; e < a.width; ++e) of_v.Add(grad_y[e], 0, v[e]);
      const double difference = of_v.value() - of_y.value(), scale = key.filled ? 0 : a.scale;
      const double grad = key.weight * difference * scale;
      const double error = (key.weight_error * std::abs(difference) + key.weight * (of_v.error() + of_y.error())) * scale;
      for (int64_t e = 0; e < a.width; ++e) {
        const auto place = static_cast<size_t>((kv_head * a.keys + j) * a.width + e);
        grad_q[static_cast<size_t>(e)].Add(grad, error + 3 * kRounding * std::abs(grad), k[e]);
        sums->k[place].Add(grad, error + 3 * kRounding * std::abs(grad), q[e]);
        sums->v[place].Add(key.weight, key.weight_error, grad_y[e]);
      }
    }
    for (int64_t e = 0; e < a.width; ++e) {
      const SumWithError& sum = grad_q[static_cast<size_t>(e)];
      ASSERT_TRUE(IsNear(RowOf(gradient_.grad_q, b, h, i)[e], sum.value(), sum.error())) << "query " << i << ", element " << e;
    }
  }

 private:
  // Of keys that no query sees, exactly 0.
  void ExpectKeys(const HeadRows<float>& grads, int64_t b, const std::vector<SumWithError>& sums) const {
    const AttentionSizes& s = sizes();
    for (int64_t h = 0; h < s.kv_heads; ++h) {
      for (int64_t j = 0; j < s.keys; ++j) {
        for (int64_t e = 0; e < s.width; ++e) {
          const SumWithError& sum = sums[static_cast<size_t>((h * s.keys + j) * s.width + e)];
          ASSERT_TRUE(IsNear(RowOf(grads, b, h, j)[e], sum.value(), sum.error())) << "key " << j << ", element " << e;
        }
      }
    }
  }

  HeadNumbers grad_y_, grad_q_, grad_k_, grad_v_;
  AttentionGradient gradient_;
};

class AttentionGradientTest : public AttentionIsaTest {
 protected:
  static void ExpectRight(GradientCase* c) {
    c->Run(GetParam());
    c->ExpectRight();
  }
  static void Expect(const AttentionSizes& sizes) {
    GradientCase c(sizes);
    ASSERT_NO_FATAL_FAILURE(ExpectRight(&c));
  }
};

INSTANTIATE_TEST_SUITE_P(EachIsa, AttentionGradientTest, ::testing::Values(runtime::Isa::kAvx2, runtime::Isa::kAvx512),
                         [](const auto& info) { return runtime::IsaName(info.param); });

TEST_P(AttentionGradientTest, QueriesThatFillBlocksAndDoNot) {
  for (const int64_t queries : {1, 7, 8, 9, 16, 17, 33, 63, 64, 65, 129, 300}) {
    for (const bool causal : {false, true}) Expect({1, 2, 2, queries, queries, 24, causal});
  }
}

TEST_P(AttentionGradientTest, KeysOfManyBlocks) {
  for (const int64_t keys : {1, 5, 127, 128, 129, 300}) Expect({1, 2, 2, 20, keys, 16});
}

TEST_P(AttentionGradientTest, Widths) {
  for (const int64_t width : {1, 3, 8, 13, 15, 16, 17, 64, 65, 80, 128, 200}) Expect({1, 1, 1, 33, 40, width, true});
}

TEST_P(AttentionGradientTest, HeadsThatShareKeys) {
  Expect({2, 6, 2, 20, 33, 16});
  Expect({3, 4, 1, 40, 40, 16, true});
}

TEST_P(AttentionGradientTest, CausalWithMoreKeysOrMoreQueries) {
  Expect({1, 2, 2, 40, 300, 16, true});
  Expect({1, 2, 2, 300, 40, 16, true});
}

// Most weights are less than a float can be.
TEST_P(AttentionGradientTest, LargeScores) { Expect({1, 2, 2, 40, 400, 16, false, 12}); }

// Few heads of so many queries that their sums are taken in parts, the last of which may be shorter.
TEST_P(AttentionGradientTest, SumsInParts) {
  Expect({1, 2, 2, 600, 40, 16});
  Expect({2, 4, 2, 1100, 50, 8, true});
  Expect({1, 1, 1, 1537, 20, 8});
}

TEST_P(AttentionGradientTest, ThreadsDoNotChangeBits) {
  for (const bool causal : {false, true}) {
    GradientCase c({1, 2, 1, 1100, 150, 24, causal});
    c.SetFilled({false, true, true, true}, kMinusInfinity, [&](int64_t, int64_t) { return c.OneOf(4); });
    at::set_num_threads(1);
    c.Run(GetParam());
    const std::vector<std::vector<float>> one = c.Results();
    for (const int threads : {2, 5, 16}) {
      at::set_num_threads(threads);
      c.Run(GetParam());
      EXPECT_EQ(c.Results(), one) << threads << " threads";
    }
  }
}

TEST_P(AttentionGradientTest, BiasesOfEveryShape) {
  for (const TableShape& shape : TableShapes()) {
    GradientCase c({2, 2, 1, 37, 140, 8});
    c.SetBias(shape, [&](int64_t, int64_t) { return c.OneOf(8) ? kMinusInfinity : 2 * c.Normal(); });
    ASSERT_NO_FATAL_FAILURE(ExpectRight(&c)) << shape;
  }
}

// Scores that are `fill` have weights, but hang on no query and no key.
TEST_P(AttentionGradientTest, FilledScoresOfEveryShape) {
  for (const TableShape& shape : TableShapes()) {
    for (const float fill : {kMinusInfinity, -4.0f}) {
      for (const bool keeps : {false, true}) {
        GradientCase c({2, 2, 1, 37, 140, 8});
        c.SetFilled(
            shape, fill, [&](int64_t, int64_t) { return c.OneOf(3); }, keeps);
        ASSERT_NO_FATAL_FAILURE(ExpectRight(&c)) << shape << ", fill " << fill << ", keeps " << keeps;
      }
    }
  }
}

TEST_P(AttentionGradientTest, BiasedFilledAndCausal) {
  for (const float fill : {kMinusInfinity, 1.5f}) {
    GradientCase c({2, 4, 2, 150, 150, 13, true});
    c.SetBias({false, true, true, true}, [&](int64_t, int64_t) { return c.OneOf(8) ? kMinusInfinity : c.Normal(); });
    c.SetFilled({true, false, false, true}, fill, [&](int64_t, int64_t) { return c.OneOf(3); });
    ASSERT_NO_FATAL_FAILURE(ExpectRight(&c)) << "fill " << fill;
  }
}

TEST_P(AttentionGradientTest, FilledWhereNoBiasIsFinite) {
  GradientCase c({1, 1, 1, 70, 140, 8});
  c.SetBias({false, false, false, true}, [](int64_t, int64_t key) { return key < 128 ? kMinusInfinity : 0; });
  c.SetFilled({}, -4, [&](int64_t, int64_t) { return c.OneOf(2); });
  ExpectRight(&c);
}

// Their y is 0, whatever the keys; so are their gradients and what they add to those of keys and values.
TEST_P(AttentionGradientTest, QueriesThatSeeNothing) {
  const auto unseen = [](int64_t query) { return query % 5 == 2 || (query >= 64 && query < 128); };
  for (const bool by_bias : {true, false}) {
    GradientCase c({1, 2, 2, 150, 140, 8});
    c.Hide(by_bias, {false, false, true, by_bias}, [&](int64_t query, int64_t) { return unseen(query); });
    ASSERT_NO_FATAL_FAILURE(ExpectRight(&c)) << by_bias;
    for (int64_t i = 0; i < 150; ++i) EXPECT_EQ(RowOf(c.gradient().grad_q, 0, 1, i)[3] == 0, unseen(i)) << "query " << i;
  }
}

// A block of keys of which one query sees one is not passed over.
TEST_P(AttentionGradientTest, OneSeenScoreOfABlock) {
  for (const bool by_bias : {true, false}) {
    for (const int64_t query : {64, 127}) {
      for (const int64_t key : {128, 255}) {
        GradientCase c({1, 1, 1, 150, 300, 8});
        c.Hide(by_bias, {}, [&](int64_t i, int64_t j) { return j >= 128 && j < 256 && (i != query || j != key); });
        ASSERT_NO_FATAL_FAILURE(ExpectRight(&c)) << by_bias << ", query " << query << ", key " << key;
      }
    }
  }
}

// A block of keys that are not numbers and that no query sees.
TEST_P(AttentionGradientTest, KeysHiddenFromAll) {
  for (const bool by_bias : {true, false}) {
    GradientCase c({1, 1, 1, 100, 300, 16});
    c.Hide(by_bias, {false, false, false, true}, [](int64_t, int64_t key) { return key >= 128 && key < 256; });
    *c.k(140) = *c.v(150) = std::numeric_limits<float>::quiet_NaN();
    ASSERT_NO_FATAL_FAILURE(ExpectRight(&c)) << by_bias;
  }
}

// The same where other queries see them, and with those that come after the queries.
TEST_P(AttentionGradientTest, KeysHiddenFromNeighbours) {
  const auto hidden = [](int64_t query, int64_t key) { return query >= 64 && query < 128 && key >= 128 && key < 256; };
  for (const int by : {0, 1, 2}) {
    GradientCase c({1, 1, 1, 192, 300, 16, by == 2});
    if (by < 2) c.Hide(by == 0, {}, hidden);
    *c.k(140) = *c.v(150) = std::numeric_limits<float>::quiet_NaN();
    c.Run(GetParam());
    KeySums sums = {std::vector<SumWithError>(300 * 16), std::vector<SumWithError>(300 * 16)};
    for (int64_t i = 64; i < 128; ++i) ASSERT_NO_FATAL_FAILURE(c.ExpectQuery(0, 0, i, &sums)) << by;
    EXPECT_TRUE(std::isnan(RowOf(c.gradient().grad_q, 0, 0, 191)[0])) << by;
  }
}

// Where each query sees one key, whose score is a bias, and its logsumexp is 0, the gradient of the value is exp(score) * grad_y.
TEST_P(AttentionGradientTest, WeightsAreRightWithinAnUlp) {
  constexpr int64_t kScores = 1500;
  const auto score = [](int64_t i) { return -static_cast<float>(i) * 0.0591f; };
  GradientCase c({1, 1, 1, kScores, kScores, 1});
  c.SetBias({false, false, true, true}, [&](int64_t i, int64_t j) { return i == j ? score(i) : kMinusInfinity; });
  for (int64_t i = 0; i < kScores; ++i) {
    *c.q(i) = *RowOf(c.attention().y, 0, 0, i) = *RowOf(c.attention().logsumexp, 0, 0, i) = 0;
    *c.grad_y(i) = 1;
  }
  c.RunBack(GetParam());
  for (int64_t i = 0; i < kScores; ++i) {
    const double expected = score(i) < -87 ? 0 : std::exp(static_cast<double>(score(i)));
    ASSERT_TRUE(IsNear(*RowOf(c.gradient().grad_v, 0, 0, i), expected, expected * 0x1p-23)) << "exp of " << score(i);
  }
}

}  // namespace
}  // namespace lazuli::codegen
