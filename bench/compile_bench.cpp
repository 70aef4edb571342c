// Milliseconds to compile, from nothing: one fused kernel, and a whole training step (MLP, Adam). Each iteration forgets everything
// compiled, then times the first run; what the same run costs once compiled is taken off in `compile_ms`.
#include <torch/torch.h>

#include "bench_util.h"

namespace lazuli::bench {
namespace {

struct Kernel {
  torch::Tensor x = torch::randn({1024}), y = torch::randn({1024});
  torch::Tensor Step() { return torch::where(x > 0, torch::tanh(x) * y, 0.01 * y) + torch::exp(-y * y); }
};

struct TrainingStep {
  torch::nn::Sequential model{torch::nn::Linear(64, 64), torch::nn::LayerNorm(torch::nn::LayerNormOptions({64})), torch::nn::GELU(),
                              torch::nn::Linear(64, 64), torch::nn::LayerNorm(torch::nn::LayerNormOptions({64})), torch::nn::GELU(),
                              torch::nn::Linear(64, 10)};
  torch::Tensor x = torch::randn({16, 64}), y = torch::randint(0, 10, {16}, torch::kLong);
  torch::optim::Adam optimizer{model->parameters(), torch::optim::AdamOptions(1e-3)};
  torch::Tensor Step() {
    optimizer.zero_grad();
    auto loss = torch::nn::functional::cross_entropy(model->forward(x), y);
    loss.backward();
    optimizer.step();
    return loss.detach();
  }
};

template <typename Work>
double TimeStep(Work& work) {
  const Stopwatch watch;
  const torch::Tensor result = work.Step();
  sync();
  return watch.seconds();
}

template <typename Work>
void Compile(benchmark::State& state) {
  DeviceMode mode;
  Work work;
  for (int i = 0; i < 5; ++i) TimeStep(work);  // Optimizer state exists, and steps are alike from here on.
  const double warm = TimeStep(work);
  double first = 0, compiling = 0;
  Stats last;
  for (auto _ : state) {
    reset();
    const double seconds = TimeStep(work);
    state.SetIterationTime(seconds);
    first += seconds;
    last = stats();
    compiling += last.compile_seconds;
  }
  if (last.programs_compiled == 0) state.SkipWithError("nothing was compiled: reset() did not forget the programs");
  const auto runs = static_cast<double>(state.iterations());
  state.counters["first_step_ms"] = 1e3 * first / runs;
  state.counters["warm_step_ms"] = 1e3 * warm;
  state.counters["compile_ms"] = 1e3 * compiling / runs;
  state.counters["programs"] = static_cast<double>(last.programs_compiled);
  state.counters["kernels"] = static_cast<double>(last.kernels_compiled);
}
BENCHMARK(Compile<Kernel>)->Name("compile/kernel")->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(Compile<TrainingStep>)->Name("compile/training_step")->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lazuli::bench

BENCHMARK_MAIN();
