// Stepping aside: where a trace was found slower than its operators run eagerly (guards/eager_trial.h), a thread follows it operator by
// operator without recording. What runs eagerly is right whatever comes next, so the operators' ids are all that is compared. Where another
// trace follows than the last time, one that begins with the operator that came is taken; where a trace is left in the middle, what follows
// is recorded as a trace of its own.
//
// Where a site has all the programs that it may have and few of its traces are theirs, it runs the rest of a trace eagerly, up to where it
// would have been cut; where a program's traces are ever new ones (guards/novelty.h), trace after trace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "codegen/ir/op_info.h"
#include "codegen/ir/trace_log.h"
#include "guards/program_cache.h"

namespace lazuli::tracer {

class Recorder;

namespace internal {

// Where a thread is in the trace that it steps aside for.
struct AsidePosition {
  const codegen::TraceLog::Op* ops = nullptr;
  size_t next = 0, count = 0;
};
// Null while the thread records. In static TLS, since every operator looks.
extern __thread AsidePosition* aside __attribute__((tls_model("initial-exec")));
bool EnterAside(const codegen::OpInfo& info, bool on_numbers);
void EndAsideAt(const codegen::OpInfo& info);

}  // namespace internal

// Whether operator `info`, which this thread is about to record, is to run eagerly instead. `on_numbers()` says whether all of its
// operands are 0-dim: such operators run at once between those of a trace (OpRecording::RunsAtOnce), so they are no departure from it.
template <class OnNumbers>
bool StepsAside(const codegen::OpInfo& info, const OnNumbers& on_numbers) {
  internal::AsidePosition* const at = internal::aside;
  if (at == nullptr) return false;
  if (at->next == 0 || at->next == at->count || at->ops[at->next].op_id != info.id) {
    return internal::EnterAside(info, on_numbers());
  }
  ++at->next;
  return true;
}

// Operator `info`, which is never recorded, is about to run.
inline void NoteUnrecorded(const codegen::OpInfo& info) {
  if (internal::aside != nullptr) internal::EndAsideAt(info);
}

// What follows in this trace of `recorder`, this thread's own, runs eagerly: up to the end of the block, or to what would cut the trace; at
// most `max_ops` operators.
void StepAsideUntilCut(Recorder* recorder, bool in_blocks, size_t max_ops);

// The next traces of `recorder`, this thread's own, in which nothing is recorded yet, run eagerly until Recorder::LooksAtNextTrace.
void StepAsideAcrossCuts(Recorder* recorder);

// `recorder` is being cut: what was to follow does not.
void CancelStepAsideUntilCut(const Recorder* recorder);

// A new trace of `recorder`, this thread's own, is expected to be `trace`: steps aside when that one is to run eagerly.
void ExpectTrace(Recorder* recorder, const guards::CachedTracePtr& trace);

// The trace that is recorded is not the expected one.
void NotePredictionLeft();

// The first operator of a trace is recorded, after all, and `prediction`, which may be null, is what it is expected to be.
void NoteRecordedTrace(const guards::CachedTracePtr& prediction);

// The expected trace was cut for `cause` and has run: its work is done.
void NoteTraceRan(std::string_view cause);

// A cut for `cause` with nothing pending in `recorder`. True when nothing is to be done for it.
bool StepsAsideAcrossCut(Recorder* recorder, std::string_view cause);

// Records again from here on this thread: its mode ends, or its programs are forgotten.
void StopSteppingAside();

// The same while the mode goes on: what follows is to be recorded whatever it costs.
void RecordFromHere();

}  // namespace lazuli::tracer
