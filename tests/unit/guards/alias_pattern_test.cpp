#include "guards/alias_pattern.h"

#include <gtest/gtest.h>

#include "guards/guard.h"
#include "tests/support/log_builder.h"

namespace lazuli::guards {
namespace {

using codegen::TraceLog;
using testing::LogBuilder;

// exp(cat(items)) * items[0], of rows of `num_inputs` storages.
TraceLog Drawn(int num_inputs, const std::vector<int>& items) {
  LogBuilder b;
  std::vector<int32_t> rows;
  for (int i = 0; i < num_inputs; ++i) rows.push_back(b.Input());
  b.Begin("aten::cat").List(items.size());
  for (const int item : items) b.Tensor(rows[static_cast<size_t>(item)], {1, 4});
  b.Int(0);
  const auto n = static_cast<int64_t>(items.size());
  const int32_t all = b.End({n, 4});
  b.Begin("aten::exp").Tensor(all, {n, 4});
  const int32_t power = b.End({n, 4});
  b.Begin("aten::mul.Tensor").Tensor(power, {n, 4}).Tensor(rows[0], {1, 4});
  return b.Finish({b.End({n, 4})});
}

TEST(AliasPatternTest, AllPatternsOfReadsAreOneTrace) {
  const auto apart = SeparateReads(Drawn(3, {0, 1, 2}));
  ASSERT_TRUE(apart.has_value());
  // The last mention of row 0 is a storage of its own too.
  EXPECT_EQ(apart->storages, (std::vector<int32_t>{0, 1, 2, 3, 4, 0, 5}));
  const auto again = SeparateReads(Drawn(2, {0, 1, 0}));
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->storages, (std::vector<int32_t>{0, 1, 0, 2, 3, 0, 4}));
  EXPECT_TRUE(Matches(apart->log, again->log));
  EXPECT_FALSE(Matches(Drawn(3, {0, 1, 2}), Drawn(2, {0, 1, 0})));
  // It is complete, and apart already.
  EXPECT_EQ(BuildGuards(apart->log).size(), apart->log.code.size() + apart->log.shapes.size());
  EXPECT_FALSE(SeparateReads(apart->log).has_value());
  EXPECT_EQ(codegen::DecodeTrace(apart->log).ops.size(), 3u);
}

TEST(AliasPatternTest, WhatIsVisibleMovesAlong) {
  const TraceLog log = Drawn(2, {0, 1, 0});
  const auto apart = SeparateReads(log);
  ASSERT_TRUE(apart.has_value());
  EXPECT_EQ(log.code.back(), 1u << 4);
  EXPECT_EQ(apart->log.code.back(), 1u << 6);
  EXPECT_EQ(apart->log.num_storages, 7);
  EXPECT_EQ(apart->log.ops[2].first_result, 6);
}

TEST(AliasPatternTest, WhatIsWrittenStaysOne) {
  LogBuilder b;
  const int32_t x = b.Input(), y = b.Input();
  b.Begin("aten::mul.Tensor").Tensor(x, {4}).Tensor(y, {4});
  const int32_t product = b.End({4});
  b.Begin("aten::add_.Tensor").Tensor(x, {4}).Tensor(product, {4}).Slot(1);
  b.EndInPlace();
  b.Begin("aten::mul.Tensor").Tensor(x, {4}).Tensor(y, {4});
  const auto apart = SeparateReads(b.Finish({b.End({4})}));
  ASSERT_TRUE(apart.has_value());
  EXPECT_EQ(apart->storages, (std::vector<int32_t>{0, 1, 2, 1, 3}));
}

TEST(AliasPatternTest, EachMentionHasAnOffsetOfItsOwn) {
  const auto rows = [](std::vector<size_t> offsets) {
    LogBuilder b;
    const int32_t buffer = b.Input();
    b.Begin("aten::cat").List(offsets.size());
    for (const size_t offset : offsets) b.Tensor(buffer, {1, 4}, c10::kFloat, offset);
    b.Int(0);
    TraceLog log = b.Finish({b.End({3, 4})});
    for (size_t i = 0; i < log.offsets.size(); ++i) log.offsets[i] = static_cast<int64_t>(10 * i + 5);
    return SeparateReads(log);
  };
  const auto different = rows({0, 1, 2}), same = rows({0, 1, 0});
  ASSERT_TRUE(different.has_value() && same.has_value());
  EXPECT_TRUE(Matches(different->log, same->log));
  EXPECT_EQ(different->log.offsets, (std::vector<int64_t>{5, 15, 25}));
  EXPECT_EQ(same->log.offsets, (std::vector<int64_t>{5, 15, 5}));
}

// A window at 0 needs no offset, but which of a list is there differs from round to round.
TEST(AliasPatternTest, AnOffsetOfZeroIsOneWhereOthersAre) {
  const auto rows = [](size_t at_zero) {
    LogBuilder b;
    const int32_t buffer = b.Input(), whole = b.Input();
    b.Begin("aten::cat").List(3);
    for (size_t i = 0; i < 3; ++i) {
      i == at_zero ? b.Tensor(buffer, {1, 4}) : b.Tensor(buffer, {1, 4}, c10::kFloat, i < at_zero ? i : i - 1);
    }
    b.Int(0);
    const int32_t all = b.End({3, 4});
    b.Begin("aten::mul.Tensor").Tensor(all, {3, 4}).Tensor(whole, {3, 4});
    TraceLog log = b.Finish({b.End({3, 4})});
    for (size_t i = 0; i < log.offsets.size(); ++i) log.offsets[i] = static_cast<int64_t>(10 * i + 5);
    return SeparateReads(log);
  };
  const auto first = rows(0), last = rows(2);
  ASSERT_TRUE(first.has_value() && last.has_value());
  EXPECT_TRUE(Matches(first->log, last->log));
  EXPECT_EQ(first->log.offsets, (std::vector<int64_t>{0, 5, 15}));
  EXPECT_EQ(last->log.offsets, (std::vector<int64_t>{5, 15, 0}));
  EXPECT_EQ(codegen::DecodeTrace(first->log).ops.size(), 2u);
}

TEST(AliasPatternTest, NothingToSeparate) {
  EXPECT_FALSE(SeparateReads([] {
                 LogBuilder b;
                 const int32_t x = b.Input(), y = b.Input();
                 b.Begin("aten::mul.Tensor").Tensor(x, {4}).Tensor(y, {4});
                 const int32_t product = b.End({4});
                 b.Begin("aten::mul.Tensor").Tensor(product, {4}).Tensor(product, {4});
                 return b.Finish({b.End({4})});
               }())
                   .has_value());
}

}  // namespace
}  // namespace lazuli::guards
