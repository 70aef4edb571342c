#include "tracer/loop_finder.h"

#include <gtest/gtest.h>

#include <random>

namespace lazuli::tracer {
namespace {

using Cut = LoopFinder::Cut;

constexpr size_t kMaxOps = 4096;  // Of a trace; `limit` of a program below may be less, where memory is the limit.

// Feeds a program to a finder, cutting traces where it says so and where they are full.
class Program {
 public:
  explicit Program(size_t limit) : limit_(limit) {}
  // An operator before which `live` bytes are alive.
  void Run(int32_t op, int64_t live = 100) {
    if (length_ == limit_) {
      finder_.OnFullTrace(kMaxOps);
      finder_.OnNewTrace(length_, /*is_one_of_many=*/false, 0);
      End(Cut::kFull);
      ++full_traces_;
    }
    ++length_;
    ++position_;
    if (!finder_.EndsAfter(op, live, /*in_blocks=*/false)) return;
    End(Cut::kPiece);
    ends_.push_back(position_);
  }
  void set_limit(size_t limit) { limit_ = limit; }
  void Read() { End(Cut::kStop); }
  // As Read, of a trace that is new. Whether loops were found.
  bool ReadNew(bool is_one_of_many = true) {
    const bool found = finder_.OnNewTrace(length_, is_one_of_many, 0) == LoopFinder::Found::kRounds;
    Read();
    return found;
  }

  const std::vector<size_t>& ends() const { return ends_; }
  size_t full_traces() const { return full_traces_; }
  size_t position() const { return position_; }

 private:
  void End(Cut cut) {
    finder_.OnCut(cut, kMaxOps);
    length_ = 0;
  }

