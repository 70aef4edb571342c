// The mode itself: which threads record, into which recorder.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <memory>

#include "tracer/recorder.h"

namespace lazuli::tracer {

// Carried to the threads that a thread's work goes on in (autograd's device threads, at::launch) by at::ThreadLocalState, beside the
// dispatch keys. Holds the recorder that the mode's owner records into.
class ModeInfo : public c10::DebugInfoBase {
 public:
  ModeInfo();
  ~ModeInfo() override;
  Recorder* recorder() const { return recorder_; }

 private:
  Recorder* recorder_;
};

namespace internal {

// What becomes of backward passes that this thread starts. In static TLS, since every operator on a GPU looks.
enum class Backward : uint8_t { kAsTheProgramSays, kStaysHereOnceOnGpu, kStaysHere };
extern __thread Backward backward __attribute__((tls_model("initial-exec")));
void TakeBackward();

}  // namespace internal

// Turns the mode on or off on this thread: while it is on, its dispatch keys are included unless the stance is force_eager. The first call
// registers the kernels, once a process.
void TurnMode(bool on);
bool ModeIsOn();

// Whether this thread's operations are recorded.
bool ModeKeysIncluded();

// This thread records an operator on a GPU: backward passes that it starts run on it from here on, until its mode ends, unless an option
// says otherwise. Autograd's own thread for a GPU has to be woken for each of them, and finds none of what it works on in its caches.
inline void KeepBackwardHere() {
  if (internal::backward == internal::Backward::kStaysHereOnceOnGpu) internal::TakeBackward();
}

// This thread's recorder, made if it has none: what it is asked for counts for modes that come later, too.
Recorder* ThreadRecorder();

// The stance of what `recorder`, this thread's, records from here on. Returns what was given before. Where nothing is recorded any more,
// what reads its inputs is cut before: may throw, and has changed nothing then.
Scopes::GivenStance GiveStance(Recorder* recorder, Scopes::GivenStance stance);

// Gives back what GiveStance returned. Logs errors of pending work, as the end of a mode does.
void RestoreStance(Recorder* recorder, Scopes::GivenStance stance);

// Turns the mode off on this thread for a scope. May throw, as GiveStance.
void LeaveModeForScope();

// Runs pending work of this thread's recorder, if it has one.
void SyncThread(std::string_view cause);

// The same where nobody can catch an exception: logs it, as an error in work that was pending at `where`.
void SyncThreadOrLog(std::string_view cause, std::string_view where);

// Runs the pending work of every recorder, and rethrows the first error.
void SyncAll(std::string_view cause, Cut cut);

// Drops predictions, programs and remembered shapes.
void ResetAll();

}  // namespace lazuli::tracer
