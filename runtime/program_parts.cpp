#include "runtime/program_parts.h"

#include <algorithm>

namespace lazuli::runtime {
namespace {

// A launch of a graph takes as long as several of kernels, and what is launched can start only when all of it is known.
constexpr size_t kMostAhead = 8;
constexpr size_t kFewestSteps = 8;

}  // namespace

ProgramParts::ProgramParts(const ProgramSpec* spec, size_t num_ahead) {
  const size_t enough = std::max(kFewestSteps, (num_ahead + kMostAhead - 1) / kMostAhead);
  for (size_t i = 0; i < spec->steps.size();) {
    const size_t end = i < num_ahead ? num_ahead : spec->steps.size();
    const size_t first = i;
    while (i < end && (i - first < enough || end - i < kFewestSteps || end > num_ahead)) i += static_cast<size_t>(spec->steps[i].batch);
    parts_.push_back({first, i - first, std::make_unique<ProgramGraphs>(spec, first, i - first)});
  }
}

const ProgramParts::Part* ProgramParts::From(size_t first) const {
  const auto found = std::lower_bound(parts_.begin(), parts_.end(), first, [](const Part& part, size_t step) { return part.first < step; });
  return found != parts_.end() && found->first == first ? &*found : nullptr;
}

void ProgramParts::SetInUse(bool in_use) {
  for (const Part& part : parts_) part.graphs->SetInUse(in_use);
}

void ProgramParts::Release() {
  for (const Part& part : parts_) part.graphs->Release();
}

}  // namespace lazuli::runtime
