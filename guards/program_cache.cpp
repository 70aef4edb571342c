#include "guards/program_cache.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/emit_aten.h"
#include "codegen/pipeline.h"
#include "guards/compile_policy.h"
#include "guards/guard.h"
#include "guards/miss_report.h"
#include "guards/shape_marks.h"
#include "runtime/compile_pool.h"
#include "runtime/counters.h"
#include "runtime/dump.h"
#include "runtime/history.h"
#include "runtime/log.h"
#include "runtime/memory_back.h"
#include "runtime/options.h"

namespace lazuli::guards {
namespace {

using runtime::Counters;
using runtime::LogCategory;

codegen::PipelineOptions PipelineOptionsFromActive() {
  const auto& active = runtime::Active();
  codegen::PipelineOptions options;
  options.backend = runtime::BackendName(active.backend);
  options.target.isa = runtime::IsaName(active.isa);
  options.target.precision = runtime::PrecisionName(active.precision);
  options.pack_weights = active.pack_weights;
  options.cudagraphs = active.cudagraphs;
  options.target.disk = runtime::DiskCache::Active();
  options.target.autotune_ms = active.autotune_ms;
  return options;
}

void NoteCompiled(int64_t serial, int64_t site, const codegen::CompileReport& report, const absl::Status& status,
                  std::chrono::steady_clock::time_point begin) {
  runtime::CompileEnd end;
  end.serial = serial;
  end.site = site;
  end.ns = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count();
  end.kernels_compiled = report.kernels_compiled;
  end.kernel_cache_hits = report.kernel_cache_hits;
  end.groups = report.num_groups;
  end.arena_bytes = report.arena_bytes;
  end.passes = report.pass_ns;
  end.failure = std::string(status.message());
  runtime::History::Get().EndCompile(end);
}

// codegen::Compile, where a defect in it costs the program its speed, not its results.
absl::StatusOr<std::unique_ptr<runtime::Program>> CompileOrExplain(const codegen::Trace& trace, const codegen::PipelineOptions& options,
                                                                   codegen::CompileReport* report) {
  try {
    return codegen::Compile(trace, options, report);
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat("the compiler failed, please report this: ", e.what()));
  }
}

// Compiles `trace`. Unavailable, and nothing happened, when code would have to be generated though `options` forbid it.
absl::StatusOr<std::unique_ptr<runtime::Program>> CompileTrace(const codegen::Trace& trace, int64_t site,
                                                               const codegen::PipelineOptions& options) {
  auto& counters = Counters::Get();
  const runtime::CompileTimer timer;
  if (runtime::DumpEnabled("trace")) runtime::WriteDump("trace", options.serial, codegen::PrintTrace(trace));
  codegen::CompileReport report;
  const auto begin = std::chrono::steady_clock::now();
  auto program = CompileOrExplain(trace, options, &report);
  if (absl::IsUnavailable(program.status())) return program;
  NoteCompiled(options.serial, site, report, program.status(), begin);
  counters.kernels_compiled.Add(report.kernels_compiled);
  counters.kernel_cache_hits.Add(report.kernel_cache_hits);
  runtime::GiveCompilerBack();
  if (program.ok()) counters.programs_compiled.Add();
  return program;
}

using State = CompiledProgram::State;

bool RunsOnCpu(const codegen::TraceLog& log) {
  return std::all_of(log.ops.begin(), log.ops.end(),
                     [&](const codegen::TraceLog::Op& op) { return codegen::OpDeviceOf(log.code[op.code_begin]) == runtime::kCpuCode; });
}

// Lets `body`, compiled for `log`, be timed against its operators where it may lose.
void OpenTrial(CompiledProgram* body, const codegen::TraceLog& log) {
  // A GPU's work goes on when its operators have been called, so that only a few of them can be timed.
  constexpr size_t kMaxOpsOnGpu = 16;
  const auto& active = runtime::Active();
  const bool on_cpu = RunsOnCpu(log);
  if (!active.step_aside || log.ops.size() > (on_cpu ? EagerTrial::kMaxOps : kMaxOpsOnGpu)) return;
  if (body->program->bit_exact() || (on_cpu && active.async)) body->trial.SetEligible(log.ops.size());
}

// The program of `entry`'s log alone; a trace that cannot be compiled is replayed from now on, and never tried again. False when nothing
// was done, as in CompileTrace.
bool CompileStatic(CachedTrace* entry, ShapeProfile* profile, const codegen::PipelineOptions& options) {
  CompiledProgram& body = *entry->body;
  codegen::Trace trace = codegen::DecodeTrace(entry->log);
  auto program = CompileTrace(trace, entry->site->id, options);
  if (absl::IsUnavailable(program.status())) return false;
  body.compiled = program.ok();
  if (program.ok()) {
    body.program = *std::move(program);
    OpenTrial(&body, entry->log);
    profile->AddStatic(entry->log);
  } else {
    Counters::Get().compile_failures.Add();
    runtime::LogOnce(
        absl::StrCat("could not compile trace #", entry->serial, ", which runs eagerly from here: ", program.status().message()));
    body.program = codegen::MakeReplay(std::move(trace));
  }
  body.state.store(State::kReady, std::memory_order_release);
  return true;
}

// Says that trace `serial` gets no symbols, though its code came with other sizes before.
void LogWithoutSymbols(int64_t serial, std::string_view why) {
  if (!runtime::LogEnabled(LogCategory::kDynamic)) return;
  runtime::Log(LogCategory::kDynamic, absl::StrCat("trace #", serial, " is compiled for its sizes alone: ", std::string(why)));
}

struct ChosenShapes {
  std::optional<DynamicShapes> shapes;
  bool known = false;  // From an earlier process.
};

// The symbols that `entry` gets: those of an earlier process, else those that its numbers and earlier ones of its code call for, else
// those that the program asked for. Says so, or why there are none, in the log.
ChosenShapes ChooseShapes(const CachedTrace& entry, const Skeleton& skeleton) {
  const codegen::TraceLog& log = entry.log;
  const bool marked = std::any_of(log.marks.begin(), log.marks.end(), [](const codegen::SizeMark& mark) { return mark.dynamic; });
  ChosenShapes chosen{skeleton.profile->FindDynamic(log), false};
  chosen.known = chosen.shapes.has_value();
  std::string why_not;
  const bool compared = !chosen.known && !skeleton.examples.empty();
  if (compared) chosen.shapes = DynamicShapes::Infer(log, skeleton.examples, &why_not);
  const bool guessed = !chosen.shapes.has_value() && marked;
  if (guessed) chosen.shapes = GuessFromMarks(log, &why_not);
  if (!chosen.shapes.has_value()) {
    if (!why_not.empty()) LogWithoutSymbols(entry.serial, why_not);
  } else if (runtime::LogEnabled(LogCategory::kDynamic)) {
    const char* const origin = chosen.known ? "as in an earlier process" : "from the start";
    const auto& examples = compared && !guessed ? skeleton.examples : std::vector<std::vector<int64_t>>();
    runtime::Log(LogCategory::kDynamic,
                 absl::StrCat("trace #", entry.serial, " is compiled with symbols:", chosen.shapes->Text(log, examples, origin)));
  }
  return chosen;
}

// As CompileStatic, of `log` with `shapes` in it.
bool CompileDynamic(CompiledProgram* body, const codegen::TraceLog& log, const DynamicShapes& shapes, ShapeProfile* profile, int64_t site,
                    const codegen::PipelineOptions& options) {
  codegen::Trace trace = codegen::DecodeTrace(shapes.Encode(log));
  trace.symbols = shapes.symbols();
  auto program = CompileTrace(trace, site, options);
  if (absl::IsUnavailable(program.status())) return false;
  if (program.ok()) {
    body->program = *std::move(program);
    body->compiled = true;
    OpenTrial(body, log);
    Counters::Get().dynamic_programs.Add();
    profile->AddDynamic(shapes);
  } else {
    LogWithoutSymbols(body->serial, std::string(program.status().message()));
  }
  body->state.store(program.ok() ? State::kReady : State::kFailed, std::memory_order_release);
  return true;
}

// Runs `job`, which compiles `body`, now, or in the background while `body`'s traces are replayed; and `then`, for which nobody waits.
// `known`: an earlier process did the same, so that all may be on disk.
void Schedule(const std::shared_ptr<CompiledProgram>& body, bool known, std::function<bool(const codegen::PipelineOptions&)> job,
              std::function<void()> then) {
  const auto& active = runtime::Active();
  codegen::PipelineOptions options = PipelineOptionsFromActive();
  options.serial = body->serial;
  body->state.store(State::kCompiling, std::memory_order_relaxed);
  if (!active.async) {
    job(options);
    then();
    return;
  }
  if (known) {
    codegen::PipelineOptions cached_only = options;
    cached_only.target.cached_only = true;
    body->from_disk = [job, cached_only] { return job(cached_only); };
  }
  const auto compile = [body, job = std::move(job), then = std::move(then), options] {
    if (!body->MakeFromDisk()) job(options);
    then();
  };
  runtime::CompilePool::Get().Submit(std::shared_ptr<const runtime::CompileDemand>(body, &body->demand), compile, active.compile_threads);
}

size_t BytesOf(const codegen::TraceLog& log) {
  return (log.code.size() + log.shapes.size()) * sizeof(codegen::Word) + log.ops.size() * sizeof(codegen::TraceLog::Op);
}

uint64_t HashCode(const codegen::TraceLog& log) { return codegen::HashWords(log.code.data(), log.code.size(), 0x536B656Cull); }

}  // namespace

