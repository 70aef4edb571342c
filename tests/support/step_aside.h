// Programs that are found slower than eager, in tests.
#pragma once

#include <gtest/gtest.h>
#include <lazuli/lazuli.h>

#include <cstdint>

#include "guards/eager_trial.h"

namespace lazuli::testing {

// Occurrences of a trace that are long enough for its trial, whatever the machine does meanwhile.
constexpr int64_t kLongTrial = guards::EagerTrial::kWarmUp + 64 * guards::EagerTrial::kBlock;

// Runs `round(i)` until a program has stepped aside. A trial goes by the clock: where others use the machine meanwhile it may find the
// program no slower, so it is repeated then, from a cold start.
template <class Round>
void RunUntilAside(const Round& round) {
  constexpr int kTrials = 8;
  for (int trial = 0; trial < kTrials && lazuli::stats().programs_stepped_aside == 0; ++trial) {
    lazuli::reset();
    for (int64_t i = 0; i < kLongTrial; ++i) ASSERT_NO_FATAL_FAILURE(round(i));
  }
  ASSERT_GE(lazuli::stats().programs_stepped_aside, 1);
}

}  // namespace lazuli::testing
