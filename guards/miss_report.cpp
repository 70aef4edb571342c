#include "guards/miss_report.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "guards/guard.h"

namespace lazuli::guards {
namespace {

struct Failure {
  size_t variant;
  int32_t op, arg;  // How far the trace followed the variant.
  std::string text;
};

// Follows the trace furthest first: that variant explains the miss best.
std::vector<Failure> RankedFailures(const std::vector<CachedTracePtr>& variants, const codegen::TraceLog& log) {
  std::vector<Failure> failures;
  for (size_t v = 0; v < variants.size(); ++v) {
    if (variants[v] == nullptr) continue;
    const CachedTrace& variant = *variants[v];
    const DynamicShapes* shapes =
        variant.log.code == log.code && variant.skeleton != nullptr ? variant.skeleton->ShapesOf(variant.body.get()) : nullptr;
    if (shapes != nullptr) {
      failures.push_back({v, std::numeric_limits<int32_t>::max(), 0, shapes->Mismatch(log)});
    } else if (const auto guard = FirstFailure(variant.log, log)) {
      failures.push_back({v, guard->op, guard->arg, guard->Describe(variant.log, log)});
    }
  }
  std::stable_sort(failures.begin(), failures.end(),
                   [](const Failure& a, const Failure& b) { return std::make_pair(a.op, a.arg) > std::make_pair(b.op, b.arg); });
  return failures;
}

}  // namespace

std::string DescribeRecompile(const Site& site, const std::vector<CachedTracePtr>& variants, const codegen::TraceLog& log, int64_t serial,
                              int64_t limit, std::string_view location, bool verbose) {
  std::string text = absl::StrCat("Recompiling trace #", serial, " (site ", site.id, ", ", log.ops.size(), " ops, variant ",
                                  site.programs + 1, "/", limit, ")", location.empty() ? "" : absl::StrCat(" at ", std::string(location)),
                                  "\n    triggered by the following guard failure(s):");
  for (const Failure& failure : RankedFailures(variants, log)) {
    absl::StrAppend(&text, "\n    - ", site.id, "/", failure.variant, ": ", failure.text);
    if (!verbose) break;
  }
  return text;
}

}  // namespace lazuli::guards
