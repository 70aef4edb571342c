// The events of one cut: what was recorded, how its program was found, how long it ran.
#pragma once

#include <string_view>

#include "codegen/ir/trace_log.h"
#include "guards/program_cache.h"
#include "runtime/events.h"

namespace lazuli::tracer {

// One cut trace, from the point where it is complete. Costs a relaxed load a call while events are off.
class FlushEvents {
 public:
  // `record_start`: runtime::EventTime() at the trace's first op.
  FlushEvents(std::string_view cause, const codegen::TraceLog& log, int64_t record_start);
  // `entry`: null when the trace runs op by op.
  void Found(const guards::CachedTracePtr& entry, runtime::TraceRun::Found found);
  void Ran(const guards::CachedTracePtr& entry);

 private:
  const std::string_view cause_;
  const int64_t ops_;
  const int64_t record_start_, record_end_;
  int64_t run_start_ = 0;
  runtime::TraceRun::Found found_ = runtime::TraceRun::Found::kHit;
};

}  // namespace lazuli::tracer
