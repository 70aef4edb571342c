#include "runtime/events.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/buffer_pool.h"
#include "runtime/json.h"
#include "runtime/log.h"

namespace lazuli::runtime {
namespace internal {
std::atomic<bool> events_on{false};
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBufferBytes = 64 * 1024;
constexpr int64_t kFlushNs = 200'000'000;
constexpr int64_t kShortestWindowNs = 2'000'000;
// A sum covers at most this part of the time so far, so that a timeline of any length has some hundred bars a trace.
constexpr int64_t kWindowsPerLife = 200;
// Names and traces summed up at once; past it all sums are written out.
constexpr size_t kMaxSums = 4096;

struct Sum {
  int64_t first = 0, until = 0;
  int64_t count = 0, ns = 0, min = 0, max = 0;
  int64_t record_ns = 0, found[3] = {0, 0, 0};
  int64_t site = -1, ops = 0, kernels = 0, aten_calls = 0;
  bool written = false;  // Once at least: the first one stood alone.
};

// What is summed up: the event, the trace or -1, and a name.
struct SumKey {
  const char* event;
  int64_t serial;
  std::string name, detail;
  bool operator<(const SumKey& o) const {
    return std::tie(serial, name, detail) < std::tie(o.serial, o.name, o.detail) ||
           (std::tie(serial, name, detail) == std::tie(o.serial, o.name, o.detail) && std::strcmp(event, o.event) < 0);
  }
};

struct Sink {
  std::mutex mutex;
  int fd = -1;
  std::string path;
  std::set<std::string> opened;  // By this process.
  std::string buffer;
  int64_t last_flush = 0, last_memory = 0;
  std::map<SumKey, Sum> sums;
};

// Never destroyed: threads may write while the process exits.
Sink& GetSink() {
  static Sink* const sink = new Sink;
  return *sink;
}

std::atomic<Clock::rep> time_zero{0};

void WriteOut(Sink* sink) {
  std::string_view rest = sink->buffer;
  while (!rest.empty() && sink->fd >= 0) {
    const ssize_t written = write(sink->fd, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {  // A full disk: what follows would be cut off in the middle.
      internal::events_on.store(false, std::memory_order_relaxed);
      break;
    }
    rest.remove_prefix(static_cast<size_t>(written));
  }
  sink->buffer.clear();
}

int64_t WindowAt(int64_t now) { return std::max(kShortestWindowNs, now / kWindowsPerLife); }

// The pieces of a line, for callers that hold the sink's mutex.
void Begin(std::string_view name, int64_t time, std::string* line) {
  absl::StrAppend(line, "{\"event\":\"", std::string(name), "\",\"t\":", time);
}
void Member(std::string_view key, int64_t value, std::string* line) { absl::StrAppend(line, ",\"", std::string(key), "\":", value); }
void Member(std::string_view key, std::string_view value, std::string* line) {
  absl::StrAppend(line, ",\"", std::string(key), "\":");
  AppendJsonString(value, line);
}

void WriteSum(Sink* sink, const SumKey& key, Sum* sum) {
  if (sum->count == 0) return;
  std::string* line = &sink->buffer;
  Begin(key.event, sum->first, line);
  const bool is_run = std::strcmp(key.event, "run") == 0;
  if (is_run) {
    Member("trace", key.serial, line);
    Member("site", sum->site, line);
    Member("ops", sum->ops, line);
    Member("cut", key.name, line);
  } else {
    Member(std::strcmp(key.event, "fallback") == 0 ? "op" : "cause", key.name, line);
    if (!key.detail.empty()) Member("why", key.detail, line);
  }
  Member("count", sum->count, line);
  Member("until", sum->until, line);
  if (is_run) {
    Member("ns", sum->ns, line);
    Member("min", sum->min, line);
    Member("max", sum->max, line);
    Member("record_ns", sum->record_ns, line);
    Member("predicted", sum->found[0], line);
    Member("hit", sum->found[1], line);
    Member("miss", sum->found[2], line);
    Member("kernels", sum->kernels, line);
    Member("aten_calls", sum->aten_calls, line);
  }
  *line += "}\n";
  *sum = Sum();
  sum->written = true;
}

void WriteSums(Sink* sink, int64_t now, bool all) {
  for (auto& [key, sum] : sink->sums) {
    if (all || sum.first + WindowAt(now) <= now) WriteSum(sink, key, &sum);
  }
  if (sink->sums.size() > kMaxSums) sink->sums.clear();
}

void WriteMemory(Sink* sink, int64_t now) {
  const BufferPool::Usage usage = BufferPool::Get().usage();
  Begin("memory", now, &sink->buffer);
  Member("used", usage.used_bytes, &sink->buffer);
  Member("idle", usage.idle_bytes, &sink->buffer);
  Member("peak", usage.peak_bytes, &sink->buffer);
  sink->buffer += "}\n";
  sink->last_memory = now;
}

void FlushIfDue(Sink* sink, int64_t now) {
  if (sink->buffer.size() < kBufferBytes && now - sink->last_flush < kFlushNs) return;
  WriteSums(sink, now, sink->sums.size() > kMaxSums);
  WriteOut(sink);
  sink->last_flush = now;
}

// Adds one occurrence of `key` that took from `start` to `end`. The mutex is held.
Sum* AddTo(Sink* sink, SumKey key, int64_t start, int64_t end) {
  Sum& sum = sink->sums[std::move(key)];
  const int64_t ns = end - start;
  if (sum.count++ == 0) {
    sum.first = start;
    sum.min = sum.max = ns;
  }
  sum.until = std::max(sum.until, end);
  sum.ns += ns;
  sum.min = std::min(sum.min, ns);
  sum.max = std::max(sum.max, ns);
  return &sum;
}

void WriteIfDue(Sink* sink, const SumKey& key, Sum* sum, int64_t now) {
  if (!sum->written || sum->first + WindowAt(now) <= now) WriteSum(sink, key, sum);
}

void FlushAll(Sink* sink) {
  if (sink->fd < 0) return;
  WriteSums(sink, EventTime(), /*all=*/true);
  WriteMemory(sink, EventTime());
  WriteOut(sink);
}

// A child never inherits the mutex from a thread that it does not have, nor lines that the parent is going to write.
void BeforeFork() { GetSink().mutex.lock(); }
void InParent() { GetSink().mutex.unlock(); }
void InChild() {
  Sink& sink = GetSink();
  internal::events_on.store(false, std::memory_order_relaxed);
  sink.buffer.clear();
  sink.sums.clear();
  if (sink.path.find("%p") != std::string::npos) {  // A file of its own, when it opens a mode.
    close(sink.fd);
    sink.fd = -1;
    sink.path.clear();
  }
  sink.mutex.unlock();
}

// Empty on success, else why not. The mutex is held.
std::string Open(Sink* sink, const std::string& path) {
  const std::string file = absl::StrReplaceAll(path, {{"%p", absl::StrCat(getpid())}});
  const bool again = sink->opened.count(file) != 0;
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | (again ? 0 : O_TRUNC), 0666);
  if (fd < 0) return absl::StrCat("cannot write LAZULI_TRACE '", file, "': ", std::strerror(errno), "; events are not written");
  static const bool child_handler = pthread_atfork(BeforeFork, InParent, InChild) == 0;
  (void)child_handler;
  Clock::rep zero = 0;
  time_zero.compare_exchange_strong(zero, Clock::now().time_since_epoch().count());
  sink->fd = fd;
  internal::events_on.store(true, std::memory_order_relaxed);
  if (again) return "";
  sink->opened.insert(file);
  Begin("start", EventTime(), &sink->buffer);
  Member("version", int64_t{kEventsVersion}, &sink->buffer);
  Member("pid", int64_t{getpid()}, &sink->buffer);
  sink->buffer += "}\n";
  WriteOut(sink);
  return "";
}

}  // namespace

int64_t EventTime() {
  if (!EventsEnabled()) return 0;
  return std::max<int64_t>(1, Clock::now().time_since_epoch().count() - time_zero.load(std::memory_order_relaxed));
}

Event::Event(std::string_view name, int64_t time) {
  if (EventsEnabled()) Begin(name, time, &line_);
}

void Event::CloseObject() {
  if (!object_.empty()) line_ += '}';
  object_.clear();
}

Event& Event::Add(std::string_view key, int64_t value) {
  CloseObject();
  if (!line_.empty()) Member(key, value, &line_);
  return *this;
}

Event& Event::Add(std::string_view key, std::string_view value) {
  CloseObject();
  if (!line_.empty()) Member(key, value, &line_);
  return *this;
}

Event& Event::AddTo(std::string_view object, std::string_view key, int64_t value) {
  if (line_.empty()) return *this;
  if (object_ != object) {
    CloseObject();
    object_ = std::string(object);
    absl::StrAppend(&line_, ",\"", object_, "\":{");
  } else {
    line_ += ',';
  }
  AppendJsonString(key, &line_);
  absl::StrAppend(&line_, ":", value);
  return *this;
}

Event::~Event() {
  if (line_.empty()) return;
  CloseObject();
  line_ += "}\n";
  Sink& sink = GetSink();
  std::lock_guard<std::mutex> lock(sink.mutex);
  sink.buffer += line_;
  FlushIfDue(&sink, EventTime());
}

void WriteRun(const TraceRun& run) {
  if (!EventsEnabled()) return;
  Sink& sink = GetSink();
  std::lock_guard<std::mutex> lock(sink.mutex);
  const SumKey cut{"cut", -1, std::string(run.cut), ""};
  WriteIfDue(&sink, cut, AddTo(&sink, cut, run.record_end, run.record_end), run.run_end);
  const SumKey key{"run", run.serial, std::string(run.cut), ""};
  Sum* sum = AddTo(&sink, key, run.run_start, run.run_end);
  sum->site = run.site;
  sum->ops = run.ops;
  sum->kernels += run.kernels;
  sum->aten_calls += run.aten_calls;
  sum->record_ns += run.record_end - run.record_start;
  ++sum->found[static_cast<int>(run.found)];
  WriteIfDue(&sink, key, sum, run.run_end);
  if (sink.last_memory == 0 || run.run_end - sink.last_memory > 4 * WindowAt(run.run_end)) WriteMemory(&sink, run.run_end);
  FlushIfDue(&sink, run.run_end);
}

void WriteFallback(std::string_view op, std::string_view why) {
  if (!EventsEnabled()) return;
  Sink& sink = GetSink();
  const int64_t now = EventTime();
  std::lock_guard<std::mutex> lock(sink.mutex);
  const SumKey key{"fallback", -1, std::string(op), std::string(why)};
  WriteIfDue(&sink, key, AddTo(&sink, key, now, now), now);
}

void ConfigureEvents(const std::string& path) {
  Sink& sink = GetSink();
  std::string problem;
  {
    std::lock_guard<std::mutex> lock(sink.mutex);
    if (path == sink.path) return;
    FlushAll(&sink);
    internal::events_on.store(false, std::memory_order_relaxed);
    if (sink.fd >= 0) close(sink.fd);
    sink.fd = -1;
    sink.sums.clear();
    sink.path = path;
    if (!path.empty()) problem = Open(&sink, path);
  }
  if (!problem.empty()) LogOnce(problem);
}

void FlushEvents() {
  if (!EventsEnabled()) return;
  Sink& sink = GetSink();
  std::lock_guard<std::mutex> lock(sink.mutex);
  FlushAll(&sink);
}

void EndEvents() {
  if (!EventsEnabled()) return;
  FlushEvents();
  Event("exit");
  Sink& sink = GetSink();
  std::lock_guard<std::mutex> lock(sink.mutex);
  WriteOut(&sink);
}

}  // namespace lazuli::runtime
