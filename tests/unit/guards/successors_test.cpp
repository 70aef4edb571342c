#include "guards/successors.h"

#include <gtest/gtest.h>

#include "guards/program_cache.h"

namespace lazuli::guards {
namespace {

CachedTracePtr Trace(int32_t op_id) {
  auto trace = std::make_shared<CachedTrace>();
  trace->log.ops.resize(1);
  trace->log.ops[0].op_id = op_id;
  trace->body = std::make_shared<CompiledProgram>(0);
  return trace;
}

// As if its operators had been found faster.
void LetRunEagerly(const CachedTrace& trace) {
  EagerTrial& eager = trace.body->trial;
  eager.SetEligible(1);
  while (!eager.runs_eagerly()) {
    const EagerTrial::Way way = eager.Choose();
    eager.AddSample(way, {EagerTrial::Sample::kUnknown, way == EagerTrial::Way::kEager ? 100 : 200});
  }
}

TEST(SuccessorsTest, TheLastOneIsTheLikeliest) {
  Successors successors;
  EXPECT_EQ(successors.Likeliest(), nullptr);
  const CachedTracePtr a = Trace(1), b = Trace(2);
  successors.Note(a);
  successors.Note(b);
  EXPECT_EQ(successors.Likeliest(), b);
  successors.Note(a);
  EXPECT_EQ(successors.Likeliest(), a);
}

TEST(SuccessorsTest, FoundByTheirFirstOperator) {
  Successors successors;
  const CachedTracePtr a = Trace(1), b = Trace(2), other_a = Trace(1);
  for (const CachedTracePtr& trace : {a, b, other_a}) successors.Note(trace);
  EXPECT_EQ(successors.StartingWith(2), b);
  EXPECT_EQ(successors.StartingWith(1), other_a);
  EXPECT_EQ(successors.StartingWith(3), nullptr);
}

TEST(SuccessorsTest, WhatRunsEagerlyComesFirst) {
  Successors successors;
  const CachedTracePtr eager = Trace(1), program = Trace(1);
  LetRunEagerly(*eager);
  successors.Note(eager);
  successors.Note(program);
  EXPECT_EQ(successors.Likeliest(), eager);
  EXPECT_EQ(successors.StartingWith(1), eager);
}

TEST(SuccessorsTest, FewAreKeptAndNoneIsKeptAlive) {
  Successors successors;
  std::vector<CachedTracePtr> traces;
  for (int32_t id = 0; id < 6; ++id) successors.Note(traces.emplace_back(Trace(id)));
  EXPECT_EQ(successors.StartingWith(0), nullptr);
  EXPECT_EQ(successors.StartingWith(5), traces[5]);
  traces.clear();
  EXPECT_EQ(successors.Likeliest(), nullptr);
}

TEST(SuccessorsTest, AllThatAreThereTheLastFirst) {
  Successors successors;
  const CachedTracePtr a = Trace(1), b = Trace(2);
  CachedTracePtr gone = Trace(3);
  for (const CachedTracePtr& trace : {a, gone, b}) successors.Note(trace);
  gone.reset();
  std::vector<CachedTracePtr> all;
  successors.AppendTo(&all);
  EXPECT_EQ(all, std::vector<CachedTracePtr>({b, a}));
}

}  // namespace
}  // namespace lazuli::guards
