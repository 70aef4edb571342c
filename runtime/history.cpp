#include "runtime/history.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "runtime/counters.h"
#include "runtime/events.h"
#include "runtime/log.h"

namespace lazuli::runtime {
namespace {

constexpr size_t kMaxSites = 256;
constexpr size_t kMaxPrograms = 32;     // Of one site.
constexpr size_t kMaxDifferences = 32;  // Of one site.
constexpr size_t kMaxValues = 256;      // Of one difference.
constexpr int64_t kMaxReasons = 256;    // Of one site.
constexpr size_t kMaxTimes = 4096;
constexpr size_t kMaxNotes = 64;

void AddBounded(std::vector<std::string>* notes, std::string note) {
  if (notes->size() < kMaxNotes) notes->push_back(std::move(note));
}

void AddReason(const RecompileReason& reason, Event* event) {
  event->Add("reason", reason.text)
      .Add("op", reason.op)
      .Add("op_name", reason.op_name)
      .Add("argument", reason.argument)
      .Add("expected", reason.expected)
      .Add("actual", reason.actual);
}

}  // namespace

History& History::Get() {
  static auto* const history = new History;
  return *history;
}

History::Site* History::FindSite(int64_t id) {
  const auto it = sites_.find(id);
  if (it != sites_.end()) return &it->second;
  if (sites_.size() < kMaxSites) return &sites_[id];
  ++sites_left_out_;
  return nullptr;
}

void History::Note(const RecompileReason& reason, Site* site) {
  ++site->reasons;
  if (reason.argument.empty()) return;
  if (site->differences.size() >= kMaxDifferences && site->differences.count(reason.argument) == 0) return;
  Difference& difference = site->differences[reason.argument];
  ++difference.count;
  for (const std::string& value : {reason.expected, reason.actual}) {
    if (difference.values.size() < kMaxValues) difference.values.insert(value);
  }
}

void History::StartCompile(const CompileStart& start) {
  {
    Event event("compile_start");
    event.Add("trace", start.serial).Add("site", start.site).Add("cause", start.cause).Add("ops", start.ops);
    event.Add("first_ops", start.first_ops).Add("variant", start.variant);
  }
  FlushEvents();  // A crash in the compiler should say of what.
  const int64_t traces = Counters::Get().traces.value();
  std::lock_guard<std::mutex> lock(mutex_);
  Site* site = FindSite(start.site);
  if (site == nullptr) return;
  if (site->programs++ == 0) {
    site->cause = std::string(start.cause);
    site->first_ops = std::string(start.first_ops);
    site->first_trace = traces;
  }
  site->last_trace = traces;
  if (site->kept.size() >= kMaxPrograms) return;
  const bool reason_known = !site->kept.empty() && site->kept.back().serial == start.serial;
  if (!reason_known) site->kept.emplace_back();
  site->kept.back().serial = start.serial;
  site->kept.back().ops = start.ops;
}

void History::EndCompile(const CompileEnd& end) {
  {
    Event event("compile_end");
    event.Add("trace", end.serial).Add("site", end.site).Add("ns", end.ns).Add("kernels_compiled", end.kernels_compiled);
    event.Add("kernel_cache_hits", end.kernel_cache_hits).Add("groups", end.groups).Add("arena_bytes", end.arena_bytes);
    for (const auto& [name, ns] : end.passes) event.AddTo("passes", name, ns);
  }
  if (!end.failure.empty()) Event("compile_failure").Add("trace", end.serial).Add("site", end.site).Add("message", end.failure);
  std::lock_guard<std::mutex> lock(mutex_);
  if (compile_ns_.size() < kMaxTimes) {
    compile_ns_.push_back(end.ns);
  } else {
    compile_ns_[static_cast<size_t>(compiles_) % kMaxTimes] = end.ns;
  }
  ++compiles_;
  compile_total_ns_ += end.ns;
  const auto it = sites_.find(end.site);
  if (it == sites_.end()) return;
  // Others may have started at the site since.
  auto& kept = it->second.kept;
  const auto found = std::find_if(kept.rbegin(), kept.rend(), [&](const Program& program) { return program.serial == end.serial; });
  if (found == kept.rend()) return;
  Program& program = *found;
  program.ns = end.ns;
  program.kernels_compiled = end.kernels_compiled;
  program.kernel_cache_hits = end.kernel_cache_hits;
  program.failure = end.failure;
}

void History::Recompile(int64_t serial, int64_t site, int64_t variant, const RecompileReason& reason) {
  {
    Event event("recompile");
    event.Add("trace", serial).Add("site", site).Add("variant", variant);
    AddReason(reason, &event);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  Site* found = FindSite(site);
  if (found == nullptr) return;
  Note(reason, found);
  if (found->kept.size() >= kMaxPrograms) return;
  found->kept.emplace_back();
  found->kept.back().serial = serial;
  found->kept.back().why = reason.text;
}

void History::HitLimit(int64_t serial, int64_t site, std::string_view limit, const RecompileReason& reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  Site* found = FindSite(site);
  if (found == nullptr) return;
  ++found->limit_hits;
  found->limit = std::string(limit);
  if (found->reasons >= kMaxReasons) return;
  Note(reason, found);
  found->last_trace = Counters::Get().traces.value();
  Event event("recompile_limit");
  event.Add("trace", serial).Add("site", site).Add("limit", limit);
  AddReason(reason, &event);
}

bool History::WantsReason(int64_t site) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = sites_.find(site);
  return it == sites_.end() ? sites_.size() < kMaxSites : it->second.reasons < kMaxReasons;
}

void History::StepAside(int64_t serial, int64_t ops, int64_t program_ns, int64_t eager_ns) {
  Event("step_aside").Add("trace", serial).Add("ops", ops).Add("program_ns", program_ns).Add("eager_ns", eager_ns);
  std::lock_guard<std::mutex> lock(mutex_);
  AddBounded(&stepped_aside_,
             absl::StrCat("trace #", serial, " (", ops, " ops): ", program_ns, " ns with its program, ", eager_ns, " ns eagerly"));
}

void History::FellBack(std::string_view op, std::string_view why) {
  WriteFallback(op, why);
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = fallback_reasons_.find(op);
  if (it != fallback_reasons_.end()) {
    it->second = std::string(why);
  } else if (fallback_reasons_.size() < kMaxSites) {
    fallback_reasons_.emplace(std::string(op), std::string(why));
  }
}

void History::Mismatch(int64_t serial, std::string_view op, std::string_view text) {
  Event("verify_mismatch").Add("trace", serial).Add("op", op).Add("message", text);
  std::lock_guard<std::mutex> lock(mutex_);
  AddBounded(&mismatches_, std::string(text));
}

void History::Clear() {
  std::lock_guard<std::mutex> lock(mutex_);
  sites_.clear();
  sites_left_out_ = 0;
  compile_ns_.clear();
  compiles_ = compile_total_ns_ = 0;
  fallback_reasons_.clear();
  stepped_aside_.clear();
  mismatches_.clear();
}

bool History::hit_limit() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(sites_.begin(), sites_.end(), [](const auto& entry) { return entry.second.limit_hits > 0; });
}

namespace {

void Finish() {
  EndEvents();
  if (LogEnabled(LogCategory::kSummary)) Log(LogCategory::kSummary, Explain());
  if (History::Get().hit_limit()) {
    LogAlways(absl::StrCat("a recompile limit was reached: ", Counters::Get().recompile_limit_hits.value(),
                           " traces ran eagerly for it; LAZULI_LOGS=\"summary\" says where and why"));
  }
}

}  // namespace

void ReportAtExit() {
  static const bool registered = std::atexit(Finish) == 0;
  (void)registered;
}

}  // namespace lazuli::runtime
