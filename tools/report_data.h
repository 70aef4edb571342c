// What an event log (docs/TRACE.md) says, added up: the numbers behind a report.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lazuli::tools {

// Something that took `ns` in all, anywhere between two times. Nanoseconds since the log was opened.
struct Span {
  int64_t begin = 0, end = 0, ns = 0;
};

struct TraceData {
  int64_t serial = -1, site = -1, ops = 0;
  bool compiled = false;
  int64_t compile_ns = 0, kernels_compiled = 0, kernel_cache_hits = 0, arena_bytes = 0;
  int64_t runs = 0, run_ns = 0, min_ns = 0, max_ns = 0, kernels = 0, aten_calls = 0;
  std::string why, failure;
};

struct SiteData {
  std::string cause, first_ops, limit;
  int64_t limit_hits = 0;
  std::vector<int64_t> traces;  // Serials, in order of compilation.
};

struct Fallback {
  std::string op, why;
  int64_t count = 0;
};

struct MemorySample {
  int64_t t = 0, used = 0, idle = 0, peak = 0;
};

struct ReportData {
  int64_t pid = 0, end = 0;
  bool ended = false;  // Whether the process ended in order.
  int64_t lines = 0, skipped_lines = 0, unknown_events = 0;
  int64_t runs = 0, ops = 0, hits = 0, predicted = 0, misses = 0;
  int64_t record_ns = 0, run_ns = 0, compile_ns = 0, compiles = 0, recompiles = 0, failures = 0;
  std::vector<Span> recording, compiling, running;
  std::map<int64_t, TraceData> traces;  // By serial; -1: all that ran without a program of their own.
  std::map<int64_t, SiteData> sites;
  std::map<std::string, int64_t> passes;  // Nanoseconds.
  std::map<std::string, int64_t> cuts;
  std::vector<Fallback> fallbacks;
  std::vector<MemorySample> memory;
  std::vector<std::string> stepped_aside, mismatches;
};

// Lines that are no events are skipped and counted. Fails when the first line is not the start of a log of the version that this reads.
absl::StatusOr<ReportData> ReadReport(std::istream& log);

}  // namespace lazuli::tools
