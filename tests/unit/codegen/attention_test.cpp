// Attention over short sequences against sums in double: every shape of block, gaps between rows, shared heads, hidden keys, tables of
// scores, and no write outside the result.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/unit/codegen/attention_reference.h"

namespace lazuli::codegen {
namespace {

class AttentionTest : public AttentionIsaTest {
 protected:
  static void ExpectRow(const Attention& a, int64_t b, int64_t h, int64_t i) {
    const AttentionReference expected(a, b, h, i);
    ASSERT_TRUE(IsNear(RowOf(a.logsumexp, b, h, i)[0], expected.logsumexp, expected.logsumexp_error)) << "query " << i;
    for (int64_t e = 0; e < a.width; ++e) {
      const auto place = static_cast<size_t>(e);
      ASSERT_TRUE(IsNear(RowOf(a.y, b, h, i)[e], expected.y[place], expected.y_errors[place])) << "query " << i << ", element " << e;
    }
  }

  static void ExpectRight(AttentionCase* c) {
    c->Run(GetParam());
    const AttentionSizes& s = c->sizes();
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t h = 0; h < s.heads; ++h) {
        for (int64_t i = 0; i < s.queries; ++i) ASSERT_NO_FATAL_FAILURE(ExpectRow(c->attention(), b, h, i)) << s;
      }
    }
    EXPECT_EQ(c->y().Touched(), s.batch * s.heads * s.queries * s.width) << s;
    EXPECT_EQ(c->logsumexp().Touched(), s.batch * s.heads * s.queries) << s;
  }

