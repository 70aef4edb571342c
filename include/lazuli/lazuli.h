// Lazuli's public interface: turn the device mode on, look at what it did, and settle pending work.
//
//   #include <lazuli/lazuli.h>
//   lazuli::DeviceMode mode;   // From here to the end of the scope, tensor operations are recorded, compiled and run lazily.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "lazuli/export.h"
#include "lazuli/options.h"
#include "lazuli/stats.h"

namespace at {
class Tensor;
}

namespace lazuli {
namespace tracer {
class Recorder;
}

// Records this thread's tensor operations while it lives, its backward passes' among them, which run on this thread, hooks included
// (Options::autograd_multithreading: on threads of autograd's that it starts, where they are a GPU's). Modes nest; only the outermost ends
// recording. The destructor runs what is pending; an error that this raises is logged, so call sync() first to catch it.
// Must be destroyed on the thread that made it. Throws c10::Error when an option is invalid.
class LAZULI_API DeviceMode {
 public:
  DeviceMode();
  explicit DeviceMode(const Options& options);
  ~DeviceMode();
  DeviceMode(const DeviceMode&) = delete;
  DeviceMode& operator=(const DeviceMode&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// While it lives, this thread's operations run eagerly inside a DeviceMode; pending work is settled when they need it, or before the
// scope when it is yet to read memory that they may overwrite. The constructor throws the first error of that work.
class LAZULI_API EagerScope {
 public:
  EagerScope();
  ~EagerScope();
  EagerScope(const EagerScope&) = delete;
  EagerScope& operator=(const EagerScope&) = delete;

 private:
  unsigned char saved_;
};

// The stance of this thread, and of the backward threads it starts, while it lives: what happens to a trace that has no program, with the
// names and meaning of torch.compiler.set_stance.
//   default              It is compiled.
//   force_eager          Nothing is recorded; pending work is settled as by EagerScope.
//   eager_on_recompile   It runs op by op, and nothing is compiled or remembered. Programs that exist are used.
//   fail_on_recompile    It runs op by op, so that nothing is lost; then the cut throws c10::Error, which says what needed a compile.
//   eager_then_compile   It runs op by op the first time, and is compiled the second time.
// The stance at the cut counts. Guards nest, each restores what was before it, and one that was opened before a DeviceMode counts for that
// mode too; inside an EagerScope nothing is recorded whatever the stance. Must be destroyed on the thread that made it. The
// destructor logs errors of work that it has to settle. Throws c10::Error for any other name, with the nearest one.
class LAZULI_API StanceGuard {
 public:
  explicit StanceGuard(const std::string& stance);
  ~StanceGuard();
  StanceGuard(const StanceGuard&) = delete;
  StanceGuard& operator=(const StanceGuard&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The same without a scope, until the next call or the end of the guard that it is called under.
LAZULI_API void set_stance(const std::string& stance);

// While it lives, a graph break on this thread, or on the backward threads it starts, throws c10::Error, which names its cause and the
// place in the program: a read of pending data (item(), data_ptr()), an operator on pending data that cannot be recorded, or sync().
// Nothing has run then, and nothing is lost: the same read works after the scope. No errors: the budgets of a trace, the end of the mode,
// the first sight of an operator that must run to show its results' shapes, and what runs eagerly without a cut. The end of the scope
// cuts nothing. Scopes nest. Must be destroyed on the thread that made it.
class LAZULI_API FullGraph {
 public:
  FullGraph();
  ~FullGraph();
  FullGraph(const FullGraph&) = delete;
  FullGraph& operator=(const FullGraph&) = delete;

 private:
  tracer::Recorder* recorder_;
};

// Turns the mode on or off for this thread without a scope (environment variable, Python, other languages). enable() twice is one
// enable(); disable() runs what is pending.
LAZULI_API void enable();
LAZULI_API void enable(const Options& options);
LAZULI_API void disable();

// True while this thread's operations are recorded.
LAZULI_API bool is_enabled();

// Runs everything recorded so far. Rethrows, as eager would have raised it, the first error of an operation.
LAZULI_API void sync();

// Forgets compiled programs, predictions, remembered shapes and counters. Pending work runs first.
LAZULI_API void reset();

// Returns when every program that is being compiled in the background is ready.
LAZULI_API void wait_for_compiles();

// Says that size `dim` of `tensor` will change: programs that take it are compiled with a symbol in its place from the first time on,
// instead of when a second size comes, and serve sizes from `min` to `max`; others get programs of their own. Once is enough for a place
// in the program; for as long as the tensor's memory lives, more does no harm. A hint: 0 and 1 are specialised all the same, and a size
// that equals one of a tensor without marks waits for a second size. LAZULI_LOGS=dynamic says what became of it. Throws c10::Error when
// there is no such dimension or its size is outside of the range.
LAZULI_API void mark_dynamic(const at::Tensor& tensor, int64_t dim, int64_t min = 0, int64_t max = std::numeric_limits<int64_t>::max());

// Says that size `dim` of `tensor`, or each of its sizes, gets a program of its own for each of its values. Throws as above.
LAZULI_API void mark_static(const at::Tensor& tensor, int64_t dim);
LAZULI_API void mark_static(const at::Tensor& tensor);

// Writes the kernels that this process has compiled or loaded into one file, to ship with a program. Throws c10::Error when the file
// cannot be written.
LAZULI_API void save_cache(const std::string& path);

// Makes the kernels of a file of save_cache available to this process, whether or not there is a disk cache. Throws c10::Error, and
// loads nothing, when the file cannot be read or is damaged. Kernels that need instructions which this CPU lacks, or were made for another
// LibTorch or Lazuli, are not used; the log says so. The file holds code that will be run: load none from a source that you do not trust.
LAZULI_API void load_cache(const std::string& path);

// What happened so far, in this process.
LAZULI_API Stats stats();

// The same in words, several lines: sites with their programs and why each was compiled, limits reached, fallbacks, causes of cuts, times
// of compilation, and what to do about what costs most. For reading; stats() is for programs.
LAZULI_API std::string explain();

}  // namespace lazuli
