#include "codegen/race.h"

#include <vector>

#include "runtime/median.h"

namespace lazuli::codegen {
namespace {

constexpr int kMaxTurns = 15;
constexpr double kGain = 0.97;  // What is the faster takes less than this much of the other's time,
constexpr double kWins = 0.8;   // in this share of turns.

}  // namespace

RaceResult Race(const std::function<double()>& ours, const std::function<double()>& theirs, const std::function<bool()>& has_time) {
  std::vector<double> mine, others;
  int wins = 0;
  for (int turn = 0; turn < kMaxTurns && (turn < kMinTurns || has_time()); ++turn) {
    others.push_back(theirs());
    mine.push_back(ours());
    wins += mine.back() < others.back() ? 1 : 0;
  }
  RaceResult result{runtime::Median(mine), runtime::Median(others)};
  result.faster = result.ours < kGain * result.theirs && wins >= kWins * static_cast<double>(mine.size());
  return result;
}

}  // namespace lazuli::codegen
