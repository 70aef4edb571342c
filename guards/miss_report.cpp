#include "guards/miss_report.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "guards/guard.h"

namespace lazuli::guards {
namespace {

struct Failure {
  size_t variant;
  CachedTracePtr trace;  // The variant itself.
  bool same_code;        // Only its numbers differ.
  Guard guard;
  std::string text;
};

// Follows the trace furthest first: that variant explains the miss best.
std::vector<Failure> RankedFailures(const Site& site, const codegen::TraceLog& log) {
  std::vector<Failure> failures;
  for (size_t v = 0; v < site.variants.size(); ++v) {
    const CachedTracePtr trace = site.variants[v].lock();
    if (trace == nullptr) continue;
    const CachedTrace& variant = *trace;
    const DynamicShapes* shapes =
        variant.log.code == log.code && variant.skeleton != nullptr ? variant.skeleton->ShapesOf(variant.body.get()) : nullptr;
    if (shapes != nullptr) {
      Guard guard;
      std::string text = shapes->Mismatch(log, &guard);
      failures.push_back({v, trace, true, guard, std::move(text)});
    } else if (const auto guard = FirstFailure(variant.log, log)) {
      failures.push_back({v, trace, false, *guard, guard->Describe(variant.log, log)});
    }
  }
  const auto rank = [](const Failure& failure) { return std::make_tuple(failure.same_code, failure.guard.op, failure.guard.arg); };
  std::stable_sort(failures.begin(), failures.end(), [&](const Failure& a, const Failure& b) { return rank(a) > rank(b); });
  return failures;
}

// `text` between `after` and `before`, or to its end.
std::string Between(const std::string& text, const std::string& after, const std::string& before) {
  const size_t begin = text.find(after);
  if (begin == std::string::npos) return "";
  const size_t end = before.empty() ? std::string::npos : text.find(before, begin + after.size());
  return text.substr(begin + after.size(), end == std::string::npos ? end : end - begin - after.size());
}

}  // namespace

runtime::RecompileReason NearestFailure(const Site& site, const codegen::TraceLog& log) {
  const auto failures = RankedFailures(site, log);
  runtime::RecompileReason reason;
  if (failures.empty()) return reason;
  const Guard& guard = failures[0].guard;
  const codegen::TraceLog& expected = failures[0].trace->log;
  const bool in_trace = static_cast<size_t>(guard.op) < expected.ops.size();
  reason.op = guard.op;
  if (in_trace) reason.op_name = codegen::OpInfoById(expected.ops[static_cast<size_t>(guard.op)].op_id).name;
  reason.text = failures[0].text;
  const std::string clause = guard.Text(expected);
  reason.argument = clause.substr(0, clause.find(" == "));
  reason.expected = Between(reason.text, ". expected ", ", actual ");
  reason.actual = Between(reason.text, ", actual ", "");
  return reason;
}

std::string FirstOps(const codegen::TraceLog& log) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, log.ops.size()); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", codegen::OpInfoById(log.ops[i].op_id).name);
  }
  return log.ops.size() > kShown ? text + ", ..." : text;
}

std::string DescribeMiss(const Site& site, const codegen::TraceLog& log, int64_t serial, int64_t limit, std::string_view location,
                         bool verbose) {
  std::string text = absl::StrCat("trace #", serial, " (site ", site.id, ", ", log.ops.size(), " ops, variant ", site.programs + 1, "/",
                                  limit, ")", location.empty() ? "" : absl::StrCat(" at ", std::string(location)));
  const auto failures = RankedFailures(site, log);
  if (failures.empty()) {
    return absl::StrCat(text, "\n    the site has no program yet: after ", site.cause, ", starts with ", FirstOps(log));
  }
  text += "\n    triggered by the following guard failure(s):";
  for (const Failure& failure : failures) {
    absl::StrAppend(&text, "\n    - ", site.id, "/", failure.variant, ": ", failure.text);
    if (!verbose) break;
  }
  return text;
}

}  // namespace lazuli::guards
