// Compiled programs by trace, grouped by site, under the recompile limit.
//
// A site is where traces start: the cause of the cut before them and the ops they begin with. A trace seen for the first time gets a
// program of its own. When the same code comes with other sizes, a program with symbols is compiled (shape_policy.h), which then serves
// every size, and sizes that it runs with again and again get programs of their own beside it (hot_sizes.h), which count for no limit. Past
// recompile_limit programs, new traces of that site run op by op; programs that exist go on being used, and earn it more by the time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "codegen/ir/trace_log.h"
#include "guards/looks.h"
#include "guards/skeleton.h"
#include "guards/works.h"
#include "runtime/program.h"

namespace lazuli::guards {

class CompilePolicy;

// One trace that was seen, and what runs it. Shared by the cache and by recorders that predict it.
struct CachedTrace {
  codegen::TraceLog log;  // Complete; scalars as they were, offsets empty.
  uint64_t hash = 0;
  int64_t serial = 0;  // "trace #4": order of first sight in this process; that of its program's first trace.
  SitePtr site;        // Lives on where the cache is cleared.
  std::shared_ptr<CompiledProgram> body;
  std::vector<int64_t> symbols;  // Values of the program's symbols.
  Skeleton* skeleton = nullptr;  // Never freed while it has traces.
  Successors successors;         // Traces that followed. Guarded by the cache's lock.
  bool specialized = false;      // It is none of the cache's (ProgramCache::Specialize).
  uint64_t last_use = 0;
  std::atomic<int> wider_runs{0};            // In place of traces of which less was visible.
  std::atomic<bool> widest{false};           // It is there to run in place of those.
  std::atomic<int> came_again{0};            // Since it was seen once, where that is no reason to compile it.
  std::unique_ptr<runtime::Program> replay;  // While `body` is not ready. Guarded by its run_mutex.
};

// So many operators at its start, besides the cause of the cut before it, say at which site a trace is.
constexpr size_t kSiteOps = 8;

// The cause of cuts between blocks (tracer/block_cutter.h). What follows them is no place of the program, so a site may have as many
// programs as this many others.
constexpr std::string_view kBlock = "block";
constexpr int64_t kBlockSites = 8;
// That of cuts between rounds of a loop (tracer/loop_finder.h), to which the same applies.
constexpr std::string_view kLoop = "loop";
// Whether what is cut for `cause`, and what follows, are pieces of traces, which are no places of the program.
inline bool IsOfPieces(std::string_view cause) { return cause == kBlock || cause == kLoop; }
// That of cuts between the beginnings of traces, which are ever others, and what follows them all (loop_finder.h, too).
constexpr std::string_view kEnding = "ending";

// How the rest of a trace is best taken, by what is known of those that began like it.
enum class Advice : uint8_t {
  kRecord,
  kBlocks,   // They are new, ever again: in blocks, which may come back.
  kEagerly,  // Next to none of them has a program, and none may be compiled.
};

// Traces that have the cause of the cut before them in common, and what they are up to a few operators after they left what was predicted.
struct Fork {
  double program_share = 1;  // Of late, those that had a program or got one.
  size_t last_ops = 0;       // Of the last one without.
  // Of those that were best run eagerly some are recorded, to see whether they still are.
  static constexpr int64_t kFewest = 16, kRarely = 256;
  Looks asides{kFewest, kRarely};
};
// 0: none.
struct ForkKeys {
  uint64_t same_ops = 0;
  uint64_t same_trace = 0;  // Sizes and all.
};

struct Site {
  int64_t id = 0;
  std::string cause;  // Of the cut before it.
  std::vector<std::weak_ptr<CachedTrace>> variants;
  int64_t programs = 0;          // Compiled here and still there.
  std::atomic<int64_t> runs{0};  // Of these, so far; may miss some where threads run them at the same time.
  bool limit_logged = false;
  bool pieces_logged = false;
  int64_t new_in_a_row = 0;  // Traces whose code was new, since one was known.
  // It had no room for the last trace that asked for a program. What follows one of its traces may well turn out to be another one.
  std::atomic<bool> refuses{false};

