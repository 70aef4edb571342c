#include "runtime/options.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/dump.h"
#include "runtime/events.h"
#include "runtime/history.h"
#include "runtime/log.h"

extern char** environ;

namespace lazuli {
namespace runtime {

// Gives the table the members of Options by name.
struct OptionAccess {
  template <typename T>
  using Setting = Options::Setting<T>;
  template <typename T>
  using Member = Setting<T> Options::*;
  static constexpr Member<std::string> kNoText = nullptr;
#define LAZULI_MEMBER(Type, name) \
  static constexpr Member<Type> name() { return &Options::name##_; }
  LAZULI_MEMBER(std::string, mode)
  LAZULI_MEMBER(std::string, backend)
  LAZULI_MEMBER(std::string, precision)
  LAZULI_MEMBER(std::string, isa)
  LAZULI_MEMBER(std::string, dynamic)
  LAZULI_MEMBER(int64_t, specialize_after)
  LAZULI_MEMBER(int64_t, recompile_limit)
  LAZULI_MEMBER(int64_t, accumulated_recompile_limit)
  LAZULI_MEMBER(std::string, stance)
  LAZULI_MEMBER(bool, error_on_recompile)
  LAZULI_MEMBER(bool, fail_on_recompile_limit_hit)
  LAZULI_MEMBER(bool, fullgraph)
  LAZULI_MEMBER(int64_t, autotune_ms)
  LAZULI_MEMBER(int64_t, cache_size)
  LAZULI_MEMBER(bool, disk_cache)
  LAZULI_MEMBER(std::string, cache_dir)
  LAZULI_MEMBER(int64_t, cache_mb)
  LAZULI_MEMBER(int64_t, trace_limit)
  LAZULI_MEMBER(int64_t, trace_bytes)
  LAZULI_MEMBER(bool, async)
  LAZULI_MEMBER(int64_t, compile_threads)
  LAZULI_MEMBER(int64_t, compile_wait_ms)
  LAZULI_MEMBER(bool, threads)
  LAZULI_MEMBER(bool, autograd_multithreading)
  LAZULI_MEMBER(bool, record_scalars)
  LAZULI_MEMBER(bool, step_aside)
  LAZULI_MEMBER(std::string, head_start)
  LAZULI_MEMBER(std::string, launch_thread)
  LAZULI_MEMBER(bool, pack_weights)
  LAZULI_MEMBER(bool, stacks)
  LAZULI_MEMBER(std::string, logs)
  LAZULI_MEMBER(std::string, log_file)
  LAZULI_MEMBER(std::string, dump)
  LAZULI_MEMBER(std::string, dump_dir)
  LAZULI_MEMBER(std::string, trace)
  LAZULI_MEMBER(int64_t, verify)
#undef LAZULI_MEMBER
};

namespace {

enum class Kind : uint8_t {
  kChoice,  // One of `values`.
  kList,    // A comma-separated list of some of `values`.
  kText,    // Anything.
  kInt,     // A whole number of at least `least`.
  kBool,    // 0 or 1.
};

struct OptionRow {
  std::string env;
  Kind kind;
  std::string default_text;
  std::string help;
  std::vector<std::string> values;
  int64_t least = 0;
  // Where lazuli::Options keeps it; all null for a variable that only the environment has.
  OptionAccess::Member<std::string> text_member = nullptr;
  OptionAccess::Member<int64_t> int_member = nullptr;
  OptionAccess::Member<bool> bool_member = nullptr;
};

OptionRow Text(std::string env, Kind kind, OptionAccess::Member<std::string> member, std::string default_text,
               std::vector<std::string> values, std::string help) {
  return {std::move(env), kind, std::move(default_text), std::move(help), std::move(values), 0, member, nullptr, nullptr};
}

OptionRow Int(std::string env, OptionAccess::Member<int64_t> member, std::string default_text, int64_t least, std::string help) {
  return {std::move(env), Kind::kInt, std::move(default_text), std::move(help), {}, least, nullptr, member, nullptr};
}

OptionRow Bool(std::string env, OptionAccess::Member<bool> member, std::string default_text, std::string help) {
  return {std::move(env), Kind::kBool, std::move(default_text), std::move(help), {"0", "1"}, 0, nullptr, nullptr, member};
}

using A = OptionAccess;

// In the order of Stance.
const std::vector<std::string>& StanceNames() {
  static const auto* const names =
      new std::vector<std::string>{"default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile"};
  return *names;
}

std::vector<OptionRow> MakeTable() {
  return {
      Bool("LAZULI", nullptr, "0",
           "1 turns the mode on for the thread that loads the library: the main one where it is linked or preloaded. Environment only."),
      Text("LAZULI_MODE", Kind::kChoice, A::mode(), "default", {"default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"},
           "torch.compile's mode. reduce-overhead, max-autotune: what a program does on a GPU is captured as a CUDA graph, and launched as "
           "a whole where addresses and sizes come again; graphs keep the memory that a run needs. max-autotune, "
           "max-autotune-no-cudagraphs: other schedules of a kernel's loops than the cost model's are timed, and on a GPU the algorithms "
           "that cuBLASLt has for a product of matrices; the fastest is used, and the disk cache remembers it. On the CPU values do not "
           "depend on it; on a GPU the order of sums may."),
      Int("LAZULI_AUTOTUNE_MS", A::autotune_ms(), "200", 0,
          "Milliseconds that mode max-autotune may take for the schedules of one kernel, on the CPU compiling them included, or for the "
          "algorithms of one product. 0: none, as in mode default."),
      Text("LAZULI_BACKEND", Kind::kChoice, A::backend(), "llvm", {"llvm", "aten"},
           "What compiled programs are made of: llvm, fused kernels with library calls for the rest; aten, one library call per operator, "
           "for comparison."),
      Text("LAZULI_PRECISION", Kind::kChoice, A::precision(), "eager", {"eager", "strict", "fast"},
           "How closely fused kernels follow eager. eager: each IEEE operation as eager, transcendental functions within 1 ulp of their "
           "result's type. strict: "
           "the functions themselves (exp, log, tanh, erf, ...) bit-equal too, but not what is made of them (sigmoid, gelu, softmax, "
           "norms). fast: as eager on the CPU; on a GPU, multiplications and additions may be one rounding, and gelu by tanh of a product "
           "in half precision may be computed before the product is rounded."),
      Text("LAZULI_ISA", Kind::kChoice, A::isa(), "auto", {"auto", "avx512", "avx2", "sse4"},
           "Widest vector instructions that fused kernels use. auto: the CPU's own. A wider one than the CPU has is capped to the CPU's."),
      Text("LAZULI_DYNAMIC", Kind::kChoice, A::dynamic(), "auto", {"auto", "0", "1"},
           "Dynamic shapes. auto: a trace is compiled for its sizes; where it comes again with others, one program is compiled that serves "
           "them all. 0: one program for each set of sizes. 1: sizes of data are left open from the start; those of leaves that require "
           "grad and of what is written in place are not."),
      Int("LAZULI_SPECIALIZE_AFTER", A::specialize_after(), "8", 0,
          "With dynamic shapes (auto): sizes that a program for all sizes ran with so many times in a row get a program of their own "
          "beside it, which counts for no limit. 0: none do."),
      Int("LAZULI_RECOMPILE_LIMIT", A::recompile_limit(), "8", 1,
          "Programs compiled for one site (the place in the program where a trace starts). Past it the site runs eagerly; its programs "
          "stay in use, and for each 1,024 runs of theirs it may have one more."),
      Int("LAZULI_ACCUMULATED_RECOMPILE_LIMIT", A::accumulated_recompile_limit(), "256", 1, "Programs compiled over all sites."),
      Text("LAZULI_STANCE", Kind::kChoice, A::stance(), "default", StanceNames(),
           "What happens to a trace that has no program, as with torch.compiler.set_stance. default: it is compiled. force_eager: nothing "
           "is recorded. eager_on_recompile: it runs op by op; programs that exist are used. fail_on_recompile: it runs op by op, "
           "and the cut throws. eager_then_compile: it is compiled when it comes a second time. lazuli::StanceGuard sets it for a scope."),
      Bool("LAZULI_ERROR_ON_RECOMPILE", A::error_on_recompile(), "0",
           "1: a trace that would get a further program at a site that has one runs op by op instead, and the cut throws an error "
           "that names the guard that failed."),
      Bool("LAZULI_FAIL_ON_RECOMPILE_LIMIT_HIT", A::fail_on_recompile_limit_hit(), "0",
           "1: past a recompile limit, where a trace runs op by op, the cut throws afterwards."),
      Bool("LAZULI_FULLGRAPH", A::fullgraph(), "0",
           "1: a graph break (a read of pending data, an operator on it that cannot be recorded, sync()) throws, and what is pending stays "
           "pending. lazuli::FullGraph does so for a scope."),
      Int("LAZULI_CACHE_SIZE", A::cache_size(), "1024", 1, "Programs kept; the least recently used one goes first."),
      Bool("LAZULI_DISK_CACHE", A::disk_cache(), "1",
           "1 keeps compiled kernels on disk, so that the next process of the same program compiles nothing. 0: neither read nor written."),
      Text("LAZULI_CACHE_DIR", Kind::kText, A::cache_dir(), "", {},
           "Folder of the disk cache; made when missing. Empty: $XDG_CACHE_HOME/lazuli, or ~/.cache/lazuli. Code is run from it, so a "
           "folder that belongs to or can be written by other users is not used. lazuli-cache lists, checks and prunes it."),
      Int("LAZULI_CACHE_MB", A::cache_mb(), "1024", 1, "Megabytes that the disk cache may take; what was not used for longest goes first."),
      Int("LAZULI_TRACE_LIMIT", A::trace_limit(), "4096", 1, "Operators in one trace; a longer one is cut and run."),
      Int("LAZULI_TRACE_BYTES", A::trace_bytes(), "0", 0,
          "Bytes of results that may be pending; when a trace would make more, it is cut and run. 0: 2 GiB, or a quarter of a GPU's "
          "memory; and a sixteenth of that of inputs that the program has let go of."),
      Bool("LAZULI_ASYNC", A::async(), "1",
           "1 compiles what comes a second time, in the background; until a program is ready, its operators run one by one. 0 compiles at "
           "first "
           "sight, and waits."),
      Int("LAZULI_COMPILE_THREADS", A::compile_threads(), "1", 1, "Threads that compile in the background."),
      Int("LAZULI_COMPILE_WAIT_MS", A::compile_wait_ms(), "4000", 0,
          "Milliseconds that traces which come again wait, in all, for programs that are compiled in the background, so that a loop runs "
          "compiled from its second or third step on. A sixteenth of the time that passes is added to what is left. 0: nobody waits."),
      Bool(
          "LAZULI_THREADS", A::threads(), "0",
          "1 turns the mode on, each with a trace of its own, for the threads that a recording thread starts. Needs liblazuli.so linked or "
          "preloaded. Threads of LibTorch and OpenMP are left alone."),
      Bool("LAZULI_AUTOGRAD_MULTITHREADING", A::autograd_multithreading(), "0",
           "0: a thread's first recorded operator on a GPU does what torch.autograd.set_multithreading_enabled(False) does until the "
           "mode ends, so that backward passes run on the thread that starts them, hooks included, as they do on a CPU; autograd would "
           "hand those of a GPU's tensors to a thread of its own, which takes longer than recording them. 1: the program's setting "
           "stays. Counts from where the mode is turned on."),
      Bool("LAZULI_RECORD_SCALARS", A::record_scalars(), "0",
           "0: an operator that computes a 0-dim CPU tensor from others whose values are at hand (an optimizer's step counters) runs at "
           "once, which takes less than recording it. 1: it is recorded like all others."),
      Bool("LAZULI_STEP_ASIDE", A::step_aside(), "1",
           "1: a hot trace of small operators is timed against them run eagerly, once; where its program is slower (with LAZULI_ASYNC=0: "
           "and of eager's very bits), they run eagerly from then on, without being recorded. So do traces past a recompile limit, and "
           "with LAZULI_ASYNC=1, for some seconds at a time, programs many of whose traces have none, if that is found to be faster."),
      Text("LAZULI_HEAD_START", Kind::kChoice, A::head_start(), "auto", {"auto", "0", "1"},
           "Whether the first steps of a program run while the rest of its trace, so far as expected, is still recorded. auto: those of "
           "programs for a GPU, which works meanwhile. 1: of all programs; 0: of none. If it turns out to be another trace, what they did "
           "is taken back."),
      Text("LAZULI_LAUNCH_THREAD", Kind::kChoice, A::launch_thread(), "auto", {"auto", "0", "1"},
           "Whether such steps are launched by a thread of their own, while the program's goes on recording. auto: where recording and "
           "launching, one after the other, may take longer than the GPU. On that thread libraries keep handles of their own."),
      Bool("LAZULI_PACK_WEIGHTS", A::pack_weights(), "0",
           "1: convolutions' weights that stay the same from run to run (inference) are kept in the library's own order, too, which saves "
           "reordering them at each call. They are hashed at each run, so that any change is seen."),
      Bool("LAZULI_STACKS", A::stacks(), "0",
           "1 adds the place in the program (file and line; the function without -g) to the log of recompiles, and to errors of operators "
           "that fail after they were recorded. Slows recording down."),
      Text("LAZULI_LOGS", Kind::kList, A::logs(), "", LogCategoryNames(),
           "What to log, as a comma-separated list with torch.compile's names. recompiles_verbose includes recompiles. fusion: the groups, "
           "what the cost model makes of each, and which kernels run together. autotuning: the schedules that mode max-autotune timed. "
           "cache: why no kernel was taken from disk. summary: lazuli::explain() at exit. cudagraphs: what was captured, and why not."),
      Text("LAZULI_LOG_FILE", Kind::kText, A::log_file(), "", {}, "File that logs are appended to. Empty: stderr."),
      Text("LAZULI_DUMP", Kind::kList, A::dump(), "",
           {"all", "trace", "graph", "fold", "dce", "cse", "windows", "conv_layout", "attention", "remat", "fuse", "column_sums",
            "epilogue", "inline", "reuse", "kernel", "llvm"},
           "Stages of compilation to write as text: a comma-separated list."),
      Text("LAZULI_DUMP_DIR", Kind::kText, A::dump_dir(), "lazuli_dump", {}, "Folder for LAZULI_DUMP; made when missing."),
      Text("LAZULI_TRACE", Kind::kText, A::trace(), "", {},
           "File for what happened and when, one JSON object a line (docs/TRACE.md); lazuli-report makes a page of it. Empty: none."),
      Int("LAZULI_VERIFY", A::verify(), "0", 0,
          "Runs of each program that are also done operator by operator on copies of their inputs, and compared. A difference is logged, "
          "counted in verify_mismatches, and leaves the trace in LAZULI_DUMP_DIR. For finding errors: slow, needs memory for the "
          "copies, and an operator of another library that does more than compute its result does it twice."),
      Text("LAZULI_TORCH", Kind::kText, nullptr, "", {}, "LibTorch's folder for building Lazuli. The library itself ignores it."),
  };
}

const std::vector<OptionRow>& Table() {
  static const auto* const table = new std::vector<OptionRow>(MakeTable());
  return *table;
}

// Variables of programs around the library: tests, benchmarks, and hosts that name the library's path.
bool IsForeign(const std::string& env) {
  return absl::StartsWith(env, "LAZULI_TEST_") || absl::StartsWith(env, "LAZULI_BENCH_") || absl::StartsWith(env, "LAZULI_FUZZ_") ||
         env == "LAZULI_LIB";
}

const OptionRow* FindRow(const std::string& env) {
  for (const OptionRow& row : Table()) {
    if (row.env == env) return &row;
  }
  return nullptr;
}

std::string Suggestion(const std::string& nearest) { return nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?"); }

absl::Status BadChoice(const OptionRow& row, const std::string& value) {
  const char* expected = row.kind == Kind::kList ? "expected a comma-separated list of " : "expected ";
  std::string nearest = NearestName(value, row.values);
  std::string joined = absl::StrJoin(row.values, ", ");
  if (row.values.size() == 2) joined = absl::StrCat(row.values[0], " or ", row.values[1]);
  return absl::InvalidArgumentError(absl::StrCat(row.env, ": invalid value '", value, "': ", expected, joined, Suggestion(nearest)));
}

bool Contains(const std::vector<std::string>& values, const std::string& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

absl::Status CheckText(const OptionRow& row, const std::string& value) {
  if (row.kind == Kind::kText) return absl::OkStatus();
  if (row.kind == Kind::kChoice || row.kind == Kind::kBool) {
    return Contains(row.values, value) ? absl::OkStatus() : BadChoice(row, value);
  }
  if (value.empty()) return absl::OkStatus();
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(value, ','))) {
    if (!Contains(row.values, part)) return BadChoice(row, part);
  }
  return absl::OkStatus();
}

absl::Status BadInt(const OptionRow& row, const std::string& value) {
  return absl::InvalidArgumentError(
      absl::StrCat(row.env, ": invalid value '", value, "': expected a whole number of at least ", row.least));
}

// Checks `value` and, where Options has a member for it, stores it.
absl::Status ParseInto(const OptionRow& row, const std::string& value, Options& options) {
  if (row.kind == Kind::kInt) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(value, &number) || number < row.least) return BadInt(row, value);
    options.*row.int_member = {number, true};
    return absl::OkStatus();
  }
  absl::Status status = CheckText(row, value);
  if (!status.ok()) return status;
  if (row.bool_member != nullptr) options.*row.bool_member = {value == "1", true};
  if (row.text_member != nullptr) options.*row.text_member = {value, true};
  return absl::OkStatus();
}

// Checks what code has set.
absl::Status CheckMember(const OptionRow& row, const Options& options) {
  if (row.int_member != nullptr) {
    const int64_t value = (options.*row.int_member).value;
    return value < row.least ? BadInt(row, std::to_string(value)) : absl::OkStatus();
  }
  return row.text_member != nullptr ? CheckText(row, (options.*row.text_member).value) : absl::OkStatus();
}

absl::Status UnknownVariable(const std::string& env) {
  std::vector<std::string> names;
  for (const OptionRow& row : Table()) names.push_back(row.env);
  std::string nearest = NearestName(env, names);
  std::string valid = nearest.empty() ? absl::StrCat("; valid: ", absl::StrJoin(names, ", ")) : Suggestion(nearest);
  return absl::InvalidArgumentError(absl::StrCat(env, ": no such option", valid));
}

// The LAZULI_* variables, sorted so that messages do not depend on the environment's order.
std::vector<std::pair<std::string, std::string>> LazuliVariables() {
  std::vector<std::pair<std::string, std::string>> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    std::pair<std::string, std::string> variable = absl::StrSplit(*entry, absl::MaxSplits('=', 1));
    const bool ours = variable.first == "LAZULI" || absl::StartsWith(variable.first, "LAZULI_");
    if (ours && !IsForeign(variable.first)) variables.push_back(std::move(variable));
  }
  std::sort(variables.begin(), variables.end());
  return variables;
}

template <typename T>
void OverlayMember(OptionAccess::Member<T> member, const Options& from, Options& to) {
  if (member != nullptr && (from.*member).is_set) to.*member = from.*member;
}

std::atomic<const ActiveOptions*> active_options{nullptr};

// Readers hold references without a lock, so what was once active is kept; equal options share one copy, which bounds the growth by
// the number of different options a program uses.
const ActiveOptions* Intern(const Options& options) {
  static std::mutex* const mutex = new std::mutex;
  static auto* const kept = new std::vector<const ActiveOptions*>;
  std::lock_guard<std::mutex> lock(*mutex);
  for (const ActiveOptions* candidate : *kept) {
    if (candidate->options == options) return candidate;
  }
  kept->push_back(internal::MakeActive(options));
  return kept->back();
}

std::string DefaultText(const OptionRow& row) { return row.default_text.empty() ? "empty" : row.default_text; }

std::string AcceptedText(const OptionRow& row, const char* quote) {
  switch (row.kind) {
    case Kind::kText:
      return "any text";
    case Kind::kInt:
      return absl::StrCat("a whole number of at least ", row.least);
    default:
      break;
  }
  std::vector<std::string> quoted;
  for (const std::string& value : row.values) quoted.push_back(absl::StrCat(quote, value, quote));
  return absl::StrCat(row.kind == Kind::kList ? "list of " : "", absl::StrJoin(quoted, ", "));
}

bool HasMember(const OptionRow& row) { return row.text_member != nullptr || row.int_member != nullptr || row.bool_member != nullptr; }

// "LAZULI_TRACE_LIMIT" -> "trace_limit".
std::string MemberName(const OptionRow& row) {
  std::string name(absl::StripPrefix(row.env, "LAZULI_"));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

}  // namespace

absl::StatusOr<Options> OptionsFromEnv() {
  Options options;
  std::vector<std::string> problems;
  for (const auto& [env, value] : LazuliVariables()) {
    const OptionRow* row = FindRow(env);
    const absl::Status status = row == nullptr ? UnknownVariable(env) : ParseInto(*row, value, options);
    if (!status.ok()) problems.emplace_back(status.message());
  }
  if (!problems.empty()) return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
  return options;
}

absl::StatusOr<Options> ResolveOptions(const Options& options) {
  absl::StatusOr<Options> resolved = OptionsFromEnv();
  if (!resolved.ok()) return resolved;
  std::vector<std::string> problems;
  for (const OptionRow& row : Table()) {
    OverlayMember(row.text_member, options, *resolved);
    OverlayMember(row.int_member, options, *resolved);
    OverlayMember(row.bool_member, options, *resolved);
    const absl::Status status = CheckMember(row, *resolved);
    if (!status.ok()) problems.emplace_back(status.message());
  }
  if (!problems.empty()) return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
  return resolved;
}

absl::StatusOr<Stance> ParseStance(const std::string& name) {
  const auto& names = StanceNames();
  const auto it = std::find(names.begin(), names.end(), name);
  if (it == names.end()) return BadChoice(*FindRow("LAZULI_STANCE"), name);
  return static_cast<Stance>(it - names.begin());
}

absl::StatusOr<bool> EnabledFromEnv() {
  const char* value = std::getenv("LAZULI");
  if (value == nullptr || std::string_view(value) == "0") return false;
  absl::StatusOr<Options> options = OptionsFromEnv();
  if (!options.ok()) return options.status();
  return true;
}

void ExitForBadOptions(const absl::Status& status) {
  LogAlways(std::string(status.message()));
  // Not exit(): at load time the program's own static objects may not exist yet.
  std::_Exit(2);
}

absl::Status ActivateOptions(const Options& options) {
  absl::StatusOr<Options> resolved = ResolveOptions(options);
  if (!resolved.ok()) return resolved.status();
  active_options.store(Intern(*resolved), std::memory_order_release);
  ConfigureLog(resolved->logs(), resolved->log_file());
  ConfigureDump(resolved->dump(), resolved->dump_dir());
  ConfigureEvents(resolved->trace());
  ReportAtExit();
  return absl::OkStatus();
}

const ActiveOptions& Active() {
  const ActiveOptions* active = active_options.load(std::memory_order_acquire);
  if (active != nullptr) return *active;
  static const ActiveOptions* const defaults = Intern(Options());
  return *defaults;
}

const char* BackendName(Backend backend) { return backend == Backend::kAten ? "aten" : "llvm"; }

const char* PrecisionName(Precision precision) {
  if (precision == Precision::kStrict) return "strict";
  return precision == Precision::kFast ? "fast" : "eager";
}

const char* IsaName(Isa isa) {
  if (isa == Isa::kSse4) return "sse4";
  return isa == Isa::kAvx2 ? "avx2" : "avx512";
}

std::string OptionsHelp() {
  std::string text;
  for (const OptionRow& row : Table()) {
    absl::StrAppend(&text, row.env, " (", AcceptedText(row, ""), "; default: ", DefaultText(row), ")\n    ", row.help, "\n");
  }
  return text;
}

std::string OptionsMarkdown() {
  std::string text =
      "# Options\n\n"
      "Generated by `lazuli-options --markdown`; do not edit.\n\n"
      "A value set in code (`lazuli::Options().recompile_limit(16)`) wins over the environment, which wins over the default. An unknown\n"
      "`LAZULI_*` variable or an invalid value is an error that names the nearest valid one. Variables that start with `LAZULI_TEST_` or\n"
      "`LAZULI_BENCH_` belong to the project's own programs and are ignored by the library.\n\n"
      "| variable | in code | accepted | default | meaning |\n|---|---|---|---|---|\n";
  for (const OptionRow& row : Table()) {
    const std::string member = HasMember(row) ? absl::StrCat("`", MemberName(row), "`") : "";
    absl::StrAppend(&text, "| `", row.env, "` | ", member, " | ", AcceptedText(row, "`"), " | ",
                    row.default_text.empty() ? "" : absl::StrCat("`", row.default_text, "`"), " | ", row.help, " |\n");
  }
  return text;
}

}  // namespace runtime

Options::Options() {
  for (const runtime::OptionRow& row : runtime::Table()) {
    if (row.text_member != nullptr) (this->*row.text_member).value = row.default_text;
    if (row.bool_member != nullptr) (this->*row.bool_member).value = row.default_text == "1";
    if (row.int_member != nullptr) (this->*row.int_member).value = std::stoll(row.default_text);
  }
}

bool Options::operator==(const Options& other) const {
  for (const runtime::OptionRow& row : runtime::Table()) {
    if (row.text_member != nullptr && (this->*row.text_member).value != (other.*row.text_member).value) return false;
    if (row.bool_member != nullptr && (this->*row.bool_member).value != (other.*row.bool_member).value) return false;
    if (row.int_member != nullptr && (this->*row.int_member).value != (other.*row.int_member).value) return false;
  }
  return true;
}

}  // namespace lazuli
