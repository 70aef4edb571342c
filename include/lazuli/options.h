// Options of a DeviceMode, in LibTorch's fluent style:
//
//   lazuli::DeviceMode mode(lazuli::Options().mode("max-autotune").recompile_limit(16));
//
// Every option has an environment variable (LAZULI_ and its name in capitals). A value set in code wins over the environment, which
// wins over the built-in default. Accepted values, ranges and defaults: docs/OPTIONS.md. Setters only store; DeviceMode checks the
// values and throws c10::Error, naming the nearest valid one.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "lazuli/export.h"

namespace lazuli {
namespace runtime {
struct OptionAccess;
}

// Copyable value; not synchronised.
class LAZULI_API Options {
 public:
  // Built-in defaults, nothing set.
  Options();

  // Equal values, however they came about.
  bool operator==(const Options& other) const;
  bool operator!=(const Options& other) const { return !(*this == other); }

// A getter, a setter that returns *this, and the storage behind them.
#define LAZULI_OPTION(Type, name)                    \
 public:                                             \
  const Type& name() const { return name##_.value; } \
  Options& name(Type value) {                        \
    name##_.value = std::move(value);                \
    name##_.is_set = true;                           \
    return *this;                                    \
  }                                                  \
                                                     \
 private:                                            \
  Setting<Type> name##_

 private:
  template <typename T>
  struct Setting {
    T value{};
    bool is_set = false;  // In code, or from the environment.
  };
  friend struct runtime::OptionAccess;

  LAZULI_OPTION(std::string, mode);                     // torch.compile's mode.
  LAZULI_OPTION(std::string, backend);                  // "llvm" or "aten".
  LAZULI_OPTION(std::string, precision);                // "eager", "strict" or "fast".
  LAZULI_OPTION(std::string, isa);                      // Widest vector instructions to use.
  LAZULI_OPTION(std::string, dynamic);                  // "auto", "0" or "1".
  LAZULI_OPTION(bool, async);                           // Compile in the background.
  LAZULI_OPTION(int64_t, compile_threads);              // At most so many threads do.
  LAZULI_OPTION(int64_t, compile_wait_ms);              // That traces wait for it, in all.
  LAZULI_OPTION(int64_t, specialize_after);             // Runs with the same sizes before they get a program of their own.
  LAZULI_OPTION(int64_t, recompile_limit);              // Programs per site.
  LAZULI_OPTION(int64_t, accumulated_recompile_limit);  // Programs over all sites.
  LAZULI_OPTION(std::string, stance);                   // What happens to traces without a program.
  LAZULI_OPTION(bool, error_on_recompile);              // Throw where a site would get a further program.
  LAZULI_OPTION(bool, fail_on_recompile_limit_hit);     // Throw past a limit.
  LAZULI_OPTION(bool, fullgraph);                       // Throw at graph breaks.
  LAZULI_OPTION(int64_t, autotune_ms);                  // For timing the schedules of one kernel.
  LAZULI_OPTION(int64_t, cache_size);                   // Programs kept.
  LAZULI_OPTION(bool, disk_cache);                      // Keep compiled kernels on disk.
  LAZULI_OPTION(std::string, cache_dir);                // Where; empty: in the user's cache folder.
  LAZULI_OPTION(int64_t, cache_mb);                     // Their size on disk, at most.
  LAZULI_OPTION(int64_t, trace_limit);                  // Operators per trace.
  LAZULI_OPTION(int64_t, trace_bytes);                  // Bytes of results that may be pending.
  LAZULI_OPTION(bool, threads);                         // Threads that a recording thread starts record too.
  LAZULI_OPTION(bool, autograd_multithreading);         // Backward passes of a GPU's tensors on autograd's own threads.
  LAZULI_OPTION(bool, record_scalars);                  // Record operators on 0-dim CPU tensors at hand, too.
  LAZULI_OPTION(bool, step_aside);                      // Run eagerly where a program turns out slower.
  LAZULI_OPTION(std::string, head_start);               // "auto", "0" or "1".
  LAZULI_OPTION(std::string, launch_thread);            // "auto", "0" or "1".
  LAZULI_OPTION(bool, pack_weights);                    // Keep weights that stay the same in the library's order, too.
  LAZULI_OPTION(bool, stacks);                          // File and line of the program in logs and errors.
  LAZULI_OPTION(std::string, logs);                     // Comma-separated log categories.
  LAZULI_OPTION(std::string, log_file);                 // Empty: stderr.
  LAZULI_OPTION(std::string, dump);                     // Comma-separated stages to write as text.
  LAZULI_OPTION(std::string, dump_dir);
  LAZULI_OPTION(std::string, trace);  // File for events, one JSON object a line.
  LAZULI_OPTION(int64_t, verify);     // Runs of each program that are compared with eager.
#undef LAZULI_OPTION
};

}  // namespace lazuli
