// LAZULI_VERIFY: runs of programs compared with their operators run one by one.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <vector>

#include "guards/program_cache.h"
#include "runtime/program.h"

namespace lazuli::tracer {

// One run of `entry`'s program: made before the run, asked after it. Does nothing for a program that was verified as often as the option
// says. Works on copies: what the program computes, and the state of random generators, are as without it.
class Verification {
 public:
  Verification(const guards::CachedTrace& entry, const runtime::RunArgs& args);
  // Replays the trace and compares what `args` holds now with it. A difference is logged, counted and dumped; it throws nothing.
  void Check(const runtime::RunArgs& args, const runtime::RunResult& result);
  // Whether there will be something to compare: the run must keep its inputs.
  bool active() const { return active_; }

 private:
  void Compare(const runtime::RunArgs& args, const runtime::RunResult& result);

  const guards::CachedTrace& entry_;
  bool active_ = false;
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> inputs_;  // By storage: the inputs as the run finds them.
};

// Counts from the start again, as after reset().
void ForgetVerified();

}  // namespace lazuli::tracer
