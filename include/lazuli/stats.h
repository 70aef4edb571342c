// Counters of what Lazuli did in this process.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lazuli/export.h"

namespace lazuli {

struct LAZULI_API Stats {
  int64_t ops_recorded = 0;    // Operators that entered a trace (views excluded).
  int64_t views_recorded = 0;  // Views, kept as metadata.
  int64_t traces = 0;          // Traces cut and run.
  int64_t predicted_hits = 0;  // Traces that followed their prediction to the end: nothing was hashed or looked up.
  int64_t cache_hits = 0;      // Traces that found a compiled program (predicted ones included).
  int64_t cache_misses = 0;
  int64_t programs_compiled = 0;
  int64_t dynamic_programs = 0;      // Those among them that serve traces of other sizes too.
  int64_t specialized_programs = 0;  // Programs for sizes that one of these ran with again and again. See LAZULI_SPECIALIZE_AFTER.
  int64_t recompiles = 0;            // Programs compiled at a site that had one already.
  int64_t recompile_limit_hits = 0;  // Traces sent to eager because their site is past recompile_limit.
  int64_t compile_failures = 0;
  int64_t eager_replays = 0;        // Traces run op by op without a compiled program, for any reason.
  int64_t background_replays = 0;   // Those among them whose program was being compiled in the background.
  int64_t stance_replays = 0;       // Those among them that would have been compiled but for the stance or error_on_recompile.
  int64_t compile_waits = 0;        // Traces that waited for a program to be compiled. See LAZULI_COMPILE_WAIT_MS.
  int64_t kernels_compiled = 0;     // Kernels that code was generated for.
  int64_t kernel_cache_hits = 0;    // Kernels that this process had already.
  int64_t kernels_replanned = 0;    // Kernels on a GPU compiled again, with a plan for sizes far from those that they were planned for.
  int64_t disk_cache_hits = 0;      // Kernels whose code came from the disk cache or from load_cache.
  int64_t disk_cache_misses = 0;    // Kernels looked for there and not found (unusable entries included).
  int64_t disk_cache_writes = 0;    // Entries written.
  int64_t disk_cache_errors = 0;    // Entries that were unusable or could not be written. LAZULI_LOGS=cache says why.
  int64_t kernels_tuned = 0;        // Kernels that LAZULI_MODE=max-autotune timed schedules of.
  int64_t schedules_timed = 0;      // Schedules timed for that, the cost model's own among them.
  int64_t cublaslt_products = 0;    // Products of matrices on a GPU that programs launched through cuBLASLt themselves.
  int64_t products_tuned = 0;       // Products of matrices on a GPU that LAZULI_MODE=max-autotune timed the library's algorithms of.
  int64_t algorithms_timed = 0;     // Algorithms timed for that, the library's first choices among them.
  int64_t fused_attentions = 0;     // Attentions, or gradients of one, that a program wrote as a formula and one kernel computed.
  int64_t unfused_attentions = 0;   // Those that such a kernel refused after all, by their sizes at run time: products and a softmax ran.
  int64_t flash_attentions = 0;     // Calls of flash attention in place of cuDNN's, which would have planned for sizes that change.
  int64_t kernel_launches = 0;      // Fused kernels run.
  int64_t aten_calls = 0;           // Library calls made by programs.
  int64_t cudagraph_captures = 0;   // CUDA graphs made of programs. See LAZULI_MODE.
  int64_t cudagraph_launches = 0;   // Runs of programs that launched one.
  int64_t cudagraph_failures = 0;   // Programs that could not be captured, and run without.
  int64_t cudagraphs_dropped = 0;   // Programs that turned out to be faster with a head start than as one graph.
  int64_t head_starts = 0;          // Runs of programs whose first steps ran on a GPU while the trace was still recorded.
  int64_t head_starts_in_vain = 0;  // Those that were taken back, since the trace turned out to be another one.
  int64_t weights_packed = 0;       // Weights put into the library's own order, to be used again. See LAZULI_PACK_WEIGHTS.
  int64_t packed_weight_calls = 0;  // Library calls that used one.
  int64_t observations = 0;         // Operators run once eagerly to learn their outputs' shapes.
  int64_t programs_stepped_aside = 0;  // Programs found slower than eager: their operators run eagerly from then on.
  int64_t ops_stepped_aside = 0;       // Operators run eagerly for that reason, or to find out.
  int64_t cpu_scalar_ops = 0;          // Operators on 0-dim tensors with their values at hand, run at once. See LAZULI_RECORD_SCALARS.
  int64_t verify_runs = 0;             // Runs of programs that LAZULI_VERIFY compared with their operators run one by one.
  int64_t verify_mismatches = 0;       // Those whose results differed.
  int64_t packed_weight_bytes = 0;     // That packed weights take now. reset() leaves it.
  double compile_seconds = 0;
  double compile_wait_seconds = 0;                 // For which traces waited.
  std::map<std::string, int64_t> eager_fallbacks;  // By operator: cut and run eagerly.
  std::map<std::string, int64_t> eager_uncut;  // By operator: run eagerly at once, without a cut, since none of its operands was pending.
  std::map<std::string, int64_t> cuts;         // By cause: "data_ptr", "aten::_local_scalar_dense", "sync", "mode_end", "trace_limit", ...

  // One JSON object with a member per field above, on one line.
  std::string ToJson() const;
};

}  // namespace lazuli
