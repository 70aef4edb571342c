// LAZULI_TRACE: what happened and when, one JSON object a line. docs/TRACE.md is the schema.
//
//   if (EventsEnabled()) Event("evict").Add("trace", serial).Add("cause", cause);
//
// Lines are buffered and written every so often, so that a process that dies leaves all but its last moments.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace lazuli::runtime {

// Of the schema; the first line says it. Raised when a reader of the old one would misread the new one.
constexpr int kEventsVersion = 1;

namespace internal {
extern std::atomic<bool> events_on;
}

// One relaxed load.
inline bool EventsEnabled() { return internal::events_on.load(std::memory_order_relaxed); }

// Nanoseconds of the steady clock since the first file was opened, at least 1; 0 while events are off.
int64_t EventTime();

// One line, written by the destructor. Keys must differ. Does nothing while events are off. Thread-safe as a whole.
class Event {
 public:
  // `time`: of its beginning, from EventTime().
  explicit Event(std::string_view name, int64_t time = EventTime());
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  Event& Add(std::string_view key, int64_t value);
  Event& Add(std::string_view key, std::string_view value);
  // A member of a nested object: all of one `object` in a row.
  Event& AddTo(std::string_view object, std::string_view key, int64_t value);

 private:
  void Key(std::string_view key);
  void CloseObject();

  std::string line_;
  std::string object_;  // The nested object that is open.
};

// One cut trace: from its first operator to the end of its run.
struct TraceRun {
  enum class Found : uint8_t { kPredicted, kHit, kMiss };
  int64_t serial = -1;  // -1: run operator by operator, without a program of its own.
  int64_t site = -1;
  int64_t ops = 0;
  std::string_view cut;  // The cause of the cut that ended it.
  Found found = Found::kMiss;
  int64_t record_start = 0, record_end = 0;  // EventTime().
  int64_t run_start = 0, run_end = 0;
  int64_t kernels = 0, aten_calls = 0;
};

// Adds to the lines "run" and "cut". Runs of one trace are summed up over a time that grows with the age of the process, and the first
// one stands alone: a long process makes a readable file, not a large one. Does nothing while events are off.
void WriteRun(const TraceRun& run);

// Adds to the lines "fallback", summed up in the same way.
void WriteFallback(std::string_view op, std::string_view why);

// Turns events on, to `path`, or off when it is empty. "%p" in it is the process's number. A path that this process wrote before goes on
// where it ended; another file is replaced. One that cannot be written is said in the log and leaves events off. A forked child writes
// none, but with "%p" into a file of its own once it configures one.
void ConfigureEvents(const std::string& path);

// Writes out what is buffered and summed up.
void FlushEvents();
// The same, and the line "exit".
void EndEvents();

}  // namespace lazuli::runtime
