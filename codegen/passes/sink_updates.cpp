#include "codegen/passes/sink_updates.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lazuli::codegen {
namespace {

using runtime::Holds;
using runtime::kMostSavedBytes;
using runtime::MemorySpec;
using runtime::ProgramSpec;
using runtime::StepSpec;

// Whether it does no more than write inputs, and keeps nothing large alive for that.
bool IsSmallUpdate(const ProgramSpec& spec, const StepSpec& step) {
  if (step.overwrites == 0 || step.overwrites > kMostSavedBytes || step.batch != 1 || !runtime::IsOnGpu(spec, step)) return false;
  const auto is_input = [&](int32_t m) { return spec.memories[m].kind == MemorySpec::Kind::kInput; };
  const auto is_small = [&](int32_t m) { return is_input(m) || spec.symbols.Hint(spec.memories[m].nbytes) <= kMostSavedBytes; };
  return std::all_of(step.writes.begin(), step.writes.end(), is_input) && std::all_of(step.reads.begin(), step.reads.end(), is_small);
}

// Whether `step` can as well run after `later`.
bool CanPass(const StepSpec& step, const StepSpec& later) {
  const auto written_later = [&](int32_t m) { return Holds(later.writes, m); };
  const auto used_later = [&](int32_t m) { return Holds(later.reads, m) || Holds(later.writes, m); };
  return std::none_of(step.reads.begin(), step.reads.end(), written_later) &&
         std::none_of(step.writes.begin(), step.writes.end(), used_later);
}

}  // namespace

void SinkUpdates(ProgramSpec* spec) {
  std::vector<StepSpec>& steps = spec->steps;
  const auto is_large = [](const StepSpec& step) { return step.overwrites > kMostSavedBytes; };
  const auto large = std::find_if(steps.begin(), steps.end(), is_large);
  // Steps go to before here, where those are that have gone: all stay in order among themselves. A batch is passed as a whole.
  auto place = large == steps.end() ? large : large + large->batch;
  for (auto step = place; step != steps.begin();) {
    --step;
    const auto can_pass = [&](const StepSpec& later) { return CanPass(*step, later); };
    if (!IsSmallUpdate(*spec, *step) || !std::all_of(step + 1, place, can_pass)) continue;
    std::rotate(step, step + 1, place);
    --place;
  }
}

}  // namespace lazuli::codegen
