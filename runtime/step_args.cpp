#include "runtime/step_args.h"

#include <algorithm>
#include <utility>

namespace lazuli::runtime {

void StepArgs::Add(const KernelLaunch& launch) {
  for (const KernelLaunch::Buffer& buffer : launch.buffers) {
    if (buffer.memory >= 0) AddUnique(&memories, buffer.memory);
    if (buffer.offset_slot >= 0) AddUnique(&offsets, buffer.offset_slot);
  }
  for (const int32_t slot : launch.scalar_slots) AddUnique(&scalars, slot);
}

void StepArgs::Add(const AtenCall& call) {
  const auto add = [this](const WindowSpec& window) {
    if (window.memory >= 0) AddUnique(&memories, window.memory);
    if (window.offset_slot >= 0) AddUnique(&offsets, window.offset_slot);
  };
  for (const CallArg& arg : call.args) {
    if (arg.slot >= 0) AddUnique(&scalars, arg.slot);
    std::for_each(arg.windows.begin(), arg.windows.end(), add);
  }
  std::for_each(call.results.begin(), call.results.end(), add);
}

StepNeeds::StepNeeds(const ProgramSpec& spec, const StepSpec& step) {
  StepArgs args;
  if (const auto* launch = std::get_if<KernelLaunch>(&step.work)) {
    args.Add(*launch);
    for (const KernelLaunch::Check& check : launch->checks) args.Add(check.call);
  } else {
    args.Add(std::get<AtenCall>(step.work));
  }
  for (const int32_t m : args.memories) {
    const MemorySpec& memory = spec.memories[m];
    if (memory.kind == MemorySpec::Kind::kInput) AddUnique(&storages, memory.storage);
  }
  scalars = std::move(args.scalars);
  for (const int32_t slot : args.offsets) {
    int32_t recorded = slot;
    while (recorded >= spec.num_offsets) recorded = spec.offset_sums[static_cast<size_t>(recorded - spec.num_offsets)].slot;
    if (recorded >= 0) AddUnique(&offsets, recorded);
  }
}

int32_t StepNeeds::KnownAt(const ProgramSpec& spec) const {
  int32_t at = 0;
  for (const int32_t storage : storages) at = std::max(at, AtOf(spec.known_at.storages, storage));
  for (const int32_t slot : scalars) at = std::max(at, AtOf(spec.known_at.scalars, slot));
  for (const int32_t slot : offsets) at = std::max(at, AtOf(spec.known_at.offsets, slot));
  return at;
}

}  // namespace lazuli::runtime
