#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "runtime/cpu_features.h"
#include "runtime/options.h"

namespace lazuli::runtime {
namespace {

When WhenOf(const std::string& text) { return text == "0" ? When::kNever : (text == "1" ? When::kAlways : When::kAuto); }

}  // namespace

const ActiveOptions* internal::MakeActive(const Options& options) {
  auto* active = new ActiveOptions;
  active->options = options;
  active->backend = options.backend() == "aten" ? Backend::kAten : Backend::kLlvm;
  active->precision =
      options.precision() == "strict" ? Precision::kStrict : (options.precision() == "fast" ? Precision::kFast : Precision::kEager);
  const Isa asked = options.isa() == "sse4" ? Isa::kSse4 : (options.isa() == "avx2" ? Isa::kAvx2 : Isa::kAvx512);
  active->isa = std::min(asked, WidestIsa());
  active->dynamic = WhenOf(options.dynamic());
  active->async = options.async();
  active->compile_threads = options.compile_threads();
  active->compile_wait_ms = options.compile_wait_ms();
  active->threads = options.threads();
  active->record_scalars = options.record_scalars();
  active->autograd_multithreading = options.autograd_multithreading();
  active->step_aside = options.step_aside();
  active->head_start = WhenOf(options.head_start());
  active->launch_thread = WhenOf(options.launch_thread());
  active->pack_weights = options.pack_weights();
  active->stacks = options.stacks();
  active->specialize_after = options.specialize_after();
  active->recompile_limit = options.recompile_limit();
  active->accumulated_recompile_limit = options.accumulated_recompile_limit();
  active->stance = *ParseStance(options.stance());
  active->error_on_recompile = options.error_on_recompile();
  active->fail_on_recompile_limit_hit = options.fail_on_recompile_limit_hit();
  active->fullgraph = options.fullgraph();
  active->verify = options.verify();
  active->autotune_ms = absl::StartsWith(options.mode(), "max-autotune") ? options.autotune_ms() : 0;
  active->cudagraphs = options.mode() == "reduce-overhead" || options.mode() == "max-autotune";
  active->cache_size = options.cache_size();
  active->trace_limit = options.trace_limit();
  active->trace_bytes = options.trace_bytes();
  return active;
}

}  // namespace lazuli::runtime