ProgramCache& ProgramCache::Get() {
  static auto* cache = new ProgramCache;
  return *cache;
}

CachedTracePtr ProgramCache::Find(const codegen::TraceLog& log) {
  const uint64_t hash = Fingerprint(log);
  std::lock_guard<std::mutex> lock(mutex_);
  if (const auto it = traces_.find(hash); it != traces_.end()) {
    for (const auto& entry : it->second) {
      if (!Matches(entry->log, log)) continue;
      if (entry->body->failed()) {
        Evict(entry);
        break;
      }
      entry->last_use = ++clock_;
      entry->site->new_in_a_row = 0;
      return entry;
    }
  }
  Skeleton* skeleton = FindSkeleton(log);
  if (skeleton == nullptr || skeleton->dynamic.empty()) return nullptr;
  const CachedTracePtr entry = MakeServed(log, skeleton);
  if (entry == nullptr) return nullptr;
  InsertServed(entry);
  entry->site->new_in_a_row = 0;
  return entry;
}

CachedTracePtr ProgramCache::MakeServed(const codegen::TraceLog& log, Skeleton* skeleton) {
  const std::vector<int64_t> numbers = NumbersOf(log);
  for (auto dynamic = skeleton->dynamic.rbegin(); dynamic != skeleton->dynamic.rend(); ++dynamic) {
    if (dynamic->program->failed()) continue;
    auto values = dynamic->shapes.Match(numbers);
    if (!values.has_value()) continue;
    const CachedTracePtr entry = MakeTrace(log, dynamic->site, skeleton, dynamic->program);
    entry->symbols = *std::move(values);
    return entry;
  }
  return nullptr;
}

