// Options behind lazuli::Options: reading the environment, validation, and the values in force in this process.
//
// One table in options.cpp is the source of names, environment variables, defaults, accepted values and help text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lazuli/options.h"

namespace lazuli::runtime {

enum class Backend : uint8_t { kLlvm, kAten };
enum class Precision : uint8_t { kEager, kStrict, kFast };
// "0", "auto", "1".
enum class When : uint8_t { kNever, kAuto, kAlways };
enum class Isa : uint8_t { kSse4, kAvx2, kAvx512 };
// torch.compiler.set_stance's: what happens to a trace that has no program.
enum class Stance : uint8_t { kDefault, kForceEager, kEagerOnRecompile, kFailOnRecompile, kEagerThenCompile };

// Validated options in the form that warm paths want. Immutable once active.
struct ActiveOptions {
  Options options;
  Backend backend = Backend::kLlvm;
  Precision precision = Precision::kEager;
  Isa isa = Isa::kSse4;  // Already capped by what this CPU has.
  When dynamic = When::kAuto;
  bool async = true;
  int64_t compile_threads = 1;
  int64_t compile_wait_ms = 0;
  bool threads = false;
  bool record_scalars = false;
  bool autograd_multithreading = false;
  bool step_aside = true;
  When head_start = When::kAuto;
  When launch_thread = When::kAuto;
  bool pack_weights = false;
  bool stacks = false;
  int64_t specialize_after = 0;
  int64_t recompile_limit = 0;
  int64_t accumulated_recompile_limit = 0;
  Stance stance = Stance::kDefault;
  bool error_on_recompile = false;
  bool fail_on_recompile_limit_hit = false;
  bool fullgraph = false;
  int64_t autotune_ms = 0;  // 0 in modes that time nothing.
  bool cudagraphs = false;
  int64_t cache_size = 0;
  int64_t trace_limit = 0;
  int64_t trace_bytes = 0;
  int64_t verify = 0;
};

// The built-in defaults overlaid with every LAZULI_* variable of the environment. InvalidArgument names each unknown variable and bad
// value, one a line, with the nearest valid one.
absl::StatusOr<Options> OptionsFromEnv();

// `options`, with what it leaves unset taken from the environment, all checked.
absl::StatusOr<Options> ResolveOptions(const Options& options);

namespace internal {
// `options`, which are complete and valid, as ActiveOptions. Never freed.
const ActiveOptions* MakeActive(const Options& options);
}  // namespace internal

// The stance called `name` ("fail_on_recompile"); InvalidArgument names the nearest one.
absl::StatusOr<Stance> ParseStance(const std::string& name);

// What LAZULI in the environment asks for when the library is loaded. False when it is unset or 0, whatever else is wrong; when it is
// 1, or anything else, the whole environment is checked too.
absl::StatusOr<bool> EnabledFromEnv();

// Prints the status to stderr, line by line, and ends the process with status 2. For load time, where nobody could catch an exception.
[[noreturn]] void ExitForBadOptions(const absl::Status& status);

// Resolves `options` and puts them in force: Active(), the log and the dumps. Thread-safe.
absl::Status ActivateOptions(const Options& options);

// The options in force: those of the last ActivateOptions, else the built-in defaults. Never blocks; the reference stays valid for the
// life of the process.
const ActiveOptions& Active();

// The spelling that options, KernelTarget and logs use.
const char* BackendName(Backend backend);
const char* PrecisionName(Precision precision);
const char* IsaName(Isa isa);

// Help for terminals: one paragraph per variable.
std::string OptionsHelp();
// docs/OPTIONS.md.
std::string OptionsMarkdown();

// The candidate with the smallest edit distance to `name`; empty when none is near enough to be a likely slip.
std::string NearestName(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace lazuli::runtime
