#include "guards/shape_plan.h"

#include <gtest/gtest.h>

#include "tests/support/log_builder.h"

namespace lazuli::testing {
namespace {

using codegen::OutputMeta;
using codegen::OutputMetas;
using codegen::TraceLog;
using codegen::Word;
using guards::DynamicShapes;
using guards::NumbersOf;
using guards::ShapeCursor;
using guards::ShapePlan;

OutputMeta Dense(const std::vector<int64_t>& sizes) {
  OutputMeta meta;
  meta.sizes.assign(sizes.begin(), sizes.end());
  meta.strides.resize(sizes.size());
  meta.nbytes = 4;
  for (size_t d = sizes.size(); d-- > 0;) {
    meta.strides[d] = meta.nbytes / 4;
    meta.nbytes *= sizes[d];
  }
  return meta;
}

// x [rows, 16] -> relu, [rows, 16] -> abs, whose `kept` rows are all that are left.
TraceLog ReluAndSome(int64_t rows, int64_t kept) {
  LogBuilder log;
  const int32_t x = log.Input();
  log.Begin("aten::relu").Tensor(x, {rows, 16});
  const int32_t y = log.End({rows, 16});
  log.Begin("aten::abs").Tensor(y, {rows, 16});
  return log.Finish({log.End({kept, 16})});
}

// What `abs` keeps of its operand's rows.
int64_t All(int64_t rows) { return rows; }
int64_t AtMost40(int64_t rows) { return std::min<int64_t>(rows, 40); }
int64_t AtMost3(int64_t rows) { return std::min<int64_t>(rows, 3); }
int64_t WholeEights(int64_t rows) { return rows / 8 * 8; }

template <int64_t (*kept)(int64_t)>
std::optional<OutputMetas> Inference(const codegen::OpInfo& info, c10::ArrayRef<c10::IValue> args, c10::Device /*device*/) {
  const at::Tensor x = args[0].toTensor();
  EXPECT_TRUE(x.is_meta());
  const int64_t rows = info.name == "aten::abs" ? kept(x.size(0)) : x.size(0);
  return OutputMetas{Dense({rows, x.size(1)})};
}

std::shared_ptr<const ShapePlan> Plan(const TraceLog& log, const TraceLog& seen, guards::ShapeInference infer) {
  std::string why_not;
  const auto shapes = DynamicShapes::Infer(log, {NumbersOf(seen)}, &why_not);
  EXPECT_TRUE(shapes.has_value()) << why_not;
  return std::make_shared<const ShapePlan>(log, *shapes, infer);
}

std::vector<Word> FirstWords(const TraceLog& log, size_t count) { return {log.shapes.begin(), log.shapes.begin() + count}; }

TEST(ShapePlan, ResultsThatFollowForAnySizeAreProved) {
  const auto plan = Plan(ReluAndSome(16, 16), ReluAndSome(24, 24), &Inference<All>);
  EXPECT_TRUE(plan->IsProved(0));
  EXPECT_TRUE(plan->IsProved(1));
}

TEST(ShapePlan, ResultsThatFollowedForTheseSizesOnlyAreNot) {
  EXPECT_FALSE(Plan(ReluAndSome(16, 16), ReluAndSome(24, 24), &Inference<AtMost40>)->IsProved(1));
  EXPECT_FALSE(Plan(ReluAndSome(16, 16), ReluAndSome(24, 24), &Inference<WholeEights>)->IsProved(1));
  EXPECT_TRUE(Plan(ReluAndSome(16, 16), ReluAndSome(24, 24), &Inference<AtMost40>)->IsProved(0));
  EXPECT_FALSE(Plan(ReluAndSome(16, 16), ReluAndSome(24, 24), nullptr)->IsProved(0));
}

TEST(ShapeCursor, ComputesResultsFromWhatItHasSeen) {
  const TraceLog log = ReluAndSome(16, 16), other = ReluAndSome(100, 100);
  ShapeCursor cursor;
  ASSERT_TRUE(cursor.Start(Plan(log, ReluAndSome(24, 24), &Inference<All>), log, 0, 0, {16}));
  EXPECT_EQ(cursor.Results(0, *log.ops[0].outputs), nullptr);  // Nothing was seen yet.
  EXPECT_TRUE(cursor.Symbols().empty());
  ASSERT_TRUE(cursor.Take(FirstWords(other, 4), 0));
  const OutputMetas* const metas = cursor.Results(0, *log.ops[0].outputs);
  ASSERT_NE(metas, nullptr);
  EXPECT_EQ((*metas)[0].sizes, Dense({100, 16}).sizes);
  EXPECT_EQ((*metas)[0].nbytes, 6400);
  EXPECT_EQ(cursor.Symbols(), absl::MakeConstSpan({int64_t{100}}));
}

// Of the numbers that are tested the least is 3, and the most that says nothing of 2.
TEST(ShapeCursor, SizesBelowThoseThatWereTested) {
  const TraceLog log = ReluAndSome(16, 3);
  const auto plan = Plan(log, ReluAndSome(24, 3), &Inference<AtMost3>);
  for (const int64_t rows : {2, 3, 50}) {
    ShapeCursor cursor;
    ASSERT_TRUE(cursor.Start(plan, log, 0, 0, {16}));
    ASSERT_TRUE(cursor.Take(FirstWords(ReluAndSome(rows, 3), 4), 0));
    EXPECT_NE(cursor.Results(0, *log.ops[0].outputs), nullptr) << rows;
    EXPECT_EQ(cursor.Results(1, *log.ops[1].outputs) == nullptr, rows == 2) << rows;
  }
}

TEST(ShapeCursor, NumbersThatAreNotAsExplainedAreRefused) {
  const TraceLog log = ReluAndSome(16, 16);
  const auto plan = Plan(log, ReluAndSome(24, 24), &Inference<All>);
  const auto takes = [&](std::vector<Word> words) {
    ShapeCursor cursor;
    return cursor.Start(plan, log, 0, 0, {16}) && cursor.Take(words, 0);
  };
  EXPECT_TRUE(takes({100, 16, 16, 1, 100, 16, 16, 1}));
  EXPECT_FALSE(takes({100, 17, 17, 1}));
  EXPECT_FALSE(takes({100, 16, 16, 1, 101, 16, 16, 1}));
  EXPECT_FALSE(takes({1, 16, 16, 1}));
  EXPECT_FALSE(takes({0, 16, 16, 1}));
}

TEST(ShapeCursor, WhatWasFollowedBeforeStays) {
  const TraceLog log = ReluAndSome(16, 16);
  const auto plan = Plan(log, ReluAndSome(24, 24), &Inference<All>);
  ShapeCursor cursor;
  ASSERT_TRUE(cursor.Start(plan, log, 1, 4, {16}));
  EXPECT_EQ(cursor.first_op(), 1u);
  EXPECT_FALSE(cursor.Take(ReluAndSome(100, 100).shapes, 4));
  ASSERT_TRUE(cursor.Start(plan, log, 1, 4, {16}));
  EXPECT_TRUE(cursor.Take(log.shapes, 4));
}

TEST(ShapeCursor, InferredResultsAreChecked) {
  const TraceLog log = ReluAndSome(16, 16);
  const auto plan = Plan(log, ReluAndSome(24, 24), &Inference<AtMost40>);
  ShapeCursor cursor;
  ASSERT_TRUE(cursor.Start(plan, log, 0, 0, {16}));
  ASSERT_TRUE(cursor.Take(ReluAndSome(100, 100).shapes, 0));
  EXPECT_EQ(cursor.Results(1, *log.ops[1].outputs), nullptr);
  EXPECT_FALSE(cursor.TakeResults(1, {Dense({40, 16})}));
  EXPECT_TRUE(cursor.TakeResults(1, {Dense({100, 16})}));
  EXPECT_FALSE(cursor.TakeResults(1, {Dense({100, 16}), Dense({100, 16})}));
}

// x [batch * time, 16] -> relu, seen as [batch, time, 16] -> abs.
TraceLog Folded(int64_t batch, int64_t time) {
  LogBuilder log;
  const int32_t x = log.Input();
  log.Begin("aten::relu").Tensor(x, {batch * time, 16});
  const int32_t y = log.End({batch * time, 16});
  log.Begin("aten::abs").Tensor(y, {batch, time, 16});
  return log.Finish({log.End({batch, time, 16})});
}

// relu of [16], and two windows of it.
TraceLog Windows(int64_t first, int64_t second) {
  LogBuilder log;
  const int32_t x = log.Input();
  log.Begin("aten::relu").Tensor(x, {16});
  const int32_t y = log.End({16});
  log.Begin("aten::exp").Window(y, {4}, /*slot=*/0, first);
  log.End({4});
  log.Begin("aten::sin").Window(y, {4}, /*slot=*/1, second);
  return log.Finish({log.End({4})});
}

// The one that is a symbol, since there has to be one, may be 1, which no size is.
TEST(ShapeCursor, OffsetsMayBeAnyEachForItself) {
  const TraceLog log = Windows(3, 8), seen = Windows(5, 6);
  const auto plan = Plan(log, seen, nullptr);
  for (const auto& [first, second] : {std::pair<int64_t, int64_t>{3, 8}, {7, 2}, {1, 12}, {9, 1}, {4, 4}}) {
    ShapeCursor cursor;
    ASSERT_TRUE(cursor.Start(plan, log, 0, 0, {3}));
    EXPECT_TRUE(cursor.Take(Windows(first, second).shapes, 0)) << first << " " << second;
    EXPECT_EQ(cursor.Symbols().size(), 1u);
  }
}

TEST(ShapeCursor, ProductsMayComeBeforeTheirFactors) {
  const TraceLog log = Folded(3, 10);
  const auto plan = Plan(log, Folded(4, 7), nullptr);
  const auto takes = [&](const std::vector<Word>& words) {
    ShapeCursor cursor;
    return cursor.Start(plan, log, 0, 0, {3, 10}) && cursor.Take(words, 0) && cursor.Symbols().size() == 2;
  };
  EXPECT_TRUE(takes(Folded(5, 11).shapes));
  EXPECT_FALSE(takes({55, 16, 16, 1, 5, 12, 16, 192, 16, 1}));
  EXPECT_FALSE(takes({55, 16, 16, 1, 4, 11, 16, 176, 16, 1}));
}

// A symbol that only a result has is known when that result was inferred.
TEST(ShapeCursor, ResultsMayBringSymbols) {
  const TraceLog log = ReluAndSome(16, 9);
  ShapeCursor cursor;
  ASSERT_TRUE(cursor.Start(Plan(log, ReluAndSome(24, 10), &Inference<All>), log, 0, 0, {16, 9}));
  ASSERT_TRUE(cursor.Take(ReluAndSome(100, 50).shapes, 0));
  EXPECT_TRUE(cursor.Symbols().empty());
  EXPECT_TRUE(cursor.TakeResults(1, {Dense({50, 16})}));
  EXPECT_EQ(cursor.Symbols().size(), 2u);
}

}  // namespace
}  // namespace lazuli::testing
