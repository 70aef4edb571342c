#include "runtime/program_parts.h"

#include <algorithm>

namespace lazuli::runtime {
namespace {

// A launch of a graph takes as long as several of kernels, and what is launched can start only when all of it is known: the first parts are
// small, since the GPU waits for them.
constexpr size_t kSmallestPart = 8;
constexpr size_t kPartGrowth = 2;
constexpr size_t kLargestPartShare = 8;  // One of so many.

}  // namespace

ProgramParts::ProgramParts(const ProgramSpec* spec, size_t num_ahead) {
  const size_t largest = std::max(kSmallestPart, (num_ahead + kLargestPartShare - 1) / kLargestPartShare);
  size_t enough = kSmallestPart;
  const auto add = [&](size_t first, size_t end) {
    parts_.push_back({first, end - first, std::make_unique<ProgramGraphs>(spec, first, end - first, &in_use_)});
  };
  for (size_t first = 0; first < num_ahead; enough = std::min(largest, kPartGrowth * enough)) {
    size_t end = first;
    while (end < num_ahead && (end - first < enough || num_ahead - end < kSmallestPart)) end += static_cast<size_t>(spec->steps[end].batch);
    add(first, end);
    first = end;
  }
  if (num_ahead < spec->steps.size()) add(num_ahead, spec->steps.size());
}

const ProgramParts::Part* ProgramParts::From(size_t first) const {
  const auto found = std::lower_bound(parts_.begin(), parts_.end(), first, [](const Part& part, size_t step) { return part.first < step; });
  return found != parts_.end() && found->first == first ? &*found : nullptr;
}

}  // namespace lazuli::runtime