  LoopFinder finder_;
  size_t limit_;
  size_t length_ = 0, position_ = 0, full_traces_ = 0;
  std::vector<size_t> ends_;
};

// A round of `size` operators out of few; the least is alive before operator `start`.
void Round(Program* program, int size, int start, int seed = 1) {
  std::mt19937 random(static_cast<unsigned>(seed));
  for (int i = 0; i < size; ++i) program->Run(static_cast<int32_t>(random() % 12), i == start ? 10 : 100 + i);
}

TEST(LoopFinderTest, CutsOnceARoundWhereTheLeastIsAlive) {
  for (const auto& [size, start] : {std::pair(300, 0), std::pair(300, 17), std::pair(411, 410), std::pair(997, 500), std::pair(2500, 9)}) {
    SCOPED_TRACE(size);
    Program program(4096);
    for (int op = 100; op < 150; ++op) program.Run(op);  // What comes before the loop.
    for (int i = 0; i < 40; ++i) Round(&program, size, start);
    ASSERT_GE(program.ends().size(), 20U);
    EXPECT_LE(program.full_traces(), 2U);
    for (const size_t end : program.ends()) EXPECT_EQ((end - 50) % static_cast<size_t>(size), static_cast<size_t>(start));
  }
}

TEST(LoopFinderTest, RoundsLongerThanATrace) {
  Program program(1000);
  for (int i = 0; i < 12; ++i) Round(&program, 3500, 20);
  ASSERT_GE(program.ends().size(), 5U);
  for (const size_t end : program.ends()) EXPECT_EQ(end % 3500, 20U);
}

TEST(LoopFinderTest, SeveralShortRoundsMakeATrace) {
  Program program(4096);
  for (int i = 0; i < 4000; ++i) Round(&program, 5, 2);
  ASSERT_GE(program.ends().size(), 20U);
  for (size_t i = 1; i < program.ends().size(); ++i) EXPECT_EQ(program.ends()[i] - program.ends()[i - 1], 35U);
  EXPECT_EQ(program.full_traces(), 1U);
}

TEST(LoopFinderTest, LayersAreNoRounds) {
  Program program(4096);
  for (int step = 0; step < 30; ++step) {
    for (int layer = 0; layer < 12; ++layer) Round(&program, 30, 0);  // Less is alive between layers than within them.
    for (int32_t op = 50; op < 90; ++op) program.Run(op, op == 80 ? 1 : 200);
  }
  ASSERT_GE(program.ends().size(), 15U);
  for (const size_t end : program.ends()) EXPECT_EQ(end % 400, 390U);
}

TEST(LoopFinderTest, GoesOnAfterReadsAnywhere) {
  Program program(4096);
  for (int i = 0; i < 30; ++i) Round(&program, 300, 40);
  for (int i = 0; i < 100; ++i) {
    Round(&program, 300, 40);
    if (i % 20 == 0) program.Read();
  }
  for (const size_t end : program.ends()) EXPECT_EQ(end % 300, 40U);
  EXPECT_GE(program.ends().size(), 100U);
}

// A first step that goes on for so long that it seems to be a loop, and others.
TEST(LoopFinderTest, LoopsThatWereNotNeededAreForgotten) {
  Program program(4096);
  const auto step = [&](int layers) {
    for (int layer = 0; layer < layers; ++layer) Round(&program, 60, 0);
    program.Read();
  };
  step(100);
  EXPECT_EQ(program.full_traces(), 1U);
  for (int i = 0; i < 4; ++i) {
    const size_t ends = program.ends().size();
    step(12);
    EXPECT_GT(program.ends().size(), ends);
  }
  const size_t ends = program.ends().size();
  for (int i = 0; i < 20; ++i) step(12);
  EXPECT_EQ(program.ends().size(), ends);
  // Where a trace gets full again, they were needed: it takes longer then.
  step(100);
  const size_t again = program.ends().size();
  for (int i = 0; i < 20; ++i) step(12);
  EXPECT_GE(program.ends().size(), again + 8 * 10);
  EXPECT_LE(program.ends().size(), again + 8 * 12);
}

// A first step that holds too much memory, and others that do not.
TEST(LoopFinderTest, MemoryThatRunsOutIsNoSignOfALoopWhereTheProgramStopsSoon) {
  Program program(4096);
  for (int i = 0; i < 20; ++i) {
    program.set_limit(i == 0 ? 300 : kMaxOps);
    for (int layer = 0; layer < 40; ++layer) Round(&program, 60, 0);
    program.Read();
  }
  EXPECT_EQ(program.full_traces(), 7U);
  EXPECT_TRUE(program.ends().empty());
  program.set_limit(300);
  for (int i = 0; i < 100; ++i) Round(&program, 60, 0);
  EXPECT_GT(program.ends().size(), 20U);
}

TEST(LoopFinderTest, LoopsAreForgottenWhereTheyCutSomethingInVainOnly) {
  Program program(4096);
  for (int i = 0; i < 30; ++i) Round(&program, 300, 40);
  for (int i = 0; i < 20; ++i) {  // Reads between which nothing is cut.
    Round(&program, 100, 0, /*seed=*/2);
    program.Read();
  }
  const size_t ends = program.ends().size();
  for (int i = 0; i < 30; ++i) Round(&program, 300, 40);
  EXPECT_GE(program.ends().size(), ends + 29);
  EXPECT_LE(program.full_traces(), 1U);
}

TEST(LoopFinderTest, ProgramsThatReadSoonAreLeftAlone) {
  Program program(4096);
  for (int i = 0; i < 100; ++i) {
    for (int j = 0; j < 10; ++j) Round(&program, 300, 40);
    program.Read();
  }
  EXPECT_TRUE(program.ends().empty());
  EXPECT_EQ(program.full_traces(), 0U);
}

TEST(LoopFinderTest, WhatDoesNotRepeatItselfIsLeftAlone) {
  Program program(4096);
  for (int i = 0; i < 200; ++i) Round(&program, 300, 40, /*seed=*/i);
  EXPECT_TRUE(program.ends().empty());
  EXPECT_GE(program.full_traces(), 14U);
}

TEST(LoopFinderTest, AnotherLoopIsFoundToo) {
  Program program(4096);
  for (int i = 0; i < 40; ++i) Round(&program, 300, 40);
  const size_t second = program.position();
  for (int i = 0; i < 400; ++i) Round(&program, 450, 7, /*seed=*/2);
  ASSERT_GE(program.ends().size(), 200U);
  for (const size_t end : program.ends()) EXPECT_TRUE(end < second ? end % 300 == 40 : (end - second) % 450 == 7) << end;
}

// A step that goes round two loops, with what comes before, between and after.
void UnrolledStep(Program* program, int first, int second) {
  for (int32_t op = 100; op < 120; ++op) program->Run(op);
  for (int i = 0; i < first; ++i) Round(program, 40, 7);
  for (int32_t op = 200; op < 230; ++op) program->Run(op);
  for (int i = 0; i < second; ++i) Round(program, 50, 11, /*seed=*/2);
  for (int32_t op = 300; op < 310; ++op) program->Run(op);
}

TEST(LoopFinderTest, RoundsThatTracesDifferByAreCut) {
  for (const auto& [second_before, second] : {std::pair(5, 8), std::pair(8, 5), std::pair(6, 6)}) {
    SCOPED_TRACE(second);
    Program program(4096);
    UnrolledStep(&program, 4, second_before);
    EXPECT_FALSE(program.ReadNew());
    UnrolledStep(&program, 9, second);
    EXPECT_TRUE(program.ReadNew());
    EXPECT_TRUE(program.ends().empty());
    const size_t begin = program.position();
    UnrolledStep(&program, 6, 7);
    std::vector<size_t> expected;
    for (size_t i = 0; i < 6; ++i) expected.push_back(begin + 20 + i * 40 + 7);
    expected.erase(expected.begin());  // Before the first round come other operators.
    for (size_t i = 1; i < 7 && second_before != second; ++i) expected.push_back(begin + 20 + 240 + 30 + i * 50 + 11);
    EXPECT_EQ(program.ends(), expected);
  }
}

TEST(LoopFinderTest, TracesThatMayHaveProgramsAreNotCompared) {
  Program program(4096);
  UnrolledStep(&program, 4, 4);
  EXPECT_FALSE(program.ReadNew(false));
  UnrolledStep(&program, 9, 9);
  EXPECT_FALSE(program.ReadNew(false));
  UnrolledStep(&program, 5, 5);
  EXPECT_TRUE(program.ReadNew());
}

TEST(LoopFinderTest, TracesThatDifferOtherwiseAreLeftAlone) {
  Program program(4096);
  for (int i = 0; i < 12; ++i) {
    for (int round = 0; round < 3 + i; ++round) Round(&program, 40, 7);
    program.Run(1000 + i);  // Another operator each time.
    EXPECT_FALSE(program.ReadNew());
  }
  EXPECT_TRUE(program.ends().empty());
}

TEST(LoopFinderTest, KnownLoopsAreNotFoundAgain) {
  Program program(4096);
  UnrolledStep(&program, 4, 4);
  program.ReadNew();
  UnrolledStep(&program, 9, 9);
  EXPECT_TRUE(program.ReadNew());
  // Rests of several lengths.
  for (const int32_t rounds : {1, 2, 3, 1, 2, 3}) {
    UnrolledStep(&program, rounds, rounds);
    EXPECT_FALSE(program.ReadNew()) << rounds;
  }
}

TEST(LoopFinderTest, TracesThatStartOtherwiseStayWhole) {
  Program program(4096);
  for (const int rounds : {4, 9}) {
    UnrolledStep(&program, rounds, rounds);
    EXPECT_EQ(program.ReadNew(), rounds == 9);
  }
  for (int32_t op = 400; op < 420; ++op) program.Run(op);
  for (int i = 0; i < 5; ++i) Round(&program, 40, 7);
  EXPECT_TRUE(program.ends().empty());
}

TEST(LoopFinderTest, FullTracesAfterOperatorsThatAreRemembered) {
  Program program(1000);
  for (int32_t op = 0; op < 2500; ++op) program.Run(1000 + op);  // Full, without a loop.
  for (int i = 0; i < 40; ++i) Round(&program, 300, 0);
  const size_t ends = program.ends().size();
  EXPECT_GE(ends, 20U);
  program.Read();
  for (int i = 0; i < 40; ++i) Round(&program, 450, 0, /*seed=*/2);
  EXPECT_GE(program.ends().size(), ends + 20);
}

// Rests of several loops add up; they do not multiply.
TEST(LoopFinderTest, ShortLoopsShareAPiece) {
  const auto step = [](Program* program, int first, int second) {
    for (int i = 0; i < first; ++i) Round(program, 4, 0);
    for (int i = 0; i < second; ++i) Round(program, 5, 0, /*seed=*/2);
  };
  Program program(4096);
  for (const int rounds : {20, 30}) {
    step(&program, rounds, rounds);
    EXPECT_EQ(program.ReadNew(), rounds == 30);
  }
  const size_t begin = program.position();
  step(&program, 18, 10);
  // Of 72 and 50 operators; the second piece begins in the first loop.
  std::vector<size_t> expected;
  for (const size_t at : {32, 64, 97}) expected.push_back(begin + at);
  EXPECT_EQ(program.ends(), expected);
}

// Traces of `beginning` and then forty operators, of which the fifth and the ninth come nowhere else.
class Endings {
 public:
  // Whether the trace was cut before the fifth operator of its ending, or before the ninth; and nowhere else.
  struct Cuts {
    bool before_fifth = false, before_ninth = false, elsewhere = false;
  };
  Cuts Run(const std::vector<int32_t>& beginning, LoopFinder::Found expected, bool is_one_of_many = true, int64_t new_in_a_row = 0) {
    Cuts cuts;
    size_t size = 0;
    const auto run = [&](int32_t op, bool* cut) {
      if (finder_.EndsBefore(op)) {
        *cut = true;
        finder_.OnCut(Cut::kBeforeEnding, kMaxOps);
        size = 0;
      }
      ++size;
      cuts.elsewhere |= finder_.EndsAfter(op, /*live=*/100, /*in_blocks=*/false);
    };
    for (const int32_t op : beginning) run(op, &cuts.elsewhere);
    for (int i = 0; i < 40; ++i) {
      bool* const cut = i == 4 ? &cuts.before_fifth : i == 8 ? &cuts.before_ninth : &cuts.elsewhere;
      run(i == 4 ? 104 : i == 8 ? 108 : 10 + i % 3, cut);
    }
    EXPECT_EQ(finder_.OnNewTrace(size, is_one_of_many, new_in_a_row), expected);
    finder_.OnCut(Cut::kStop, kMaxOps);
    return cuts;
  }

