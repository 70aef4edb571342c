#include "guards/graph_trial.h"

#include <gtest/gtest.h>

#include <vector>

namespace lazuli::guards {
namespace {

using GraphWay = GraphTrial::Way;

struct Outcome {
  std::vector<GraphWay> ways;
  GraphWay chosen = GraphWay::kGraph;
  int decided = -1;  // At this occurrence.
};

// A loop whose rounds take so long, by how they run; the first after a change takes ten times as long.
Outcome RunLoop(GraphTrial* trial, int64_t graph, int64_t ahead, GraphWay likelier = GraphWay::kGraph) {
  Outcome outcome;
  int64_t now = 1000;
  GraphWay last = GraphWay::kGraph;
  for (int i = 0; i < 200; ++i) {
    const GraphTrial::Choice choice = trial->OnBegin(now, likelier);
    outcome.ways.push_back(choice.way);
    if (choice.decided_now) {
      EXPECT_EQ(outcome.decided, -1) << "it ends once";
      outcome.decided = i;
    }
    now += (choice.way == GraphWay::kGraph ? graph : ahead) * (choice.way == last ? 1 : 10);
    last = choice.way;
  }
  outcome.chosen = outcome.ways.back();
  return outcome;
}

TEST(GraphTrialTest, TheFasterWayIsKept) {
  GraphTrial trial;
  const Outcome outcome = RunLoop(&trial, 21'000, 19'000);
  EXPECT_EQ(outcome.chosen, GraphWay::kAhead);
  EXPECT_EQ(outcome.decided, GraphTrial::kWarmUp + 2 * GraphTrial::kTurns * GraphTrial::kBlock);
  EXPECT_EQ(trial.graph_nanoseconds(), 21'000);
  EXPECT_EQ(trial.ahead_nanoseconds(), 19'000);
  for (int i = 0; i < outcome.decided; ++i) {
    const int place = i - GraphTrial::kWarmUp;
    EXPECT_EQ(outcome.ways[static_cast<size_t>(i)], place >= 0 && place / GraphTrial::kBlock % 2 == 1 ? GraphWay::kAhead : GraphWay::kGraph)
        << i;
  }
  for (size_t i = static_cast<size_t>(outcome.decided); i < outcome.ways.size(); ++i) EXPECT_EQ(outcome.ways[i], GraphWay::kAhead);
}

TEST(GraphTrialTest, OneTurnEachIsEnoughWhereItIsClear) {
  for (const bool ahead_is_faster : {false, true}) {
    GraphTrial trial;
    const Outcome outcome = ahead_is_faster ? RunLoop(&trial, 23'000, 19'000) : RunLoop(&trial, 19'000, 23'000);
    EXPECT_EQ(outcome.chosen, ahead_is_faster ? GraphWay::kAhead : GraphWay::kGraph);
    EXPECT_EQ(outcome.decided, GraphTrial::kWarmUp + 2 * GraphTrial::kBlock);
  }
}

TEST(GraphTrialTest, TheLikelierWayComesBeforeTheTrialWhichMayFindOtherwise) {
  for (const int64_t ahead : {19'000, 27'000}) {
    GraphTrial trial;
    const Outcome outcome = RunLoop(&trial, 23'000, ahead, GraphWay::kAhead);
    for (size_t i = 0; i < GraphTrial::kWarmUp; ++i) EXPECT_EQ(outcome.ways[i], GraphWay::kAhead) << i;
    EXPECT_EQ(outcome.chosen, ahead < 23'000 ? GraphWay::kAhead : GraphWay::kGraph) << ahead;
  }
}

TEST(GraphTrialTest, GraphsStayWhereAHeadStartIsNotClearlyFaster) {
  for (const int64_t ahead : {30'000, 20'000, 19'800}) {
    GraphTrial trial;
    EXPECT_EQ(RunLoop(&trial, 20'000, ahead).chosen, GraphWay::kGraph) << ahead;
  }
}

}  // namespace
}  // namespace lazuli::guards
