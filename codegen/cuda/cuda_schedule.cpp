#include "codegen/cuda/cuda_schedule.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace lazuli::codegen {
namespace {

struct Choice {
  const char* name;
  int CudaSchedule::*field;
  std::vector<int> values;  // Beside 0.
  bool reorders;            // Sums, where there are some.
};

// In the order in which they are tried: what tends to matter most first.
const std::vector<Choice>& Choices() {
  static const auto* const choices = new std::vector<Choice>{
      {"threads", &CudaSchedule::threads, {-1, 1}, true},
      {"splits", &CudaSchedule::splits, {-1, 1}, true},
      {"occupancy", &CudaSchedule::occupancy, {2, 3, 4}, false},
      {"unroll", &CudaSchedule::unroll, {-1, 1}, false},
      {"keep", &CudaSchedule::keep, {-1}, false},
      {"lanes", &CudaSchedule::lanes, {-1}, true},
  };
  return *choices;
}

}  // namespace

int NumCudaChoices() { return static_cast<int>(Choices().size()); }

std::vector<CudaSchedule> CudaVariations(const CudaSchedule& from, int choice, bool reorder) {
  const Choice& chosen = Choices()[static_cast<size_t>(choice)];
  std::vector<CudaSchedule> schedules;
  if (chosen.reorders && !reorder) return schedules;
  for (const int value : chosen.values) {
    if (from.*chosen.field == value) continue;
    schedules.push_back(from);
    schedules.back().*chosen.field = value;
  }
  return schedules;
}

std::string PrintCudaSchedule(const CudaSchedule& schedule) {
  std::vector<std::string> parts;
  for (const Choice& choice : Choices()) {
    if (schedule.*choice.field != 0) parts.push_back(absl::StrCat(choice.name, "=", schedule.*choice.field));
  }
  return parts.empty() ? "default" : absl::StrJoin(parts, " ");
}

absl::StatusOr<CudaSchedule> ParseCudaSchedule(const std::string& text) {
  CudaSchedule schedule;
  if (text == "default") return schedule;
  const std::vector<std::string> parts = absl::StrSplit(text, ' ');
  for (const std::string& part : parts) {
    const std::pair<std::string, std::string> word = absl::StrSplit(part, absl::MaxSplits('=', 1));
    const auto choice = std::find_if(Choices().begin(), Choices().end(), [&](const Choice& c) { return c.name == word.first; });
    int value = 0;
    const bool known = choice != Choices().end() && absl::SimpleAtoi(word.second, &value) &&
                       std::find(choice->values.begin(), choice->values.end(), value) != choice->values.end();
    if (!known) return absl::InvalidArgumentError(absl::StrCat("bad schedule '", text, "': '", part, "'"));
    schedule.*choice->field = value;
  }
  return schedule;
}

}  // namespace lazuli::codegen
