// What a cache hit costs beyond recording, for traces of 10, 100 and 1,000 operators on tiny tensors: sync() of a recorded trace that
// a compiled program already exists for. The arithmetic is negligible, so the time is that of the cut, the check, the lookup, the
// program's buffers and its launch. The eager time of the same operators stands beside it.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>

#include "bench_util.h"

namespace lazuli::bench {
namespace {

constexpr int kWarmUp = 20;

at::Tensor Chain(const at::Tensor& a, const at::Tensor& b, int64_t ops) {
  at::Tensor value = a;
  for (int64_t i = 0; i < ops; ++i) value = (i % 2 != 0) ? value.add(b) : value.mul(b);
  return value;
}

void EagerChain(benchmark::State& state) {
  const at::NoGradGuard no_grad;
  const at::Tensor a = at::ones({4}), b = at::ones({4});
  for (auto _ : state) benchmark::DoNotOptimize(Chain(a, b, state.range(0)));
}
BENCHMARK(EagerChain)->Arg(10)->Arg(100)->Arg(1000)->Unit(benchmark::kMicrosecond);

void CacheHit(benchmark::State& state) {
  DeviceMode mode;
  const at::NoGradGuard no_grad;
  const at::Tensor a = at::ones({4}), b = at::ones({4});
  const int64_t ops = state.range(0);
  for (int i = 0; i < kWarmUp; ++i) {
    const at::Tensor result = Chain(a, b, ops);
    sync();
  }
  wait_for_compiles();
  for (int i = 0; i < kWarmUp; ++i) {
    const at::Tensor result = Chain(a, b, ops);
    sync();
  }
  const Stats before = stats();
  Samples record, run;
  for (auto _ : state) {
    const Stopwatch recording;
    const at::Tensor result = Chain(a, b, ops);
    record.Add(recording.seconds());
    const Stopwatch running;
    sync();
    const double seconds = running.seconds();
    state.SetIterationTime(seconds);
    run.Add(seconds);
  }
  RequireOnlyHits(state, before);
  const Stats after = stats();
  const auto runs = static_cast<double>(state.iterations());
  state.counters["record_us"] = 1e6 * record.median();
  state.counters["beyond_recording_us"] = 1e6 * run.median();
  state.counters["traces"] = static_cast<double>(after.traces - before.traces) / runs;
  state.counters["kernels"] = static_cast<double>(after.kernel_launches - before.kernel_launches) / runs;
  state.counters["predicted"] = static_cast<double>(after.predicted_hits - before.predicted_hits) / runs;
}
BENCHMARK(CacheHit)->Arg(10)->Arg(100)->Arg(1000)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lazuli::bench

BENCHMARK_MAIN();
