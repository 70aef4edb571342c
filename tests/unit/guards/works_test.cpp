#include "guards/works.h"

#include <gtest/gtest.h>

#include "guards/guard.h"
#include "tests/support/log_builder.h"

namespace lazuli::guards {
namespace {

using codegen::TraceLog;
using testing::LogBuilder;

// relu(x) + 1, of which `visible` can be seen: storages from 1 on.
TraceLog Example(const std::vector<int32_t>& visible, int64_t rows = 4) {
  LogBuilder b;
  const int32_t x = b.Input();
  b.Begin("aten::relu").Tensor(x, {rows});
  const int32_t y = b.End({rows});
  b.Begin("aten::add.Scalar").Tensor(y, {rows}).Slot(1).Slot(1);
  b.End({rows});
  return b.Finish(visible);
}

TEST(WorksTest, OneWhateverIsVisible) {
  Works works;
  works.Of(Example({1})).Note(Example({1}));
  EXPECT_EQ(works.Of(Example({2})).ways(), 1);
  EXPECT_EQ(works.Of(Example({1}, /*rows=*/5)).ways(), 0);
  works.Of(Example({2})).Note(Example({2}));
  works.Of(Example({1})).Note(Example({1}));  // As it came before.
  EXPECT_EQ(works.Of(Example({1, 2})).ways(), 2);
  works.Clear();
  EXPECT_EQ(works.Of(Example({1})).ways(), 0);
}

TEST(WorksTest, WidenedShowsAllThatWasVisible) {
  Works works;
  Work& work = works.Of(Example({}));
  work.Note(Example({2}));
  EXPECT_TRUE(Matches(work.Widened(Example({})), Example({2})));
  work.Note(Example({1}));
  const TraceLog widened = work.Widened(Example({}));
  EXPECT_TRUE(Matches(widened, Example({1, 2})));
  EXPECT_TRUE(MatchesButForDead(widened, Example({1})));
  EXPECT_FALSE(MatchesButForDead(Example({2}), widened));
}

TEST(WorksTest, FurtherProgramsAreWantedEverMoreRarely) {
  constexpr int64_t kMost = 4;
  Works works;
  Work& work = works.Of(Example({}));
  std::vector<int> wanted;
  for (int i = 1; i < 100; ++i) {
    if (!work.WantsWider(kMost)) continue;
    work.NoteWidened();
    wanted.push_back(i);
  }
  EXPECT_EQ(wanted, (std::vector<int>{1, 3, 7, 15}));
}

}  // namespace
}  // namespace lazuli::guards