 private:
  LoopFinder finder_;
};

const std::vector<std::vector<int32_t>> kBeginnings = {{1, 2}, {2, 1, 2, 2}, {1, 1, 1}, {3}, {2, 3, 3, 1}, {3, 1, 2}};

TEST(LoopFinderTest, TracesThatEndAlikeAreCutBeforeTheFirstOperatorThatTellsWhereThatIs) {
  Endings endings;
  for (int i = 0; i < 4; ++i) endings.Run(kBeginnings[i], LoopFinder::Found::kNothing);
  endings.Run(kBeginnings[4], LoopFinder::Found::kEnding);
  const Endings::Cuts cuts = endings.Run(kBeginnings[5], LoopFinder::Found::kNothing);
  EXPECT_TRUE(cuts.before_fifth);
  EXPECT_FALSE(cuts.before_ninth || cuts.elsewhere);
}

TEST(LoopFinderTest, TracesThatStartOtherwiseAreCutBeforeAnEndingOnceTheyAreKnownToEndSo) {
  Endings endings;
  for (int i = 0; i < 4; ++i) endings.Run(kBeginnings[i], LoopFinder::Found::kNothing);
  endings.Run(kBeginnings[4], LoopFinder::Found::kEnding);
  for (const bool known : {false, true}) {
    const Endings::Cuts cuts = endings.Run({9, 2, 1}, LoopFinder::Found::kNothing, /*is_one_of_many=*/false);
    EXPECT_EQ(cuts.before_fifth, known) << "that it ends alike, too";
    EXPECT_FALSE(cuts.before_ninth || cuts.elsewhere);
  }
}

TEST(LoopFinderTest, TracesAreCutBeforeAnEndingOnce) {
  Endings endings;
  for (int i = 0; i < 4; ++i) endings.Run(kBeginnings[i], LoopFinder::Found::kNothing);
  endings.Run(kBeginnings[4], LoopFinder::Found::kEnding);
  // The operator that tells comes before its place, too.
  const Endings::Cuts cuts = endings.Run({1, 104, 2}, LoopFinder::Found::kNothing);
  EXPECT_TRUE(cuts.elsewhere);
  EXPECT_FALSE(cuts.before_fifth || cuts.before_ninth);
}

TEST(LoopFinderTest, EndingsAreLookedForWhereTracesAreNewForLong) {
  Endings few, many;
  for (int i = 0; i < 6; ++i) few.Run(kBeginnings[i], LoopFinder::Found::kNothing, /*is_one_of_many=*/false, /*new_in_a_row=*/i);
  for (int i = 0; i < 4; ++i) many.Run(kBeginnings[i], LoopFinder::Found::kNothing, /*is_one_of_many=*/false, 12 + i);
  many.Run(kBeginnings[4], LoopFinder::Found::kEnding, /*is_one_of_many=*/false, 16);
}

TEST(LoopFinderTest, TracesThatEndInOtherWaysAreNotCut) {
  LoopFinder finder;
  std::mt19937 random(1);
  for (int trace = 0; trace < 10; ++trace) {
    for (int i = 0; i < 50; ++i) {
      const auto op = static_cast<int32_t>(random() % 20);
      EXPECT_FALSE(finder.EndsBefore(op));
      finder.EndsAfter(op, 100, /*in_blocks=*/false);
    }
    EXPECT_EQ(finder.OnNewTrace(50, /*is_one_of_many=*/true, 100), LoopFinder::Found::kNothing);
    finder.OnCut(Cut::kStop, kMaxOps);
  }
}

TEST(LoopFinderTest, BlocksEndWithARound) {
  LoopFinder finder;
  const auto run = [&](int32_t op) { return finder.EndsAfter(op, op == 0 ? 1 : 2, /*in_blocks=*/true); };
  for (const int rounds : {5, 7}) {
    for (int i = 0; i < rounds * 10; ++i) run(i % 10);
    EXPECT_EQ(finder.OnNewTrace(static_cast<size_t>(rounds) * 10, /*is_one_of_many=*/true, 0) == LoopFinder::Found::kRounds, rounds == 7);
    finder.OnCut(Cut::kStop, kMaxOps);
  }
  std::vector<int> ends;
  for (int i = 0; i < 50; ++i) {
    if (i % 7 == 0) finder.OnCut(Cut::kPiece, kMaxOps);  // Where a block ends.
    if (run(i % 10)) ends.push_back(i);
  }
  EXPECT_EQ(ends, std::vector<int>({9, 19, 29, 39, 49}));
}

}  // namespace
}  // namespace lazuli::tracer
