// What is known of all traces with one code: the numbers they came with, and the programs with symbols that serve them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "codegen/ir/trace_log.h"
#include "guards/eager_trial.h"
#include "guards/graph_trial.h"
#include "guards/hot_sizes.h"
#include "guards/shape_plan.h"
#include "guards/shape_policy.h"
#include "guards/shape_profile.h"
#include "guards/steady_args.h"
#include "guards/successors.h"
#include "runtime/compile_pool.h"
#include "runtime/program.h"

namespace lazuli::guards {

// What is known of the head starts of a program's traces (tracer/head_start.h).
struct HeadStartHistory {
  std::atomic<int> long_rounds{0};      // In a row, so often launching, or waiting, took long after what took long to record.
  std::atomic<bool> host_bound{false};  // Recording and launching, one after the other, may take longer than the GPU.
  std::atomic<bool> hides_much{false};  // The GPU takes so long that a head start hides much of the recording.
  std::atomic<bool> gpu_bound{false};   // It takes longer than recording and launching, step by step: graphs of parts would not help.
  std::atomic<int> interruptions{0};    // Of its recording, to run what can run; 0: it gets no head start.
  std::atomic<int> in_vain{0};          // Head starts that were taken back, weighed.
  // Some steps would have been captured as CUDA graphs on the thread that records: those of the next head start run there.
  std::atomic<bool> would_capture{false};
  SteadyArgs steady;  // Guarded by the program's run_mutex.
};

// A program and what it was compiled for. Shared by all traces that it serves.
struct CompiledProgram {
  enum class State : uint8_t {
    kSeen,       // Seen once: to be compiled in the background if it comes again, since many traces never do.
    kCompiling,  // In the background. Until then its traces are replayed.
    kReady,
    kFailed,  // To compile with symbols: each of its traces gets a program of its own.
  };
  explicit CompiledProgram(int64_t trace_serial) : serial(trace_serial) {}

  std::atomic<State> state{State::kSeen};
  std::atomic<bool> wanted{true};  // False once the cache has forgotten its trace.
  const int64_t serial;            // Of the trace that it is compiled for.
  runtime::CompileDemand demand;
  // What follows belongs to the compiler until `state` is one of the last two.
  std::unique_ptr<runtime::Program> program;
  bool compiled = false;  // False: `program` replays the trace, because compiling it failed.
  std::mutex run_mutex;   // Programs keep buffers, so one run at a time.

  // How to follow its traces while they are recorded; null without symbols, and until that is worked out.
  std::shared_ptr<const ShapePlan> plan() const { return std::atomic_load(&plan_); }
  void SetPlan(std::shared_ptr<const ShapePlan> plan) { std::atomic_store(&plan_, std::move(plan)); }

  Successors successors;  // Traces that followed any of its traces. Guarded by the cache's lock.
  HotSizes hot_sizes;     // Of a program with symbols.
  EagerTrial trial;       // Against its operators.
  HeadStartHistory head_start;
  GraphTrial graph_trial;

  bool ready() const { return state.load(std::memory_order_acquire) == State::kReady; }
  bool seen_once() const { return state.load(std::memory_order_relaxed) == State::kSeen; }
  bool failed() const { return state.load(std::memory_order_acquire) == State::kFailed; }

  // Makes the program of what an earlier process left on disk, if that is all it takes: once, on the thread that asks first, while others
  // wait. Whether it did.
  bool MakeFromDisk() {
    std::call_once(disk_once_, [this] {
      made_from_disk_ = from_disk != nullptr && from_disk();
      from_disk = nullptr;
    });
    return made_from_disk_;
  }
  std::function<bool()> from_disk;  // Set before the program is asked for; null: there is nothing on disk.

 private:
  std::shared_ptr<const ShapePlan> plan_;
  std::once_flag disk_once_;
  bool made_from_disk_ = false;
};

struct Site;
using SitePtr = std::shared_ptr<Site>;

struct Skeleton {
  struct DynamicProgram {
    DynamicShapes shapes;
    std::shared_ptr<CompiledProgram> program;
    SitePtr site;  // Where it was compiled.
  };

  std::vector<codegen::Word> code;
  std::shared_ptr<ShapeProfile> profile;
  // The numbers of traces that had programs compiled, the latest last; bounded.
  std::vector<std::vector<int64_t>> examples;
  std::vector<DynamicProgram> dynamic;            // The latest last.
  std::vector<codegen::SizeMark> static_marks;    // Of all of them.
  int64_t traces = 0;                             // Cached ones with this code.
  std::deque<std::weak_ptr<CachedTrace>> served;  // Traces of programs with symbols, the latest last.

  // What `program` was compiled for; null when it has no symbols.
  const DynamicShapes* ShapesOf(const CompiledProgram* program) const {
    for (const DynamicProgram& entry : dynamic) {
      if (entry.program.get() == program) return &entry.shapes;
    }
    return nullptr;
  }

  // Adds sizes that are marked as static to `static_marks`, and all of these to `marks`: what is said of one trace holds for the next.
  void ShareStaticMarks(std::vector<codegen::SizeMark>* marks) {
    for (const codegen::SizeMark& mark : *marks) {
      const auto same = [&](const codegen::SizeMark& other) { return other.position == mark.position; };
      if (!mark.dynamic && std::none_of(static_marks.begin(), static_marks.end(), same)) static_marks.push_back(mark);
    }
    marks->insert(marks->end(), static_marks.begin(), static_marks.end());
  }

  static constexpr size_t kMaxExamples = 6;
  static constexpr size_t kMaxServed = 128;
  void AddExample(std::vector<int64_t> numbers) {
    if (examples.size() == kMaxExamples) examples.erase(examples.begin());
    examples.push_back(std::move(numbers));
  }
};

}  // namespace lazuli::guards
