#include "guards/miss_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "guards/guard.h"

namespace lazuli::guards {
namespace {

struct Failure {
  size_t variant;
  Guard guard;
};

// Follows the trace furthest first: that variant explains the miss best.
std::vector<Failure> RankedFailures(const std::vector<CachedTracePtr>& variants, const codegen::TraceLog& log) {
  std::vector<Failure> failures;
  for (size_t v = 0; v < variants.size(); ++v) {
    if (variants[v] == nullptr) continue;
    if (const auto guard = FirstFailure(variants[v]->log, log)) failures.push_back({v, *guard});
  }
  std::stable_sort(failures.begin(), failures.end(), [](const Failure& a, const Failure& b) {
    return std::make_pair(a.guard.op, a.guard.arg) > std::make_pair(b.guard.op, b.guard.arg);
  });
  return failures;
}

}  // namespace

std::string DescribeRecompile(const Site& site, const std::vector<CachedTracePtr>& variants, const codegen::TraceLog& log, int64_t serial,
                              int64_t limit, std::string_view location, bool verbose) {
  std::string text = absl::StrCat("Recompiling trace #", serial, " (site ", site.id, ", ", log.ops.size(), " ops, variant ",
                                  site.programs + 1, "/", limit, ")", location.empty() ? "" : absl::StrCat(" at ", std::string(location)),
                                  "\n    triggered by the following guard failure(s):");
  for (const Failure& failure : RankedFailures(variants, log)) {
    absl::StrAppend(&text, "\n    - ", site.id, "/", failure.variant, ": ", failure.guard.Describe(variants[failure.variant]->log, log));
    if (!verbose) break;
  }
  return text;
}

}  // namespace lazuli::guards
