#include "tools/report_data.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/events.h"
#include "tools/json_line.h"

namespace lazuli::tools {
namespace {

TraceData& TraceOf(const JsonLine& line, ReportData* data) {
  const int64_t serial = line.number("trace", -1);
  TraceData& trace = data->traces[serial];
  trace.serial = serial;
  if (line.numbers.count("site") != 0) trace.site = line.number("site");
  if (line.numbers.count("ops") != 0) trace.ops = line.number("ops");
  return trace;
}

void AddRun(const JsonLine& line, ReportData* data) {
  TraceData& trace = TraceOf(line, data);
  const int64_t count = line.number("count"), ns = line.number("ns");
  const int64_t t = line.number("t"), until = std::max(t, line.number("until"));
  trace.min_ns = trace.runs == 0 ? line.number("min") : std::min(trace.min_ns, line.number("min"));
  trace.max_ns = std::max(trace.max_ns, line.number("max"));
  trace.runs += count;
  trace.run_ns += ns;
  trace.kernels += line.number("kernels");
  trace.aten_calls += line.number("aten_calls");
  data->runs += count;
  data->ops += count * line.number("ops");
  data->predicted += line.number("predicted");
  data->hits += line.number("predicted") + line.number("hit");
  data->misses += line.number("miss");
  data->run_ns += ns;
  data->record_ns += line.number("record_ns");
  data->running.push_back({t, until, ns});
  // The first of the recordings ended before the run began.
  const int64_t recording = line.number("record_ns");
  data->recording.push_back({std::max<int64_t>(0, t - (count > 0 ? recording / count : 0)), count > 1 ? until : t, recording});
}

void AddCompileStart(const JsonLine& line, ReportData* data) {
  SiteData& site = data->sites[line.number("site")];
  site.cause = line.text("cause");
  site.first_ops = line.text("first_ops");
  site.traces.push_back(line.number("trace"));
  TraceOf(line, data);
  if (line.number("variant") > 1) ++data->recompiles;
}

void AddCompileEnd(const JsonLine& line, ReportData* data) {
  TraceData& trace = TraceOf(line, data);
  trace.compiled = true;
  trace.compile_ns = line.number("ns");
  trace.kernels_compiled = line.number("kernels_compiled");
  trace.kernel_cache_hits = line.number("kernel_cache_hits");
  trace.arena_bytes = line.number("arena_bytes");
  data->compile_ns += trace.compile_ns;
  ++data->compiles;
  data->compiling.push_back({line.number("t") - trace.compile_ns, line.number("t"), trace.compile_ns});
  const auto passes = line.objects.find("passes");
  if (passes == line.objects.end()) return;
  for (const auto& [pass, ns] : passes->second) data->passes[pass] += ns;
}

void AddLimit(const JsonLine& line, ReportData* data) {
  SiteData& site = data->sites[line.number("site")];
  site.limit = line.text("limit");
  ++site.limit_hits;
}

void AddFallback(const JsonLine& line, ReportData* data) {
  const std::string op = line.text("op"), why = line.text("why");
  for (Fallback& fallback : data->fallbacks) {
    if (fallback.op != op || fallback.why != why) continue;
    fallback.count += line.number("count");
    return;
  }
  data->fallbacks.push_back({op, why, line.number("count")});
}

using Adder = void (*)(const JsonLine& line, ReportData* data);

const std::map<std::string, Adder>& Adders() {
  static const auto* const adders = new std::map<std::string, Adder>{
      {"record", [](const JsonLine&, ReportData*) {}},  // The first line "run" of a trace says the same.
      {"lookup", [](const JsonLine&, ReportData*) {}},
      {"run", AddRun},
      {"compile_start", AddCompileStart},
      {"compile_end", AddCompileEnd},
      {"recompile", [](const JsonLine& line, ReportData* data) { TraceOf(line, data).why = line.text("reason"); }},
      {"recompile_limit", AddLimit},
      {"fallback", AddFallback},
      {"compile_failure",
       [](const JsonLine& line, ReportData* data) {
         TraceOf(line, data).failure = line.text("message");
         ++data->failures;
       }},
      {"cut", [](const JsonLine& line, ReportData* data) { data->cuts[line.text("cause")] += line.number("count"); }},
      {"step_aside",
       [](const JsonLine& line, ReportData* data) {
         data->stepped_aside.push_back(absl::StrCat("trace #", line.number("trace"), " (", line.number("ops"),
                                                    " ops): ", line.number("program_ns"), " ns with its program, ", line.number("eager_ns"),
                                                    " ns eagerly"));
       }},
      {"verify_mismatch", [](const JsonLine& line, ReportData* data) { data->mismatches.push_back(line.text("message")); }},
      {"memory",
       [](const JsonLine& line, ReportData* data) {
         data->memory.push_back({line.number("t"), line.number("used"), line.number("idle"), line.number("peak")});
       }},
      {"exit", [](const JsonLine&, ReportData* data) { data->ended = true; }},
  };
  return *adders;
}

}  // namespace

absl::StatusOr<ReportData> ReadReport(std::istream& log) {
  ReportData data;
  std::string text;
  if (!std::getline(log, text)) return absl::InvalidArgumentError("the file is empty");
  const auto start = ReadJsonLine(text);
  if (!start.has_value() || start->text("event") != "start") {
    return absl::InvalidArgumentError("no event log: its first line is not a 'start' event");
  }
  if (start->number("version") != runtime::kEventsVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("an event log of version ", start->number("version"), "; this lazuli-report reads version ", runtime::kEventsVersion));
  }
  data.pid = start->number("pid");
  data.lines = 1;
  while (std::getline(log, text)) {
    ++data.lines;
    const auto line = ReadJsonLine(text);
    if (!line.has_value() || line->texts.count("event") == 0 || line->numbers.count("t") == 0) {
      ++data.skipped_lines;
      continue;
    }
    data.end = std::max({data.end, line->number("t"), line->number("until")});
    const auto adder = Adders().find(line->text("event"));
    if (adder == Adders().end()) {
      ++data.unknown_events;
    } else {
      adder->second(*line, &data);
    }
  }
  std::sort(data.fallbacks.begin(), data.fallbacks.end(), [](const Fallback& a, const Fallback& b) { return a.count > b.count; });
  return data;
}

}  // namespace lazuli::tools
