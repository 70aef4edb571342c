// What a step of a program takes from the run: memories, numbers and offsets.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/executor.h"

namespace lazuli::runtime {

// Each once.
struct StepArgs {
  std::vector<int32_t> memories;
  std::vector<int32_t> scalars;
  std::vector<int32_t> offsets;  // Those that OffsetSums compute, too.

  void Add(const KernelLaunch& launch);
  void Add(const AtenCall& call);
};

// Of one of KnownAt's lists; 0 where it is not in there.
inline int32_t AtOf(const std::vector<int32_t>& list, int32_t number) {
  return static_cast<size_t>(number) < list.size() ? list[static_cast<size_t>(number)] : 0;
}

// What a step takes of the trace, so that it cannot run before that is known.
struct StepNeeds {
  // By the trace's numbers: inputs, numbers and offsets.
  std::vector<int32_t> storages;
  std::vector<int32_t> scalars;
  std::vector<int32_t> offsets;

  StepNeeds(const ProgramSpec& spec, const StepSpec& step);
  // So many of the trace's first operators mention all of it.
  int32_t KnownAt(const ProgramSpec& spec) const;
};

}  // namespace lazuli::runtime
