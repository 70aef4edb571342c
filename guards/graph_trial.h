// Modes with CUDA graphs: whether a program's loop is faster when it is launched as a graph, once its trace is complete, or step by step
// while the trace is still recorded (tracer/head_start.h). Each hides what the other does not: a graph the launches, a head start the
// recording. Which is more depends on the program and the machine, so it is timed, once.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace lazuli::guards {

// Of one program. Thread-safe.
class GraphTrial {
 public:
  enum class Way : uint8_t { kGraph, kAhead };

  // Occurrences before the trial starts, all in the way that is likelier to be faster; how many in a row run the same way in it, of which
  // the first few pay for the change (a graph is captured); how often each way has its turn.
  static constexpr int kWarmUp = 16;
  static constexpr int kBlock = 6;
  static constexpr int kSkipped = 2;
  static constexpr int kTurns = 3;
  // A head start has to be faster by this factor: graphs are what the mode asks for.
  static constexpr double kMargin = 1.03;
  // Where all occurrences of one way took so many times as long as any of the other's, the next turns can say nothing else.
  static constexpr double kClear = 1.15;

  struct Choice {
    Way way = Way::kGraph;
    bool decided_now = false;  // The trial ended with this occurrence.
  };
  // An occurrence begins that may have a head start, at `now` in nanoseconds. An occurrence takes until the next one begins: what it
  // leaves to the GPU is somewhere in there. `likelier`: the way that is likelier to be faster, by what is known before the trial.
  Choice OnBegin(int64_t now, Way likelier);

  // Medians of the finished trial.
  int64_t graph_nanoseconds() const { return medians_[0]; }
  int64_t ahead_nanoseconds() const { return medians_[1]; }

 private:
  bool IsClear() const;
  static Way WayOf(int place) { return place / kBlock % 2 == 0 ? Way::kGraph : Way::kAhead; }

  std::mutex mutex_;
  int occurrences_ = 0;
  int64_t last_begin_ = 0;
  std::vector<int64_t> samples_[2];  // By way.
  int64_t medians_[2] = {0, 0};
  bool decided_ = false;
  Way chosen_ = Way::kGraph;
};

}  // namespace lazuli::guards
