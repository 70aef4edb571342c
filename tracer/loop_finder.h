// Where to cut a program that goes round without ever reading a result: a trainer that prints its loss every hundred steps, a simulator.
// Cut wherever a trace is full, each trace would start at another place of the loop than the last, and nothing would come back for long.
// Cut once a round, at the place where the least is alive, every trace is the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lazuli::tracer {

class LoopFinder {
 public:
  // The next operator of the program, and the bytes of results that were alive before it. True when the trace should end after it.
  bool EndsAfter(int32_t op_id, int64_t live) {
    ops_.push_back(op_id);
    live_.push_back(live);
    return !loops_.empty() && AtEnd();
  }

  // The trace was cut because it was full. Looks for a loop in what the program did so far.
  void OnFullTrace();

  // A trace was cut, for any reason.
  void OnCut();

 private:
  struct Loop {
    std::vector<int32_t> end;  // The last operators of a round, the last one first: as many as it takes to occur once a round.
    size_t rounds = 1;         // In one trace.
    size_t passed = 0;         // In the current one.
  };

  bool AtEnd();
  // The length of a round, where the last operators, and at least two rounds of them, repeat themselves; 0: they do not.
  size_t Period() const;
  std::vector<int32_t> EndOfRound(size_t period) const;

  std::vector<int32_t> ops_;
  std::vector<int64_t> live_;  // Before each of them.
  std::vector<Loop> loops_;
  bool seen_full_trace_ = false;
};

}  // namespace lazuli::tracer