void ProgramCache::InsertServed(const CachedTracePtr& entry) {
  Insert(entry);
  // Sizes may be without number, and a trace of each without use.
  auto& served = entry->skeleton->served;
  served.push_back(entry);
  if (served.size() <= Skeleton::kMaxServed) return;
  const CachedTracePtr oldest = served.front().lock();
  served.pop_front();
  if (oldest != nullptr && oldest->skeleton != nullptr) Evict(oldest);
}

Skeleton* ProgramCache::FindSkeleton(const codegen::TraceLog& log) {
  const auto it = skeletons_.find(HashCode(log));
  if (it == skeletons_.end()) return nullptr;
  for (const auto& skeleton : it->second) {
    if (skeleton->code == log.code) return skeleton.get();
  }
  return nullptr;
}

Skeleton& ProgramCache::GetSkeleton(const codegen::TraceLog& log) {
  if (Skeleton* found = FindSkeleton(log)) return *found;
  auto& bucket = skeletons_[HashCode(log)];
  bucket.push_back(std::make_unique<Skeleton>());
  bucket.back()->code = log.code;
  bucket.back()->profile = std::make_shared<ShapeProfile>(runtime::DiskCache::Active(), log);
  return *bucket.back();
}

CachedTracePtr ProgramCache::MakeTrace(const codegen::TraceLog& log, Site* site, Skeleton* skeleton,
                                       std::shared_ptr<CompiledProgram> body) {
  auto entry = std::make_shared<CachedTrace>();
  entry->log = log;
  entry->log.offsets.assign(log.offsets.size(), 0);
  entry->hash = Fingerprint(log);
  entry->serial = body->serial;
  entry->site = site;
  entry->body = std::move(body);
  entry->skeleton = skeleton;
  ++skeleton->traces;
  return entry;
}

