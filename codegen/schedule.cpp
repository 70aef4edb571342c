#include "codegen/schedule.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "codegen/trial_operands.h"

namespace lazuli::codegen {
namespace {

constexpr int kMaxUnroll = 8;

struct Field {
  const char* name;
  int Schedule::*member;
  int low, high;  // Of its values.
};

constexpr Field kFields[] = {
    {"unroll", &Schedule::unroll, 0, kMaxUnroll}, {"narrow", &Schedule::narrow, 0, 1}, {"prefetch", &Schedule::prefetch, 0, 1},
    {"stream", &Schedule::stream, 0, 1},          {"grain", &Schedule::grain, -1, 1},
};

bool Any(const std::vector<bool>& flags) { return std::find(flags.begin(), flags.end(), true) != flags.end(); }

// The values of `knob`'s field, other than those that come to the cost model's choice.
std::vector<int> ValuesOf(const LoopPlan& plan, const IsaInfo& isa, int threads, Knob knob) {
  // Lanes and vectors of a reduced loop have sums of their own, and the number of splits follows from the others.
  const bool free_width = plan.kernel.num_reduced == 0 && !plan.IsTiled();
  switch (knob) {
    case Knob::kUnroll: {
      std::vector<int> values;
      for (int unroll = 1; free_width && unroll <= kMaxUnroll && plan.lanes * unroll <= plan.SizeHint(plan.vector_dim); unroll *= 2) {
        if (unroll != plan.unroll) values.push_back(unroll);
      }
      return values;
    }
    case Knob::kWidth:  // Functions may round otherwise in other widths.
      return free_width && isa.vector_bytes == 64 && IsBitExact(plan.kernel) ? std::vector<int>{1} : std::vector<int>();
    case Knob::kPrefetch:
      return Any(plan.prefetched) ? std::vector<int>{0} : std::vector<int>();
    case Knob::kStream:
      return Any(plan.streams) ? std::vector<int>{0} : std::vector<int>();
    case Knob::kGrain:
      return threads > 1 && plan.UnitsHint() * plan.num_splits > 1 ? std::vector<int>{-1, 1} : std::vector<int>();
  }
  return {};
}

}  // namespace

std::vector<Schedule> Variations(const LoopPlan& plan, const IsaInfo& isa, int threads, const Schedule& from, Knob knob) {
  std::vector<Schedule> schedules;
  if (!MayRunOnTrialOperands(plan.kernel)) return schedules;
  for (const int value : ValuesOf(plan, isa, threads, knob)) {
    Schedule schedule = from;
    schedule.*kFields[static_cast<size_t>(knob)].member = value;
    if (!(schedule == from)) schedules.push_back(schedule);
  }
  return schedules;
}

std::string PrintSchedule(const Schedule& schedule) {
  const Schedule by_default;
  std::vector<std::string> parts;
  for (const Field& field : kFields) {
    if (schedule.*field.member != by_default.*field.member) parts.push_back(absl::StrCat(field.name, "=", schedule.*field.member));
  }
  return parts.empty() ? "default" : absl::StrJoin(parts, " ");
}

absl::StatusOr<Schedule> ParseSchedule(const std::string& text) {
  Schedule schedule;
  if (text == "default") return schedule;
  const std::vector<std::string> parts = absl::StrSplit(text, ' ');
  for (const std::string& part : parts) {
    const std::pair<std::string, std::string> word = absl::StrSplit(part, absl::MaxSplits('=', 1));
    const auto* field = std::find_if(std::begin(kFields), std::end(kFields), [&](const Field& f) { return f.name == word.first; });
    int value = 0;
    if (field == std::end(kFields) || !absl::SimpleAtoi(word.second, &value) || value < field->low || value > field->high) {
      return absl::InvalidArgumentError(absl::StrCat("bad schedule '", text, "': '", part, "'"));
    }
    schedule.*field->member = value;
  }
  if ((schedule.unroll & (schedule.unroll - 1)) != 0) return absl::InvalidArgumentError("bad schedule: unroll is no power of two");
  return schedule;
}

}  // namespace lazuli::codegen
