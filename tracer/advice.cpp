// What a recorder does about traces that have no program: in blocks, between rounds of loops, or run eagerly without being recorded.
#include "absl/strings/str_cat.h"
#include "runtime/log.h"
#include "runtime/options.h"
#include "tracer/recorder.h"
#include "tracer/step_aside.h"

namespace lazuli::tracer {

void Recorder::FollowAdvice() {
  constexpr size_t kTimesLonger = 16;  // A trace may be than the last one there.
  size_t num_ops = 0;
  guards::ForkKeys forks;
  const guards::Advice advice = guards::ProgramCache::Get().AdviceFor(log_, StartCause(), &forks, &num_ops);
  if (forks.same_ops != 0) forks_.push_back(forks);
  if (advice == guards::Advice::kBlocks && prediction_ == nullptr) in_blocks_ = true;
  if (advice != guards::Advice::kEagerly || Current() != this || !MayStepAside()) return;
  StepAsideUntilCut(this, in_blocks_, kTimesLonger * num_ops);
}

bool Recorder::Foresees(int32_t op_id) const {
  if (prediction_ != nullptr) {
    const auto& ops = prediction_->log.ops;
    if (ops.size() > log_.ops.size() && ops[log_.ops.size()].op_id == op_id) return true;
  }
  return guards::ProgramCache::Get().GoesOn(log_, StartCause(), op_id);
}

void Recorder::LookForLoops(const guards::CachedTracePtr& entry) {
  if (in_blocks_ || due_ == guards::kEnding) return;
  auto& cache = guards::ProgramCache::Get();
  const bool is_one_of_many = cache.HasTooMany(entry, log_, StartCause());
  switch (loops_.OnNewTrace(log_.ops.size(), is_one_of_many, novelty_.new_in_a_row())) {
    case LoopFinder::Found::kNothing:
      return;
    case LoopFinder::Found::kRounds:
      cache.NotePieces(log_, StartCause(), "differ by how often they go round a loop: from here on they are cut between rounds");
      return;
    case LoopFinder::Found::kEnding:
      cache.NotePieces(log_, StartCause(),
                       "begin in ever other ways and end alike: from here on they are cut where they begin to be alike");
  }
}

bool Recorder::MayStepAside() const {
  const auto& active = runtime::Active();
  return active.step_aside && active.verify == 0 && !active.error_on_recompile && !active.fail_on_recompile_limit_hit &&
         scopes_.stance() == runtime::Stance::kDefault && !scopes_.InFullGraph();
}

// Where compiles are waited for, what is computed depends on no clock.
bool Recorder::MayStepAsideAcrossCuts() const { return runtime::Active().async && MayStepAside(); }

bool Recorder::LooksAtNextTrace() {
  RecorderLock lock(this);
  if (!IsEmpty() || !MayStepAsideAcrossCuts()) return true;
  return !recording_trial_.StepsAside() && !novelty_.StepsAside(guards::Novelty::Clock::now());
}

void Recorder::NoteEagerOps(size_t num_ops) {
  RecorderLock lock(this);
  NoteOps(num_ops, 0);
}

void Recorder::NoteRecordedOps(const guards::CachedTracePtr& known, std::string_view cause) {
  const bool gets_program = known != nullptr && !known->body->seen_once() && !known->body->failed();
  NoteOps(log_.ops.size(), gets_program && !guards::IsOfPieces(cause) ? 0 : log_.ops.size());
}

void Recorder::NoteOps(size_t num_ops, size_t doubtful) {
  // Of those that are ever new, looks have to find what comes back.
  if (novelty_.ever_new() || !MayStepAsideAcrossCuts()) return;
  if (!recording_trial_.Note(num_ops, doubtful, &guards::RecordingTrial::Clock::now)) return;
  if (!runtime::LogEnabled(runtime::LogCategory::kPerfHints)) return;
  runtime::Log(runtime::LogCategory::kPerfHints,
               absl::StrCat("many traces have no program or are pieces: recording takes ", recording_trial_.recorded_nanoseconds(),
                            " ns per thousand operators, running eagerly ", recording_trial_.eager_nanoseconds(), ": what comes next ",
                            recording_trial_.StepsAside() ? "runs eagerly" : "is recorded", " for a while"));
}

void Recorder::NoteNovelty(bool is_new) {
  if (!novelty_.Note(is_new) || !MayStepAsideAcrossCuts() || !runtime::LogEnabled(runtime::LogCategory::kPerfHints)) return;
  runtime::Log(runtime::LogCategory::kPerfHints,
               absl::StrCat(guards::Novelty::kMany, " traces in a row were new ones: what comes next runs eagerly, but for two traces in ",
                            guards::Novelty::kFewest, " to ", guards::Novelty::kRarely, ", until one comes again"));
}

}  // namespace lazuli::tracer