void ProgramCache::Insert(const CachedTracePtr& entry) {
  entry->last_use = ++clock_;
  traces_[entry->hash].push_back(entry);
  ++size_;
  log_bytes_ += BytesOf(entry->log);
  EvictOverCapacity();
}

void ProgramCache::ReportCompile(const Site& site, const codegen::TraceLog& log, int64_t serial, std::string_view location) {
  if (site.programs == 0 || !runtime::LogEnabled(LogCategory::kRecompiles)) return;
  const bool verbose = runtime::LogEnabled(LogCategory::kRecompilesVerbose);
  runtime::Log(LogCategory::kRecompiles,
               absl::StrCat("Recompiling ", DescribeMiss(site, log, serial, runtime::Active().recompile_limit, location, verbose)));
}

bool ProgramCache::LimitAllows(Site* site, const codegen::TraceLog& log, int64_t serial, std::string_view location, CompilePolicy* policy) {
  const auto& active = runtime::Active();
  if (!IsFull(*site)) return true;
  const bool site_full = site->programs >= LimitOf(*site);
  Counters::Get().recompile_limit_hits.Add();
  const std::string limit = site_full ? absl::StrCat("recompile_limit (", LimitOf(*site), ")")
                                      : absl::StrCat("accumulated_recompile_limit (", active.accumulated_recompile_limit, ")");
  policy->HitLimit(limit, *site, log, serial, location);
  auto& history = runtime::History::Get();
  history.HitLimit(serial, site->id, limit, history.WantsReason(site->id) ? NearestFailure(*site, log) : runtime::RecompileReason());
  if (site->limit_logged) return false;
  site->limit_logged = true;
  ReportCompile(*site, log, serial, location);
  runtime::LogAlways(absl::StrCat("hit ", limit, " at site ", site->id, ": running eagerly from here; ", site->programs,
                                  " programs stay in use. To log all recompilation reasons, use LAZULI_LOGS=\"recompiles\""));
  return false;
}

CachedTracePtr ProgramCache::Compile(const codegen::TraceLog& log, std::string_view cause, std::string_view location,
                                     CompilePolicy* policy) {
  std::lock_guard<std::mutex> lock(mutex_);
  Skeleton& skeleton = GetSkeleton(log);
  const CachedTracePtr entry = MakeTrace(log, &FindSite(log, cause), &skeleton, std::make_shared<CompiledProgram>(next_serial_++));
  skeleton.ShareStaticMarks(&entry->log.marks);
  if (skeleton.examples.empty()) ++entry->site->new_in_a_row;
  const bool wait_for_more = skeleton.examples.empty() && policy->DeferNewCode(skeleton.profile->Knows(log));
  if (!wait_for_more && !Request(entry, location, policy)) {
    Forget(entry.get());
    return nullptr;
  }
  skeleton.AddExample(NumbersOf(log));
  Insert(entry);
  return entry;
}

CachedTracePtr ProgramCache::CompileSeen(const CachedTracePtr& entry, std::string_view location, CompilePolicy* policy) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (entry->skeleton == nullptr || !entry->body->seen_once()) return entry;
  // Other threads may be running it: what compiles is a trace of its own.
  if (const CachedTracePtr served = MakeServed(entry->log, entry->skeleton)) {
    Evict(entry);
    InsertServed(served);
    return served;
  }
  const CachedTracePtr fresh = MakeTrace(entry->log, entry->site, entry->skeleton, std::make_shared<CompiledProgram>(entry->serial));
  if (!Request(fresh, location, policy)) {
    Forget(fresh.get());
    return entry;
  }
  Evict(entry);
  Insert(fresh);
  return fresh;
}