  static void Expect(const AttentionSizes& sizes) {
    AttentionCase c(sizes);
    ASSERT_NO_FATAL_FAILURE(ExpectRight(&c));
  }
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
  for (const int64_t width : {1, 3, 5, 6, 8, 11, 12, 13, 15, 16, 17, 32, 64, 80, 96, 128, 200, 512}) Expect({1, 1, 1, 33, 40, width, true});
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

TEST_P(AttentionTest, BiasesOfEveryShape) {
  for (const TableShape& shape : TableShapes()) {
    AttentionCase c({2, 2, 1, 37, 140, 8});
    c.SetBias(shape, [&](int64_t, int64_t) { return c.OneOf(8) ? kMinusInfinity : 2 * c.Normal(); });
    ASSERT_NO_FATAL_FAILURE(ExpectRight(&c)) << shape;
  }
}

TEST_P(AttentionTest, FilledScoresOfEveryShape) {
  for (const TableShape& shape : TableShapes()) {
    for (const float fill : {kMinusInfinity, -4.0f}) {
      for (const bool keeps : {false, true}) {
        AttentionCase c({2, 2, 1, 37, 140, 8});
        c.SetFilled(
            shape, fill, [&](int64_t, int64_t) { return c.OneOf(3); }, keeps);
        ASSERT_NO_FATAL_FAILURE(ExpectRight(&c)) << shape << ", fill " << fill << ", keeps " << keeps;
      }
    }
  }
}

TEST_P(AttentionTest, BiasedFilledAndCausal) {
  for (const float fill : {kMinusInfinity, 1.5f}) {
    AttentionCase c({2, 4, 2, 150, 150, 13, true});
    c.SetBias({false, true, true, true}, [&](int64_t, int64_t) { return c.OneOf(8) ? kMinusInfinity : c.Normal(); });
    c.SetFilled({true, false, false, true}, fill, [&](int64_t, int64_t) { return c.OneOf(3); });
    ASSERT_NO_FATAL_FAILURE(ExpectRight(&c)) << "fill " << fill;
  }
}

// A filled score is `fill` where the bias is minus infinity as well.
TEST_P(AttentionTest, FilledWhereNoBiasIsFinite) {
  AttentionCase c({1, 1, 1, 70, 140, 8});
  c.SetBias({false, false, false, true}, [](int64_t, int64_t key) { return key < 128 ? kMinusInfinity : 0; });
  c.SetFilled({}, -4, [&](int64_t, int64_t) { return c.OneOf(2); });
  ExpectRight(&c);
}

// Some queries, among others and 64 neighbours of their own.
TEST_P(AttentionTest, QueriesThatSeeNothing) {
  const auto unseen = [](int64_t query) { return query % 5 == 2 || (query >= 64 && query < 128); };
  for (const bool zero : {true, false}) {
    for (const bool by_bias : {true, false}) {
      AttentionCase c({1, 2, 2, 150, 140, 8});
      c.set_zero_if_unseen(zero);
      c.Hide(by_bias, {false, false, true, by_bias}, [&](int64_t query, int64_t) { return unseen(query); });
      ASSERT_NO_FATAL_FAILURE(ExpectRight(&c)) << zero << by_bias;
      const Attention& a = c.attention();
      for (int64_t i = 0; i < 150; ++i) {
        const float y = RowOf(a.y, 0, 1, i)[3];
        EXPECT_TRUE(!unseen(i) || (zero ? y == 0 : std::isnan(y))) << "query " << i << ": " << y;
      }
    }
  }
}

// A block of keys of which one query sees one is not passed over.
TEST_P(AttentionTest, OneSeenScoreOfABlock) {
  for (const bool by_bias : {true, false}) {
    for (const int64_t query : {64, 127}) {
      for (const int64_t key : {128, 255}) {
        AttentionCase c({1, 1, 1, 150, 300, 8});
        c.Hide(by_bias, {}, [&](int64_t i, int64_t j) { return j >= 128 && j < 256 && (i != query || j != key); });
        ASSERT_NO_FATAL_FAILURE(ExpectRight(&c)) << by_bias << ", query " << query << ", key " << key;
      }
    }
  }
}

// What a block of keys that neighbouring queries do not see holds reaches none of them.
TEST_P(AttentionTest, HiddenKeysAreNotLookedAt) {
  const auto hidden = [](int64_t query, int64_t key) { return query >= 64 && query < 128 && key >= 128 && key < 256; };
  for (const bool by_bias : {true, false}) {
    AttentionCase c({1, 1, 1, 192, 300, 16});
    c.Hide(by_bias, {}, hidden);
    *c.k(140) = *c.v(150) = std::numeric_limits<float>::quiet_NaN();
    c.Run(GetParam());
    for (int64_t i = 64; i < 128; ++i) ASSERT_NO_FATAL_FAILURE(ExpectRow(c.attention(), 0, 0, i)) << by_bias;
    for (const int64_t i : {63, 128}) EXPECT_TRUE(std::isnan(RowOf(c.attention().y, 0, 0, i)[0])) << "query " << i;
  }
}

// Sums are taken in the same order whatever the threads, also where narrow blocks of queries skip keys that wide ones do not.
TEST_P(AttentionTest, ThreadsDoNotChangeBits) {
  for (const bool filled : {false, true}) {
    AttentionCase c({2, 3, 3, 200, 200, 32, !filled});
    const auto hidden = [&](int64_t query, int64_t key) { return (query >= 144 && query < 160 && key < 128) || c.OneOf(2); };
    if (filled) c.SetFilled({true, false, true, true}, kMinusInfinity, hidden, /*keeps=*/true);
    at::set_num_threads(1);
    c.Run(GetParam());
    const std::vector<float> one = c.y().all();
    for (const int threads : {2, 5, 16}) {
      at::set_num_threads(threads);
      c.Run(GetParam());
      EXPECT_EQ(c.y().all(), one) << threads << " threads";
    }
  }
}

// What is not a number spoils the queries that see it, and no other.
TEST_P(AttentionTest, NotANumber) {
  AttentionCase c({1, 1, 1, 40, 40, 8, true});
  *c.k(20) = std::numeric_limits<float>::quiet_NaN();
  *c.q(3) = std::numeric_limits<float>::infinity();
  c.Run(GetParam());
  for (int64_t i = 0; i < 40; ++i) EXPECT_EQ(std::isnan(RowOf(c.attention().y, 0, 0, i)[0]), i == 3 || i >= 20) << "query " << i;
}

}  // namespace
}  // namespace lazuli::codegen
