#include "guards/program_cache.h"

#include <malloc.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "codegen/emit_aten.h"
#include "codegen/pipeline.h"
#include "guards/guard.h"
#include "guards/miss_report.h"
#include "runtime/counters.h"
#include "runtime/dump.h"
#include "runtime/log.h"
#include "runtime/options.h"

namespace lazuli::guards {
namespace {

using runtime::Counters;
using runtime::LogCategory;

constexpr size_t kSiteOps = 8;

codegen::PipelineOptions PipelineOptionsFromActive() {
  const auto& active = runtime::Active();
  codegen::PipelineOptions options;
  options.backend = runtime::BackendName(active.backend);
  options.target.isa = runtime::IsaName(active.isa);
  options.target.precision = runtime::PrecisionName(active.precision);
  return options;
}

// Fills in `entry`'s program; a trace that cannot be compiled is replayed from now on, and never tried again.
void MakeProgram(CachedTrace* entry) {
  auto& counters = Counters::Get();
  const runtime::CompileTimer timer;
  codegen::Trace trace = codegen::DecodeTrace(entry->log);
  if (runtime::DumpEnabled("trace")) runtime::WriteDump("trace", entry->serial, codegen::PrintTrace(trace));
  codegen::PipelineOptions options = PipelineOptionsFromActive();
  options.serial = entry->serial;
  codegen::CompileReport report;
  auto program = codegen::Compile(trace, options, &report);
  counters.kernels_compiled.Add(report.kernels_compiled);
  counters.kernel_cache_hits.Add(report.kernel_cache_hits);
  // The compiler's heap is tens of megabytes that the program, whose peak is still to come, would never see again.
  if (report.kernels_compiled > 0) malloc_trim(0);
  if (program.ok()) {
    entry->program = *std::move(program);
    entry->compiled = true;
    if (entry->program->bit_exact() && entry->log.ops.size() <= EagerTrial::kMaxOps && runtime::Active().step_aside) {
      entry->trial.SetEligible();
    }
    counters.programs_compiled.Add();
    return;
  }
  counters.compile_failures.Add();
  runtime::LogOnce(
      absl::StrCat("could not compile trace #", entry->serial, ", which runs eagerly from here: ", program.status().message()));
  entry->program = codegen::MakeReplay(std::move(trace));
}

}  // namespace

ProgramCache& ProgramCache::Get() {
  static auto* cache = new ProgramCache;
  return *cache;
}

CachedTracePtr ProgramCache::Find(const codegen::TraceLog& log) {
  const uint64_t hash = Fingerprint(log);
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = traces_.find(hash);
  if (it == traces_.end()) return nullptr;
  for (const auto& entry : it->second) {
    if (Matches(entry->log, log)) {
      entry->last_use = ++clock_;
      return entry;
    }
  }
  return nullptr;
}

Site& ProgramCache::FindSite(const codegen::TraceLog& log, std::string_view cause) {
  uint64_t key = std::hash<std::string_view>()(cause);
  for (size_t i = 0; i < std::min(kSiteOps, log.ops.size()); ++i) {
    const auto op = static_cast<codegen::Word>(log.ops[i].op_id);
    key = codegen::HashWords(&op, 1, key);
  }
  auto& site = sites_[key];
  if (site == nullptr) {
    site = std::make_unique<Site>();
    site->id = static_cast<int64_t>(sites_.size()) - 1;
    site->cause = std::string(cause);
  }
  return *site;
}

void ProgramCache::ReportCompile(const Site& site, const codegen::TraceLog& log, int64_t serial, std::string_view location) {
  if (site.programs == 0 || !runtime::LogEnabled(LogCategory::kRecompiles)) return;
  std::vector<CachedTracePtr> variants;
  for (const auto& variant : site.variants) variants.push_back(variant.lock());
  runtime::Log(LogCategory::kRecompiles, DescribeRecompile(site, variants, log, serial, runtime::Active().recompile_limit, location,
                                                           runtime::LogEnabled(LogCategory::kRecompilesVerbose)));
}

CachedTracePtr ProgramCache::Compile(const codegen::TraceLog& log, std::string_view cause, std::string_view location) {
  const auto& active = runtime::Active();
  auto& counters = Counters::Get();
  std::lock_guard<std::mutex> lock(mutex_);
  Site& site = FindSite(log, cause);
  const bool site_full = site.programs >= active.recompile_limit;
  const bool all_full = site.programs > 0 && recompiles_ >= active.accumulated_recompile_limit;
  const int64_t serial = next_serial_++;
  if (site_full || all_full) {
    counters.recompile_limit_hits.Add();
    if (!site.limit_logged) {
      site.limit_logged = true;
      ReportCompile(site, log, serial, location);
      runtime::LogAlways(absl::StrCat("hit ", site_full ? "recompile_limit (" : "accumulated_recompile_limit (",
                                      site_full ? active.recompile_limit : active.accumulated_recompile_limit, ") at site ", site.id,
                                      ": running eagerly from here; ", site.programs,
                                      " programs stay in use. To log all recompilation reasons, use LAZULI_LOGS=\"recompiles\""));
    }
    return nullptr;
  }
  ReportCompile(site, log, serial, location);
  if (site.programs > 0) {
    counters.recompiles.Add();
    ++recompiles_;
  }
  auto entry = std::make_shared<CachedTrace>();
  entry->log = log;
  entry->log.offsets.assign(log.offsets.size(), 0);
  entry->hash = Fingerprint(log);
  entry->serial = serial;
  entry->site = &site;
  MakeProgram(entry.get());
  if (runtime::LogEnabled(LogCategory::kGuards)) {
    std::string text = absl::StrCat("guards of trace #", serial, " (site ", site.id, "):");
    for (const Guard& guard : BuildGuards(entry->log)) absl::StrAppend(&text, "\n    ", guard.Text(entry->log));
    runtime::Log(LogCategory::kGuards, text);
  }
  ++site.programs;
  site.variants.push_back(entry);
  entry->last_use = ++clock_;
  traces_[entry->hash].push_back(entry);
  ++size_;
  EvictOverCapacity(static_cast<size_t>(active.cache_size));
  return entry;
}

void ProgramCache::EvictOverCapacity(size_t capacity) {
  while (size_ > capacity) {
    CachedTracePtr oldest;
    for (const auto& [hash, entries] : traces_) {
      for (const auto& entry : entries) {
        if (oldest == nullptr || entry->last_use < oldest->last_use) oldest = entry;
      }
    }
    auto it = traces_.find(oldest->hash);
    auto& entries = it->second;
    entries.erase(std::find(entries.begin(), entries.end(), oldest));
    if (entries.empty()) traces_.erase(it);
    --oldest->site->programs;
    --size_;
  }
}

void ProgramCache::SetSuccessor(const CachedTracePtr& previous, const CachedTracePtr& next) {
  std::lock_guard<std::mutex> lock(mutex_);
  previous->successor = next;
}

CachedTracePtr ProgramCache::Successor(const CachedTracePtr& previous) {
  std::lock_guard<std::mutex> lock(mutex_);
  CachedTracePtr next = previous->successor.lock();
  if (next != nullptr) next->last_use = ++clock_;
  return next;
}

void ProgramCache::Clear() {
  std::lock_guard<std::mutex> lock(mutex_);
  traces_.clear();
  sites_.clear();
  size_ = 0;
  next_serial_ = 0;
  recompiles_ = 0;
}

size_t ProgramCache::size() {
  std::lock_guard<std::mutex> lock(mutex_);
  return size_;
}

}  // namespace lazuli::guards