bool ProgramCache::Request(const CachedTracePtr& entry, std::string_view location, CompilePolicy* policy) {
  Site& site = *entry->site;
  if (!policy->Allows(site, entry->log, entry->serial, location)) return false;
  if (!LimitAllows(&site, entry->log, entry->serial, location, policy)) return false;
  ReportCompile(site, entry->log, entry->serial, location);
  if (site.programs > 0) {
    Counters::Get().recompiles.Add();
    ++recompiles_;
    runtime::History::Get().Recompile(entry->serial, site.id, site.programs + 1, NearestFailure(site, entry->log));
  }
  runtime::History::Get().StartCompile(
      {entry->serial, site.id, site.cause, static_cast<int64_t>(entry->log.ops.size()), FirstOps(entry->log), site.programs + 1});
  if (!MakeDynamic(entry.get())) {
    const std::shared_ptr<ShapeProfile> profile = entry->skeleton->profile;
    Schedule(
        entry->body, profile->HasStatic(entry->log),
        [entry, profile](const codegen::PipelineOptions& options) { return CompileStatic(entry.get(), profile.get(), options); }, [] {});
  }
  if (runtime::LogEnabled(LogCategory::kGuards)) {
    std::string text = absl::StrCat("guards of trace #", entry->serial, " (site ", site.id, "):");
    for (const Guard& guard : BuildGuards(entry->log)) absl::StrAppend(&text, "\n    ", guard.Text(entry->log));
    runtime::Log(LogCategory::kGuards, text);
  }
  ++site.programs;
  site.variants.push_back(entry);
  return true;
}

bool ProgramCache::MakeDynamic(CachedTrace* entry) {
  Skeleton& skeleton = *entry->skeleton;
  if (runtime::Active().dynamic == runtime::When::kNever) return false;
  // What could not be compiled with some symbols will not be with more.
  for (const auto& dynamic : skeleton.dynamic) {
    if (dynamic.program->failed()) return false;
  }
  auto [shapes, known] = ChooseShapes(*entry, skeleton);
  if (!shapes.has_value()) return false;
  const std::shared_ptr<CompiledProgram> body = entry->body;
  entry->symbols = *shapes->Match(NumbersOf(entry->log));
  const auto log = std::make_shared<const codegen::TraceLog>(entry->log);
  Schedule(
      body, known,
      [body, log, shapes = *shapes, profile = skeleton.profile, site = entry->site->id](const codegen::PipelineOptions& options) {
        return CompileDynamic(body.get(), *log, shapes, profile.get(), site, options);
      },
      [body, log, shapes = *shapes, infer = infer_shapes_] {
        if (body->ready()) body->SetPlan(std::make_shared<const ShapePlan>(*log, shapes, infer));
      });
  if (body->failed()) {
    entry->symbols.clear();
    return false;
  }
  skeleton.dynamic.push_back({*std::move(shapes), body, entry->site});
  return true;
}

void ProgramCache::EvictOverCapacity() {
  while (size_ > static_cast<size_t>(runtime::Active().cache_size) || (log_bytes_ > most_log_bytes_ && size_ > 1)) {
    CachedTracePtr oldest;
    for (const auto& [hash, entries] : traces_) {
      for (const auto& entry : entries) {
        if (oldest == nullptr || entry->last_use < oldest->last_use) oldest = entry;
      }
    }
    Evict(oldest);
  }
}

void ProgramCache::Evict(CachedTracePtr entry) {
  auto it = traces_.find(entry->hash);
  auto& entries = it->second;
  entries.erase(std::find(entries.begin(), entries.end(), entry));
  if (entries.empty()) traces_.erase(it);
  --size_;
  log_bytes_ -= BytesOf(entry->log);
  Forget(entry.get());
}

void ProgramCache::Forget(CachedTrace* entry) {
  if (entry->symbols.empty() && entry->body->state.load() != State::kSeen) --entry->site->programs;
  Skeleton* const skeleton = std::exchange(entry->skeleton, nullptr);
  if (--skeleton->traces > 0) return;
  // Programs with symbols go with the last trace that they served.
  for (const auto& dynamic : skeleton->dynamic) --dynamic.site->programs;
  auto& bucket = skeletons_[HashCode(entry->log)];
  bucket.erase(std::find_if(bucket.begin(), bucket.end(), [&](const auto& owner) { return owner.get() == skeleton; }));
}

void ProgramCache::Clear() {
  std::lock_guard<std::mutex> lock(mutex_);
  traces_.clear();
  alias_patterns_.clear();
  forks_.clear();
  after_cause_.clear();
  sites_.clear();
  skeletons_.clear();
  size_ = 0;
  log_bytes_ = 0;
  next_serial_ = 0;
  recompiles_ = 0;
}

size_t ProgramCache::size() {
  std::lock_guard<std::mutex> lock(mutex_);
  return size_;
}

}  // namespace lazuli::guards
