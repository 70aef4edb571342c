#include "guards/hot_sizes.h"

#include <gtest/gtest.h>

#include "guards/program_cache.h"

namespace lazuli::guards {
namespace {

using Advice = HotSizes::Advice;

CachedTracePtr Own(bool ready) {
  auto trace = std::make_shared<CachedTrace>();
  trace->body = std::make_shared<CompiledProgram>(0);
  trace->body->compiled = ready;
  trace->body->state = ready ? CompiledProgram::State::kReady : CompiledProgram::State::kCompiling;
  return trace;
}

TEST(HotSizesTest, SoManyInARowAreHot) {
  HotSizes sizes;
  for (int run = 0; run < 3; ++run) EXPECT_EQ(sizes.Note({5, 6}, 3).advice, Advice::kSymbols) << run;
  EXPECT_EQ(sizes.Note({5, 6}, 3).advice, Advice::kSpecialize);
  EXPECT_EQ(sizes.Note({5, 7}, 3).advice, Advice::kSymbols);
  EXPECT_EQ(sizes.Note({5, 6}, 3).advice, Advice::kSymbols);
  for (int run = 0; run < 100; ++run) EXPECT_EQ(sizes.Note({8}, 0).advice, Advice::kSymbols);
}

TEST(HotSizesTest, TheirProgramIsTakenOnceItIsThereAndTheyStay) {
  HotSizes sizes;
  const CachedTracePtr own = Own(/*ready=*/false);
  sizes.Add({5}, own);
  for (int run = 0; run < 20; ++run) EXPECT_EQ(sizes.Note({5}, 3).advice, Advice::kSymbols) << run;
  own->body->state = CompiledProgram::State::kReady;
  EXPECT_EQ(sizes.Note({5}, 3).advice, Advice::kSymbols);  // Compiling it failed.
  own->body->compiled = true;
  EXPECT_EQ(sizes.Note({5}, 3).own, own);
  EXPECT_EQ(sizes.Note({6}, 3).own, nullptr);
  for (int run = 1; run < HotSizes::kReturns; ++run) EXPECT_EQ(sizes.Note({5}, 3).own, nullptr) << run;
  EXPECT_EQ(sizes.Note({5}, 3).own, own);
}

TEST(HotSizesTest, NoneAreAskedForTwiceNorTooMany) {
  HotSizes sizes;
  sizes.Add({1}, nullptr);
  for (int run = 0; run < 9; ++run) EXPECT_EQ(sizes.Note({1}, 2).advice, Advice::kSymbols);
  for (size_t more = 1; more < HotSizes::kMost; ++more) sizes.Add({static_cast<int64_t>(10 + more)}, Own(true));
  for (int run = 0; run < 9; ++run) EXPECT_EQ(sizes.Note({2}, 2).advice, Advice::kSymbols);
}

}  // namespace
}  // namespace lazuli::guards