  // Runs of its programs for which it may have one more than the limit: by then they have saved what compiling that takes.
  static constexpr int64_t kRunsForOneMore = 1024;
  void NoteRun() { runs.store(runs.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
};

// Thread-safe.
class ProgramCache {
 public:
  static ProgramCache& Get();

  // Keeps traces whose logs take so many bytes at most, or one: long traces that never come again are not worth much memory.
  explicit ProgramCache(size_t most_log_bytes = 64 << 20) : most_log_bytes_(most_log_bytes) {}

  // The cached trace equal to `log`, or a new one that a program with symbols serves; null when there is none. `log` must be complete.
  CachedTracePtr Find(const codegen::TraceLog& log);

  // A cached trace that is `log` but for results which nobody can see this time, with a program: `predicted`, null for none, or one of
  // those that start like `log` after a cut for `cause`. Null when there is none, or when it was found so often that this is no chance,
  // unless it is there for that. (Threads of autograd let go of tensors sooner or later than the last time.)
  CachedTracePtr FindWider(const codegen::TraceLog& log, std::string_view cause, const CachedTracePtr& predicted);

  // What runs `log`, which Find() did not know: compiles it when `policy` and its site's limit allow, and says why in the log; otherwise
  // null: the caller replays the trace. When compiling in the background, a trace whose code is new only counts as seen. Where it came
  // with other visible results more often than the site's limit, it is one that shows all that any of them did. `cause` is that of the
  // cut before the trace; `location` the program's "file:line", or empty.
  CachedTracePtr Compile(const codegen::TraceLog& log, std::string_view cause, std::string_view location, CompilePolicy* policy);

  // `entry`, or the trace that took its place in the cache; null when there is none. (What was seen once is replaced when it comes again; a
  // recorder that did not run it then may still expect it.)
  CachedTracePtr Current(const CachedTracePtr& entry);

  // What runs `entry`, which was seen once and comes again: compiles it if `policy` and the limits allow.
  CachedTracePtr CompileSeen(const CachedTracePtr& entry, std::string_view location, CompilePolicy* policy);

  // The trace of `log`'s sizes alone, with a program of its own: the one of `general` serves all sizes, and ran with these again and again
  // (hot_sizes.h). Null where the program marks sizes as dynamic, or where other numbers than the symbols may be any. It is not in the
  // cache: whoever asks keeps it.
  CachedTracePtr Specialize(const CachedTrace& general, const codegen::TraceLog& log);

  // For a trace that starts like `log`, which has kSiteOps operators or more, after a cut for `cause`: what it has so far are its forks.
  // With kEagerly, `num_ops` becomes the length of the last trace there.
  Advice AdviceFor(const codegen::TraceLog& log, std::string_view cause, ForkKeys* forks, size_t* num_ops);
  // A trace of `forks` was cut, which `entry`, null for none, runs.
  void NoteTrace(const std::vector<ForkKeys>& forks, const codegen::TraceLog& log, std::string_view cause, const CachedTracePtr& entry);

  // `log`, for which there is `entry`, null for none, is new. Whether the traces that begin like it, after a cut for `cause`, are too many
  // for a program each: their site has no room for this one, or more than the recompile limit were new one after the other.
  bool HasTooMany(const CachedTracePtr& entry, const codegen::TraceLog& log, std::string_view cause);
  // Whether there is a program for a trace that begins as `log`, of kSiteOps operators or more, after a cut for `cause`, and goes on with
  // operator `op_id`.
  bool GoesOn(const codegen::TraceLog& log, std::string_view cause, int32_t op_id);

  // From here on these, which `how`, are cut into pieces that come back: what was known of them is forgotten.
  void NotePieces(const codegen::TraceLog& log, std::string_view cause, std::string_view how);

  // Whether a trace came before that is `log` but for which of its inputs share their memory, and numbers; `separated` is SeparateReads of
  // it.
  bool CameWithOtherAliases(const codegen::TraceLog& log, const codegen::TraceLog& separated);

  // Notes that `next` came after `previous`, null for none that is known, and a cut for `cause`, so that it can be predicted.
  void NoteSuccessor(const CachedTracePtr& previous, std::string_view cause, const CachedTracePtr& next);
  // The trace that is most likely to come there. Null: nobody knows.
  CachedTracePtr Successor(const CachedTracePtr& previous, std::string_view cause);
  // The same when its first operator is known, `op_id`.
  CachedTracePtr SuccessorStartingWith(const CachedTracePtr& previous, std::string_view cause, int32_t op_id);

  // How the shapes of results are known. Set once, before anything is compiled.
  void SetShapeInference(ShapeInference infer) { infer_shapes_ = infer; }

  // All that came there of late, the last one first; some may come twice.
  std::vector<CachedTracePtr> AllSuccessors(const CachedTracePtr& previous, std::string_view cause);

  void Clear();
  size_t size();

 private:
  CachedTracePtr FindSuccessor(const CachedTracePtr& previous, std::string_view cause,
                               absl::FunctionRef<CachedTracePtr(const Successors&)> choose);
  static uint64_t SiteKey(const codegen::TraceLog& log, std::string_view cause);
  // So many programs `site` may have.
  static int64_t LimitOf(const Site& site);
  // Whether `site` may have no more programs.
  bool IsFull(const Site& site) const;
  const SitePtr& FindSite(const codegen::TraceLog& log, std::string_view cause);
  // Find(), with the lock held.
  CachedTracePtr FindKnown(const codegen::TraceLog& log);
  Skeleton* FindSkeleton(const codegen::TraceLog& log);
  Skeleton& GetSkeleton(const codegen::TraceLog& log);
  // Whether one more program may be compiled at `site`; if not, says so the first time.
  bool LimitAllows(Site* site, const codegen::TraceLog& log, int64_t serial, std::string_view location, CompilePolicy* policy);
  CachedTracePtr MakeTrace(const codegen::TraceLog& log, SitePtr site, Skeleton* skeleton, std::shared_ptr<CompiledProgram> body);
  // A trace for `log` that one of its skeleton's programs with symbols serves; null when none does.
  CachedTracePtr MakeServed(const codegen::TraceLog& log, Skeleton* skeleton);
  // The trace of `work`, which `log` is one of and `is_new` or was seen before, that shows all that could be seen of it, if that is due.
  CachedTracePtr FindWidest(Work* work, const codegen::TraceLog& log, bool is_new, const SitePtr& site, std::string_view location,
                            CompilePolicy* policy);
  void Insert(const CachedTracePtr& entry);
  void InsertServed(const CachedTracePtr& entry);
  // Compiles `entry`, unless `policy` or a limit forbids it.
  bool Request(const CachedTracePtr& entry, std::string_view location, CompilePolicy* policy);
  void Schedule(const CachedTracePtr& entry, std::string_view location);
  // Gives `entry` a program with symbols, if its sizes call for one.
  bool MakeDynamic(CachedTrace* entry);
  void EvictOverCapacity();
  // The trace that was used least recently; there is one.
  CachedTracePtr Oldest();
  void Evict(CachedTracePtr entry);
  // Takes `entry` out of the counts of its site and its skeleton.
  void Forget(CachedTrace* entry);
  void ReportCompile(const Site& site, const codegen::TraceLog& log, int64_t serial, std::string_view location);

  const size_t most_log_bytes_;
  ShapeInference infer_shapes_ = nullptr;
  std::mutex mutex_;
  absl::flat_hash_map<uint64_t, std::vector<CachedTracePtr>> traces_;
  absl::flat_hash_map<uint64_t, SitePtr> sites_;
  absl::flat_hash_map<uint64_t, std::vector<std::unique_ptr<Skeleton>>> skeletons_;
  absl::flat_hash_map<uint64_t, Fork> forks_;
  std::map<std::string, Successors, std::less<>> after_cause_;  // Of traces before which no other is known.
  absl::flat_hash_map<uint64_t, uint64_t> alias_patterns_;      // The code of the first trace that came, by what it is separated. Hashes.
  Works works_;
  size_t size_ = 0;
  size_t log_bytes_ = 0;
  int64_t next_serial_ = 0;
  int64_t recompiles_ = 0;
  bool accumulated_limit_logged_ = false;
  std::vector<std::pair<uint64_t, std::weak_ptr<CachedTrace>>> oldest_;  // By last use as it was then, the newest first.
  uint64_t clock_ = 0;
};

// Hash of a complete log: code and shapes. Equality always confirms.
uint64_t Fingerprint(const codegen::TraceLog& log);
// Of its code alone.
uint64_t HashCode(const codegen::TraceLog& log);

}  // namespace lazuli::guards
