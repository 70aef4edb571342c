#include "guards/shape_marks.h"

#include <gmock/gmock.h>

#include "tests/support/log_builder.h"

namespace lazuli::testing {
namespace {

using codegen::SizeMark;
using codegen::TraceLog;
using guards::DynamicShapes;
using guards::GuessFromMarks;
using guards::NumbersOf;

constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

// x [batch, time, 24] @ w [24, 10], with x seen as [batch * time, 24], then a row for each of the batch.
TraceLog Linear(int64_t batch, int64_t time, std::vector<SizeMark> marks) {
  LogBuilder log;
  const int32_t x = log.Input(), w = log.Input();
  log.Begin("aten::relu").Tensor(x, {batch, time, 24});
  const int32_t y = log.End({batch, time, 24});
  log.Begin("aten::mm").Tensor(y, {batch * time, 24}).Tensor(w, {24, 10});
  const int32_t z = log.End({batch * time, 10});
  log.Begin("aten::exp").Tensor(z, {batch, time * 10});
  TraceLog done = log.Finish({log.End({batch, time * 10})});
  done.marks = std::move(marks);
  return done;
}

std::optional<DynamicShapes> Guess(const TraceLog& log) {
  std::string why_not;
  const auto shapes = GuessFromMarks(log, &why_not);
  EXPECT_NE(shapes.has_value(), !why_not.empty()) << why_not;
  return shapes;
}

TEST(ShapeMarks, WhatFollowsFromAMarkedSizeIsGuessed) {
  const auto shapes = Guess(Linear(12, 17, {{0, true, 0, kAny}}));
  ASSERT_TRUE(shapes.has_value());
  EXPECT_EQ(shapes->symbols().size(), 1);
  EXPECT_EQ(shapes->symbols().Text(shapes->numbers()[6]), "17*s0");  // Rows of the product's operand.
  for (const int64_t batch : {2, 13, 500}) EXPECT_TRUE(shapes->Match(NumbersOf(Linear(batch, 17, {}))).has_value()) << batch;
  EXPECT_FALSE(shapes->Match(NumbersOf(Linear(12, 18, {}))).has_value());
  EXPECT_FALSE(shapes->Match(NumbersOf(Linear(1, 17, {}))).has_value());
}

TEST(ShapeMarks, ProductsOfTwo) {
  const auto shapes = Guess(Linear(12, 17, {{0, true, 0, kAny}, {1, true, 0, kAny}}));
  ASSERT_TRUE(shapes.has_value());
  EXPECT_EQ(shapes->symbols().size(), 2);
  EXPECT_TRUE(shapes->Match(NumbersOf(Linear(5, 31, {}))).has_value());
}

TEST(ShapeMarks, SizesOfOtherInputsStay) {
  // All of x; 24 is also a size of w.
  const auto shapes = Guess(Linear(12, 17, {{0, true, 0, kAny}, {1, true, 0, kAny}, {2, true, 0, kAny}}));
  ASSERT_TRUE(shapes.has_value());
  EXPECT_EQ(shapes->symbols().size(), 2);
  EXPECT_TRUE(shapes->Match(NumbersOf(Linear(3, 4, {}))).has_value());
}

TEST(ShapeMarks, ASizeThatEqualsAnotherWaits) {
  std::string why_not;
  EXPECT_FALSE(GuessFromMarks(Linear(24, 17, {{0, true, 0, kAny}}), &why_not).has_value());
  EXPECT_THAT(why_not, ::testing::HasSubstr("equals a size that is not marked"));
  EXPECT_FALSE(GuessFromMarks(Linear(1, 17, {{0, true, 0, kAny}}), &why_not).has_value());
}

TEST(ShapeMarks, OnlyInRange) {
  const auto shapes = Guess(Linear(12, 17, {{0, true, 4, 100}}));
  ASSERT_TRUE(shapes.has_value());
  EXPECT_TRUE(shapes->Match(NumbersOf(Linear(4, 17, {}))).has_value());
  EXPECT_TRUE(shapes->Match(NumbersOf(Linear(100, 17, {}))).has_value());
  EXPECT_FALSE(shapes->Match(NumbersOf(Linear(3, 17, {}))).has_value());
  EXPECT_FALSE(shapes->Match(NumbersOf(Linear(101, 17, {}))).has_value());
  EXPECT_EQ(shapes->Mismatch(Linear(101, 17, {})),
            "input 0 of op 0 aten::relu size mismatch at index 0. expected 100 or less, as it was marked, actual 101");
}

TEST(ShapeMarks, StaticMarksKeepExamplesApart) {
  std::string why_not;
  TraceLog now = Linear(12, 17, {{1, false, 0, kAny}});
  EXPECT_FALSE(DynamicShapes::Infer(now, {NumbersOf(Linear(12, 20, {}))}, &why_not).has_value());
  const auto shapes = DynamicShapes::Infer(now, {NumbersOf(Linear(12, 20, {})), NumbersOf(Linear(14, 17, {}))}, &why_not);
  ASSERT_TRUE(shapes.has_value()) << why_not;
  EXPECT_TRUE(shapes->Match(NumbersOf(Linear(30, 17, {}))).has_value());
  EXPECT_FALSE(shapes->Match(NumbersOf(Linear(30, 20, {}))).has_value());
}

}  // namespace
}  // namespace lazuli::testing
