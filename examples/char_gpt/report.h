// Everything char_gpt prints about its two runs: progress, losses, times and Lazuli's counters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lazuli/stats.h"
#include "options.h"
#include "train_log.h"

namespace char_gpt {

class Report {
 public:
  explicit Report(const Options& options) : options_(options) {}

  // Throws UserError when the mode is on before the program turns it on: there would be no eager run to compare with.
  static void CheckModeIsOff();

  // A progress line for the run called `name`. Use one of the two as a run's step hook.
  StepHook EagerProgress();
  // The same, and keeps the counters of each step.
  StepHook LazuliProgress();

  // Prints losses, times and counters. Returns the exit status: 1, with a message, when the losses of the two runs differ.
  int Compare(const TrainLog& eager, const TrainLog& lazuli) const;

  void PrintSample(const std::string& text) const;

 private:
  void Progress(const char* name, int64_t step, double loss);
  void PrintLosses(const TrainLog& eager, const TrainLog& lazuli) const;
  void PrintTimes(const TrainLog& eager, const TrainLog& lazuli) const;
  void PrintCounters() const;
  void PrintCompiles() const;
  // Steps that are left out of the median times, and may compile.
  size_t warm_up() const;

  Options options_;
  lazuli::Stats before_;                 // When the Lazuli run began.
  std::vector<lazuli::Stats> per_step_;  // After each of its steps.
};

}  // namespace char_gpt
