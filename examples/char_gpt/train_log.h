// What a training run leaves behind for the report.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace char_gpt {

struct TrainLog {
  std::vector<double> losses;   // One per step.
  std::vector<double> step_ms;  // Wall time of each step, its loss in hand.
};

// Called after each step (from 1) with its loss.
using StepHook = std::function<void(int64_t step, double loss)>;

}  // namespace char_gpt
