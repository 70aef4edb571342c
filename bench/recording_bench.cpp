// Nanoseconds to record one operator, beside eager dispatch and kernel of the same operator: typed and boxed recording, with and
// without grad. Only the loop of operators is timed; running the trace, and freeing the graph of autograd, is not.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>

#include <optional>

#include "bench_util.h"

namespace lazuli::bench {
namespace {

constexpr int64_t kOps = 200;
constexpr int kWarmUp = 20;

struct Mul {
  static at::Tensor Apply(const at::Tensor& a, const at::Tensor& b) { return a.mul(b); }
};
struct Add {
  static at::Tensor Apply(const at::Tensor& a, const at::Tensor& b) { return a.add(b); }
};
// Not in tracer/typed_ops.def: recorded by the boxed kernel.
struct Copysign {
  static at::Tensor Apply(const at::Tensor& a, const at::Tensor& b) { return a.copysign(b); }
};

// One chain of kOps operators, each on the result of the one before, kept until `end` was timed.
template <typename Op>
double TimeChain(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor value = a;
  const Stopwatch watch;
  for (int64_t i = 0; i < kOps; ++i) value = Op::Apply(value, b);
  return watch.seconds();
}

template <typename Op, bool kLazuli, bool kGrad>
void Record(benchmark::State& state) {
  std::optional<DeviceMode> mode;
  if (kLazuli) mode.emplace();
  const at::AutoGradMode grad(kGrad);
  at::Tensor a = at::ones({64, 4});
  const at::Tensor b = at::ones({64, 4});
  if (kGrad) a.requires_grad_();
  for (int i = 0; i < kWarmUp; ++i) {
    TimeChain<Op>(a, b);
    if (kLazuli) sync();
  }
  if (kLazuli) wait_for_compiles();
  const Stats before = stats();
  Samples samples;
  for (auto _ : state) {
    const double seconds = TimeChain<Op>(a, b);
    if (kLazuli) sync();
    state.SetIterationTime(seconds);
    samples.Add(seconds);
  }
  state.counters["ns_per_op"] = 1e9 * samples.median() / kOps;
  state.counters["min_ns_per_op"] = 1e9 * samples.min() / kOps;
  if (!kLazuli) return;
  RequireOnlyHits(state, before);
  const Stats after = stats();
  state.counters["ops_per_trace"] =
      static_cast<double>(after.ops_recorded - before.ops_recorded) / static_cast<double>(after.traces - before.traces);
}

#define LAZULI_BENCH(Op)                                                        \
  BENCHMARK(Record<Op, false, false>)->Name(#Op "/eager")->UseManualTime();     \
  BENCHMARK(Record<Op, true, false>)->Name(#Op "/lazuli")->UseManualTime();     \
  BENCHMARK(Record<Op, false, true>)->Name(#Op "/grad/eager")->UseManualTime(); \
  BENCHMARK(Record<Op, true, true>)->Name(#Op "/grad/lazuli")->UseManualTime()
LAZULI_BENCH(Mul);
LAZULI_BENCH(Add);
LAZULI_BENCH(Copysign);
#undef LAZULI_BENCH

}  // namespace
}  // namespace lazuli::bench

BENCHMARK_MAIN();
