// The mode itself: which threads record, into which recorder.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

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

// Includes or excludes the mode's dispatch keys on this thread. The first call registers the kernels, once a process.
void IncludeModeKeys(bool include);
bool ModeKeysIncluded();

// Runs pending work of this thread's recorder, if it has one.
void SyncThread(std::string_view cause);

// Runs the pending work of every recorder.
void SyncAll(std::string_view cause);

// Drops predictions, programs and remembered shapes.
void ResetAll();

}  // namespace lazuli::tracer
