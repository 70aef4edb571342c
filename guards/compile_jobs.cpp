#include "guards/compile_jobs.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/emit_aten.h"
#include "codegen/pipeline.h"
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
bool CompileStatic(CachedTrace* entry, int64_t site, ShapeProfile* profile, const codegen::PipelineOptions& options) {
  CompiledProgram& body = *entry->body;
  codegen::Trace trace = codegen::DecodeTrace(entry->log);
  auto program = CompileTrace(trace, site, options);
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

// As CompileStatic, with symbols.
bool CompileDynamic(const DynamicJob& job, const codegen::PipelineOptions& options) {
  CompiledProgram& body = *job.body;
  codegen::Trace trace = codegen::DecodeTrace(job.shapes.Encode(job.log));
  trace.symbols = job.shapes.symbols();
  auto program = CompileTrace(trace, job.site, options);
  if (absl::IsUnavailable(program.status())) return false;
  if (program.ok()) {
    body.program = *std::move(program);
    body.compiled = true;
    OpenTrial(&body, job.log);
    Counters::Get().dynamic_programs.Add();
    job.profile->AddDynamic(job.shapes);
  } else {
    LogWithoutSymbols(body.serial, std::string(program.status().message()));
  }
  body.state.store(program.ok() ? State::kReady : State::kFailed, std::memory_order_release);
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
    // A program whose traces do not come back asks for more than can be compiled: what is forgotten by its turn is left out.
    if (!body->wanted.load(std::memory_order_relaxed)) return body->state.store(State::kFailed, std::memory_order_release);
    if (!body->MakeFromDisk()) job(options);
    then();
  };
  runtime::CompilePool::Get().Submit(std::shared_ptr<const runtime::CompileDemand>(body, &body->demand), compile, active.compile_threads);
}

}  // namespace

void LogWithoutSymbols(int64_t serial, std::string_view why) {
  if (!runtime::LogEnabled(LogCategory::kDynamic)) return;
  runtime::Log(LogCategory::kDynamic, absl::StrCat("trace #", serial, " is compiled for its sizes alone: ", std::string(why)));
}

void ScheduleStatic(const CachedTracePtr& entry) {
  const auto job = [entry, site = entry->site->id, profile = entry->skeleton->profile](const codegen::PipelineOptions& options) {
    return CompileStatic(entry.get(), site, profile.get(), options);
  };
  Schedule(entry->body, entry->skeleton->profile->HasStatic(entry->log), job, [] {});
}

void ScheduleDynamic(DynamicJob job, std::function<void(const DynamicJob&)> then) {
  const auto shared = std::make_shared<const DynamicJob>(std::move(job));
  Schedule(
      shared->body, shared->known, [shared](const codegen::PipelineOptions& options) { return CompileDynamic(*shared, options); },
      [shared, then = std::move(then)] { then(*shared); });
}

}  // namespace lazuli::guards
