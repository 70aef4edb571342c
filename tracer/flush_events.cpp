#include "tracer/flush_events.h"

#include <algorithm>

namespace lazuli::tracer {

using runtime::Event;
using runtime::EventTime;
using runtime::TraceRun;

FlushEvents::FlushEvents(std::string_view cause, const codegen::TraceLog& log, int64_t record_start)
    : cause_(cause), ops_(static_cast<int64_t>(log.ops.size())), record_start_(record_start), record_end_(EventTime()) {}

void FlushEvents::Found(const guards::CachedTracePtr& entry, TraceRun::Found found) {
  run_start_ = EventTime();
  if (run_start_ == 0 || record_end_ == 0) return;
  found_ = found;
  if (found != TraceRun::Found::kMiss) return;
  const int64_t serial = entry == nullptr ? -1 : entry->serial;
  const int64_t site = entry == nullptr ? -1 : entry->site->id;
  // Events that were turned on in the middle of a trace know no beginning of it.
  const int64_t start = record_start_ == 0 ? record_end_ : record_start_;
  Event("record", start).Add("trace", serial).Add("site", site).Add("ops", ops_).Add("cut", cause_).Add("ns", record_end_ - start);
  Event("lookup", record_end_).Add("trace", serial).Add("result", "miss").Add("ns", run_start_ - record_end_);
}

void FlushEvents::Ran(const guards::CachedTracePtr& entry) {
  if (run_start_ == 0 || record_end_ == 0) return;
  TraceRun run;
  if (entry != nullptr) {
    run.serial = entry->serial;
    run.site = entry->site->id;
  }
  // Without a program that is ready, its operators ran one by one.
  if (entry != nullptr && entry->body->ready()) {
    run.kernels = entry->body->program->num_kernels();
    run.aten_calls = entry->body->program->num_aten_calls();
  } else {
    run.aten_calls = ops_;
  }
  run.ops = ops_;
  run.cut = cause_;
  run.found = found_;
  run.record_start = record_start_ == 0 ? record_end_ : record_start_;
  run.record_end = record_end_;
  run.run_start = run_start_;
  run.run_end = std::max(run_start_, EventTime());
  runtime::WriteRun(run);
}

}  // namespace lazuli::tracer
