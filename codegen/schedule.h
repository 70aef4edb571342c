// What may be chosen of a kernel's loops without changing a bit of its results: the order of sums, and how functions are computed, depend
// on none of it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "codegen/emit_llvm_plan.h"

namespace lazuli::codegen {

enum class Knob : uint8_t { kUnroll, kWidth, kPrefetch, kStream, kGrain };
constexpr Knob kAllKnobs[] = {Knob::kUnroll, Knob::kWidth, Knob::kPrefetch, Knob::kStream, Knob::kGrain};

// The schedules that differ from `from` by `knob` alone, and make a difference to a kernel that the cost model plans as `plan`, run on
// `threads` threads. None for a kernel with gathers, scatters or checks.
std::vector<Schedule> Variations(const LoopPlan& plan, const IsaInfo& isa, int threads, const Schedule& from, Knob knob);

// "default", or what differs from it: "unroll=4 prefetch=0".
std::string PrintSchedule(const Schedule& schedule);
absl::StatusOr<Schedule> ParseSchedule(const std::string& text);

}  // namespace lazuli::codegen
