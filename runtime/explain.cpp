// The words of lazuli::explain().

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/counters.h"
#include "runtime/history.h"
#include "runtime/options.h"

namespace lazuli::runtime {
namespace {

constexpr size_t kMaxNames = 12;
// A difference that took this many values is a pattern.
constexpr size_t kManyValues = 3;
// Where traces have fewer operators than this on average, cuts cost more than they must.
constexpr int64_t kShortTrace = 64;

std::string Plural(int64_t count, const char* noun) { return absl::StrCat(count, " ", noun, count == 1 ? "" : "s"); }

std::string Milliseconds(int64_t ns) { return absl::StrFormat("%.1f ms", static_cast<double>(ns) / 1e6); }

// The most frequent first.
std::vector<std::pair<std::string, int64_t>> Ranked(const std::map<std::string, int64_t>& counts) {
  std::vector<std::pair<std::string, int64_t>> ranked(counts.begin(), counts.end());
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return ranked;
}

// "title: a 5, b 2, and 3 more"; empty without counts.
std::string CountsText(const char* title, const std::map<std::string, int64_t>& counts) {
  if (counts.empty()) return "";
  std::string text = absl::StrCat(title, ":");
  const auto ranked = Ranked(counts);
  for (size_t i = 0; i < std::min(kMaxNames, ranked.size()); ++i) {
    absl::StrAppend(&text, i == 0 ? " " : ", ", ranked[i].first, " ", ranked[i].second);
  }
  if (ranked.size() > kMaxNames) absl::StrAppend(&text, ", and ", ranked.size() - kMaxNames, " more");
  return text + "\n";
}

std::string HeadText(const Stats& stats) {
  std::string text = absl::StrCat(Plural(stats.traces, "trace"), " of ", Plural(stats.ops_recorded, "op"), "; ",
                                  Plural(stats.programs_compiled, "program"), ", ", Plural(stats.recompiles, "recompile"));
  if (stats.traces > 0) {
    absl::StrAppendFormat(&text, "; %.1f %% of traces found their program", 100.0 * static_cast<double>(stats.cache_hits) / stats.traces);
  }
  return text + "\n";
}

// What a program can do about an argument that kept differing.
std::string Advice(const std::string& argument) {
  if (absl::StartsWith(argument, "size of ")) {
    return Active().dynamic == When::kNever ? "LAZULI_DYNAMIC=auto compiles one program for all of them"
                                            : "it takes 0 or 1, which are specialised, or keeps pace with another by accident";
  }
  if (absl::StartsWith(argument, "stride of ")) return "bring it to one layout first (contiguous())";
  if (absl::StartsWith(argument, "visible storages")) return "keep the same results alive in every step";
  if (absl::StartsWith(argument, "op ")) return "do the same operators in every step, or sync() where they part";
  return "make it the same in every step";
}

}  // namespace

std::string History::CompileText() const {
  if (compile_ns_.empty()) return "";
  std::vector<int64_t> times = compile_ns_;
  std::sort(times.begin(), times.end());
  const auto percentile = [&](size_t percent) { return Milliseconds(times[(times.size() - 1) * percent / 100]); };
  const Stats stats = Counters::Get().Snapshot();
  return absl::StrCat("compilation: ", Milliseconds(compile_total_ns_), " in all; p50 ", percentile(50), ", p90 ", percentile(90), ", max ",
                      Milliseconds(times.back()), "; ", Plural(stats.kernels_compiled, "kernel"), " compiled, ", stats.kernel_cache_hits,
                      " from the cache\n",
                      stats.kernels_tuned > 0 ? absl::StrCat("autotuning: ", Plural(stats.kernels_tuned, "kernel"), ", ",
                                                             Plural(stats.schedules_timed, "schedule"), " timed\n")
                                              : "",
                      stats.products_tuned > 0 ? absl::StrCat("autotuning: ", Plural(stats.products_tuned, "product"), ", ",
                                                              Plural(stats.algorithms_timed, "algorithm"), " timed\n")
                                               : "");
}

std::string History::SitesText() const {
  std::string text;
  for (const auto& [id, site] : sites_) {
    absl::StrAppend(&text, "site ", id, " (after ", site.cause, "; ", site.first_ops, "): ", Plural(site.programs, "program"));
    if (site.limit_hits > 0) {
      absl::StrAppend(&text, "; hit ", site.limit, ", ", Plural(site.limit_hits, "trace"), " ran eagerly");
    }
    text += "\n";
    for (const Program& program : site.kept) {
      absl::StrAppend(&text, "    trace #", program.serial, " (", Plural(program.ops, "op"), ", ",
                      Plural(program.kernels_compiled, "kernel"), " compiled, ", program.kernel_cache_hits, " cached, ",
                      Milliseconds(program.ns), "): ");
      absl::StrAppend(&text, program.why.empty() ? "the first here" : program.why, "\n");
      if (!program.failure.empty()) absl::StrAppend(&text, "        could not be compiled: ", program.failure, "\n");
    }
    if (site.programs > static_cast<int64_t>(site.kept.size())) {
      absl::StrAppend(&text, "    and ", site.programs - static_cast<int64_t>(site.kept.size()), " more\n");
    }
  }
  if (sites_left_out_ > 0) absl::StrAppend(&text, "and ", sites_left_out_, " programs at further sites\n");
  return text;
}

std::string History::HintsText(int64_t traces) const {
  std::string text;
  for (const auto& [id, site] : sites_) {
    for (const auto& [argument, difference] : site.differences) {
      // A second and a third size are what it takes to make one program for all.
      const bool settles = Active().dynamic != When::kNever && absl::StartsWith(argument, "size of ");
      if (difference.values.size() < (settles ? 2 * kManyValues : kManyValues)) continue;
      absl::StrAppend(&text, "hint: ", Plural(site.programs, "compile"), " in ", Plural(site.last_trace - site.first_trace + 1, "step"),
                      " at site ", id, ": ", argument, " took ", difference.values.size(),
                      difference.values.size() >= 256 ? " or more" : "", " values; ", Advice(argument), "\n");
    }
  }
  const Stats stats = Counters::Get().Snapshot();
  if (stats.ops_recorded > kShortTrace * traces) return text;
  for (const auto& [op, count] : Ranked(stats.eager_fallbacks)) {
    if (count * 10 < traces || count < 10) break;
    const auto why = fallback_reasons_.find(op);
    absl::StrAppend(&text, "hint: ", op, " cut ", count, " of ", traces, " traces",
                    why == fallback_reasons_.end() ? "" : absl::StrCat(": it ", why->second), "\n");
  }
  return text;
}

std::string Explain() {
  History& history = History::Get();
  const Stats stats = Counters::Get().Snapshot();
  std::lock_guard<std::mutex> lock(history.mutex_);
  std::string text =
      absl::StrCat(HeadText(stats), history.CompileText(), history.SitesText(), CountsText("cuts", stats.cuts),
                   CountsText("cut and run eagerly", stats.eager_fallbacks), CountsText("run eagerly without a cut", stats.eager_uncut));
  if (stats.stance_replays > 0) {
    absl::StrAppend(&text, "not compiled for the stance or error_on_recompile, and run op by op: ", Plural(stats.stance_replays, "trace"),
                    "\n");
  }
  if (stats.compile_waits > 0) {
    absl::StrAppend(&text, "waited for programs: ", Plural(stats.compile_waits, "trace"), ", ",
                    absl::StrFormat("%.2f s", stats.compile_wait_seconds), "\n");
  }
  if (stats.cpu_scalar_ops > 0) {
    absl::StrAppend(&text, "run at once on 0-dim tensors: ", Plural(stats.cpu_scalar_ops, "op"), "\n");
  }
  if (stats.packed_weight_bytes > 0) {
    absl::StrAppend(&text, "weights kept in the library's order: ", stats.packed_weight_bytes / (1 << 20), " MiB, used by ",
                    Plural(stats.packed_weight_calls, "call"), "\n");
  }
  if (stats.verify_runs > 0) {
    absl::StrAppend(&text, "verified: ", Plural(stats.verify_runs, "run"), ", ", stats.verify_mismatches, " with a difference\n");
  }
  for (const std::string& note : history.mismatches_) absl::StrAppend(&text, "    ", note, "\n");
  for (const std::string& note : history.stepped_aside_) absl::StrAppend(&text, "stepped aside: ", note, "\n");
  return text + history.HintsText(stats.traces);
}

}  // namespace lazuli::runtime
