// What the program asks of what it records from here on: StanceGuard, set_stance() and FullGraph.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <string_view>

#include "runtime/options.h"

namespace lazuli::tracer {

// Of one recorder, so that it counts for backward threads too, which record into the recorder of the thread that started them. Any thread
// may read it.
class Scopes {
 public:
  using GivenStance = std::optional<runtime::Stance>;  // Nothing: that of the options counts.

  runtime::Stance stance() const { return stance_.load().value_or(runtime::Active().stance); }
  // Returns what was given before.
  GivenStance GiveStance(GivenStance stance) { return stance_.exchange(stance); }

  bool InFullGraph() const { return full_graphs_.load() > 0 || runtime::Active().fullgraph; }
  void EnterFullGraph() { ++full_graphs_; }
  void LeaveFullGraph() { --full_graphs_; }

  // The thread is gone.
  void Reset() {
    stance_ = GivenStance();
    full_graphs_ = 0;
  }

 private:
  std::atomic<GivenStance> stance_{GivenStance()};
  std::atomic<int> full_graphs_{0};
};

// The error of a cut for `cause` in a full graph, with the place in the program that this thread is at. `num_ops` are pending.
[[noreturn]] void ThrowGraphBreak(std::string_view cause, size_t num_ops);

}  // namespace lazuli::tracer
