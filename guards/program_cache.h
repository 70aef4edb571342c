// Compiled programs by trace, grouped by site, under the recompile limit.
//
// A site is where traces start: the cause of the cut before them and the ops they begin with. Each distinct trace at a site is a variant
// with a program of its own. Past recompile_limit variants, new traces of that site run op by op; variants that exist go on being used.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "codegen/ir/trace_log.h"
#include "guards/eager_trial.h"
#include "runtime/program.h"

namespace lazuli::guards {

struct Site;

// One trace that was seen, and what runs it. Shared by the cache and by recorders that predict it.
struct CachedTrace {
  codegen::TraceLog log;  // Complete; scalars as they were, offsets empty.
  uint64_t hash = 0;
  int64_t serial = 0;    // "trace #4": order of first sight in this process.
  Site* site = nullptr;  // Never freed while the cache lives.
  std::unique_ptr<runtime::Program> program;
  bool compiled = false;                 // False: `program` replays the trace, because compiling it failed.
  std::mutex run_mutex;                  // Programs keep buffers, so one run at a time.
  std::weak_ptr<CachedTrace> successor;  // The trace that followed last time. Guarded by the cache's lock.
  uint64_t last_use = 0;
  EagerTrial trial;  // Of short traces whose results are bit-equal to eager's.
};
using CachedTracePtr = std::shared_ptr<CachedTrace>;

struct Site {
  int64_t id = 0;
  std::string cause;  // Of the cut before it.
  std::vector<std::weak_ptr<CachedTrace>> variants;
  int64_t programs = 0;  // Compiled here in all.
  bool limit_logged = false;
};

// Thread-safe.
class ProgramCache {
 public:
  static ProgramCache& Get();

  // The cached trace equal to `log`; null when there is none. `log` must be complete.
  CachedTracePtr Find(const codegen::TraceLog& log);

  // What runs `log`, which Find() did not know: compiles it when its site's limit allows, and says why in the log; past the limit, null:
  // the caller replays the trace. `cause` is that of the cut before the trace; `location` the program's "file:line", or empty.
  CachedTracePtr Compile(const codegen::TraceLog& log, std::string_view cause, std::string_view location);

  // Notes that `next` came after `previous`, so that it can be predicted.
  void SetSuccessor(const CachedTracePtr& previous, const CachedTracePtr& next);
  CachedTracePtr Successor(const CachedTracePtr& previous);

  void Clear();
  size_t size();

 private:
  Site& FindSite(const codegen::TraceLog& log, std::string_view cause);
  void EvictOverCapacity(size_t capacity);
  void ReportCompile(const Site& site, const codegen::TraceLog& log, int64_t serial, std::string_view location);

  std::mutex mutex_;
  absl::flat_hash_map<uint64_t, std::vector<CachedTracePtr>> traces_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Site>> sites_;
  size_t size_ = 0;
  int64_t next_serial_ = 0;
  int64_t recompiles_ = 0;
  uint64_t clock_ = 0;
};

// Hash of a complete log: code and shapes. Equality always confirms.
uint64_t Fingerprint(const codegen::TraceLog& log);

}  // namespace lazuli::guards
