#include "guards/shape_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/log_builder.h"

namespace lazuli::testing {
namespace {

using codegen::TraceLog;
using guards::DynamicShapes;
using guards::NumbersOf;
using ::testing::HasSubstr;

// x [rows, columns] -> relu -> a reduction to one number.
TraceLog ReluAndSum(int64_t rows, int64_t columns) {
  LogBuilder log;
  const int32_t x = log.Input();
  log.Begin("aten::relu").Tensor(x, {rows, columns});
  const int32_t y = log.End({rows, columns});
  log.Begin("aten::sum").Tensor(y, {rows, columns}).None();
  return log.Finish({log.End({})});
}

// x [batch, time] as one row of batch * time elements.
TraceLog Flattened(int64_t batch, int64_t time) {
  LogBuilder log;
  const int32_t x = log.Input();
  log.Begin("aten::relu").Tensor(x, {batch, time});
  const int32_t y = log.End({batch, time});
  log.Begin("aten::exp").Tensor(y, {batch * time});
  return log.Finish({log.End({batch * time})});
}

// x [rows, 4] -> relu -> exp of its rows from `row` on, which begin at element 4 * row.
TraceLog RowsFrom(int64_t rows, int64_t row, int64_t count) {
  LogBuilder log;
  const int32_t x = log.Input();
  log.Begin("aten::relu").Tensor(x, {rows, 4});
  const int32_t y = log.End({rows, 4});
  log.Begin("aten::exp").Window(y, {count, 4}, /*slot=*/0, /*offset=*/4 * row);
  return log.Finish({log.End({count, 4})});
}

// x [100] -> relu -> exp of five elements from each of `begins` on, and of the first four as a matrix, and abs of the first five.
TraceLog Parts(const std::vector<int64_t>& begins) {
  LogBuilder log;
  const int32_t x = log.Input();
  log.Begin("aten::relu").Tensor(x, {100});
  const int32_t y = log.End({100});
  std::vector<int32_t> parts;
  for (size_t i = 0; i < begins.size(); ++i) {
    log.Begin("aten::exp").Window(y, {5}, /*slot=*/i, /*offset=*/begins[i]);
    parts.push_back(log.End({5}));
  }
  log.Begin("aten::exp").Window(y, {2, 2}, /*slot=*/begins.size(), /*offset=*/0);
  parts.push_back(log.End({2, 2}));
  log.Begin("aten::abs").Window(y, {5}, /*slot=*/begins.size() + 1, /*offset=*/0);
  parts.push_back(log.End({5}));
  return log.Finish(parts);
}

std::optional<DynamicShapes> Infer(const TraceLog& log, const std::vector<TraceLog>& seen, std::string* why_not) {
  std::vector<std::vector<int64_t>> examples;
  for (const TraceLog& example : seen) examples.push_back(NumbersOf(example));
  return DynamicShapes::Infer(log, examples, why_not);
}

TEST(DynamicShapes, WhatChangedIsASymbolAndTheRestFollowsFromIt) {
  std::string why_not;
  const auto shapes = Infer(ReluAndSum(48, 16), {ReluAndSum(64, 16)}, &why_not);
  ASSERT_TRUE(shapes.has_value()) << why_not;
  EXPECT_EQ(shapes->symbols().size(), 1);
  EXPECT_EQ(shapes->symbols().hint(0), 48);
  EXPECT_EQ(*shapes->Match(NumbersOf(ReluAndSum(1000, 16))), std::vector<int64_t>{1000});
  const TraceLog encoded = shapes->Encode(ReluAndSum(48, 16));
  EXPECT_EQ(shapes->symbols().Text((*encoded.ops[0].outputs)[0].nbytes), "64*s0");
  EXPECT_EQ(static_cast<int64_t>(encoded.shapes[1]), 16);
}

TEST(DynamicShapes, OffsetsFollowFromSizesOrMayBeAny) {
  std::string why_not;
  const auto half = Infer(RowsFrom(40, 20, 20), {RowsFrom(60, 30, 30)}, &why_not);
  ASSERT_TRUE(half.has_value()) << why_not;
  EXPECT_TRUE(half->Match(NumbersOf(RowsFrom(100, 50, 50))).has_value());
  EXPECT_FALSE(half->Match(NumbersOf(RowsFrom(100, 25, 50))).has_value());
  EXPECT_EQ(half->Mismatch(RowsFrom(100, 25, 50)), "input 0 of op 1 aten::exp offset mismatch. expected 4*s0 = 200, actual 100");
  const auto any = Infer(RowsFrom(40, 20, 10), {RowsFrom(60, 3, 10)}, &why_not);
  ASSERT_TRUE(any.has_value()) << why_not;
  EXPECT_EQ(any->symbols().size(), 1) << "the rows";
  EXPECT_TRUE(any->Match(NumbersOf(RowsFrom(100, 77, 10))).has_value());
  EXPECT_EQ(any->Mismatch(RowsFrom(100, 77, 10)), "");
  EXPECT_EQ(codegen::DecodeTrace(any->Encode(RowsFrom(40, 20, 10))).ops[1].args[0].tensors[0].offset, 0) << "not known";
  const auto alone = Infer(RowsFrom(40, 20, 10), {RowsFrom(40, 3, 10)}, &why_not);
  ASSERT_TRUE(alone.has_value()) << why_not;
  EXPECT_EQ(alone->symbols().size(), 1) << "the offset, since there is nothing else";
  EXPECT_TRUE(alone->Match(NumbersOf(RowsFrom(40, 1, 10))).has_value());
}

// In a loop that puts windows side by side, one after the other comes to move.
TEST(DynamicShapes, FromTheThirdTraceOnOffsetsLikeThoseThatMoveMayBeAny) {
  std::string why_not;
  const auto second = Infer(Parts({10, 20, 30}), {Parts({10, 21, 30})}, &why_not);
  ASSERT_TRUE(second.has_value()) << why_not;
  EXPECT_TRUE(second->Match(NumbersOf(Parts({10, 50, 30}))).has_value());
  EXPECT_FALSE(second->Match(NumbersOf(Parts({11, 20, 30}))).has_value());
  const auto third = Infer(Parts({10, 20, 31}), {Parts({10, 20, 30}), Parts({10, 21, 30})}, &why_not);
  ASSERT_TRUE(third.has_value()) << why_not;
  EXPECT_TRUE(third->Match(NumbersOf(Parts({77, 50, 3}))).has_value()) << "the first one, too, though it has not moved";
  TraceLog other = Parts({10, 20, 30});
  other.shapes.back() = 7;
  EXPECT_FALSE(third->Match(NumbersOf(other)).has_value()) << "another operator's";
  TraceLog matrix = Parts({10, 20, 30});
  ASSERT_EQ(matrix.shapes[matrix.shapes.size() - 4], 0u);
  matrix.shapes[matrix.shapes.size() - 4] = 7;
  EXPECT_FALSE(third->Match(NumbersOf(matrix)).has_value()) << "with other strides";
}

TEST(DynamicShapes, OtherConstantsDoNotMatch) {
  std::string why_not;
  const auto shapes = Infer(ReluAndSum(48, 16), {ReluAndSum(64, 16)}, &why_not);
  ASSERT_TRUE(shapes.has_value());
  EXPECT_FALSE(shapes->Match(NumbersOf(ReluAndSum(48, 17))).has_value());
  EXPECT_EQ(shapes->Mismatch(ReluAndSum(48, 17)), "input 0 of op 0 aten::relu size mismatch at index 1. expected 16, actual 17");
}

TEST(DynamicShapes, ZeroAndOneAreSpecialised) {
  std::string why_not;
  EXPECT_FALSE(Infer(ReluAndSum(1, 16), {ReluAndSum(64, 16)}, &why_not).has_value());
  EXPECT_THAT(why_not, HasSubstr("0 or 1"));
  const auto shapes = Infer(ReluAndSum(48, 16), {ReluAndSum(64, 16)}, &why_not);
  ASSERT_TRUE(shapes.has_value());
  EXPECT_FALSE(shapes->Match(NumbersOf(ReluAndSum(1, 16))).has_value());
  EXPECT_EQ(shapes->Mismatch(ReluAndSum(1, 16)),
            "input 0 of op 0 aten::relu size mismatch at index 0. expected 2 or more, since 0 and 1 are specialised, actual 1");
}

TEST(DynamicShapes, ProductsOfTwoSymbols) {
  std::string why_not;
  const auto shapes = Infer(Flattened(3, 10), {Flattened(4, 7)}, &why_not);
  ASSERT_TRUE(shapes.has_value()) << why_not;
  EXPECT_EQ(shapes->symbols().size(), 2);
  EXPECT_TRUE(shapes->Match(NumbersOf(Flattened(5, 11))).has_value());
}

TEST(DynamicShapes, AGuessThatWasWrongIsFoundOutAndImproved) {
  std::string why_not;
  // Both doubled, by accident.
  const auto guess = Infer(ReluAndSum(20, 60), {ReluAndSum(10, 30)}, &why_not);
  ASSERT_TRUE(guess.has_value());
  EXPECT_EQ(guess->symbols().size(), 1);
  EXPECT_FALSE(guess->Match(NumbersOf(ReluAndSum(20, 50))).has_value());
  EXPECT_EQ(guess->Mismatch(ReluAndSum(20, 50)), "input 0 of op 0 aten::relu size mismatch at index 1. expected 3*s0 = 60, actual 50");
  const auto better = Infer(ReluAndSum(20, 50), {ReluAndSum(10, 30), ReluAndSum(20, 60)}, &why_not);
  ASSERT_TRUE(better.has_value());
  EXPECT_EQ(better->symbols().size(), 2);
  EXPECT_TRUE(better->Match(NumbersOf(ReluAndSum(7, 9))).has_value());
}

TEST(DynamicShapes, EqualNumbersStayEqual) {
  std::string why_not;
  const auto shapes = Infer(ReluAndSum(20, 20), {ReluAndSum(10, 10)}, &why_not);
  ASSERT_TRUE(shapes.has_value());
  EXPECT_EQ(shapes->symbols().size(), 1);
  EXPECT_FALSE(shapes->Match(NumbersOf(ReluAndSum(20, 21))).has_value());
}

TEST(DynamicShapes, NothingChanged) {
  std::string why_not;
  EXPECT_FALSE(Infer(ReluAndSum(20, 20), {ReluAndSum(20, 20)}, &why_not).has_value());
}

}  // namespace
}  // namespace lazuli::testing
