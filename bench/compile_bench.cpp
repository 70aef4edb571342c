// Milliseconds to compile, from nothing: one fused kernel, a whole training step (MLP, Adam), and transformers of one and twelve equal
// layers, whose kernels are shared. Compiled kernels are kept for good, so
// every measured kernel is one that this process has not met, and the training step is measured once.
#include <torch/torch.h>

#include "bench_util.h"

namespace lazuli::bench {
namespace {

constexpr int kKernels = 64;
constexpr int kFirstSteps = 3;

// Twelve pointwise operators that differ for every `variant` below 4,096, around the transcendental functions of an activation.
torch::Tensor Chain(const torch::Tensor& x, const torch::Tensor& y, int variant) {
  torch::Tensor value = torch::tanh(x) * y;
  for (int bit = 0; bit < 12; ++bit) value = (variant >> bit & 1) != 0 ? value + y : value * y;
  return torch::maximum(value, 0.01 * y) + torch::exp(-y * y);
}

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
double TimeRun(const Work& work) {
  const Stopwatch watch;
  const torch::Tensor result = work();
  sync();
  return watch.seconds();
}

void CompileTrainingStep(benchmark::State& state) {
  DeviceMode mode(Options().disk_cache(false));
  TrainingStep work;
  const auto step = [&] { return work.Step(); };
  for (auto _ : state) {
    const double first = TimeRun(step);
    const Stats after_first = stats();
    double total = first;
    for (int i = 1; i < kFirstSteps; ++i) total += TimeRun(step);
    const Stats last = stats();
    state.SetIterationTime(first);
    state.counters["first_step_ms"] = 1e3 * first;
    state.counters["first_step_compile_ms"] = 1e3 * after_first.compile_seconds;
    state.counters["first_3_steps_ms"] = 1e3 * total;
    state.counters["compile_ms"] = 1e3 * last.compile_seconds;
    state.counters["programs"] = static_cast<double>(last.programs_compiled);
    state.counters["kernels"] = static_cast<double>(last.kernels_compiled);
    if (last.kernels_compiled == 0) state.SkipWithError("no kernel was compiled");
  }
  for (int i = 0; i < 10; ++i) TimeRun(step);
  state.counters["warm_step_ms"] = 1e3 * TimeRun(step);
}
BENCHMARK(CompileTrainingStep)->Name("compile/training_step")->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);

// A training step of a transformer with `state.range(0)` layers. Their widths differ, so that they share few kernels; to
// share none, run each in a process of its own (--benchmark_filter).
void CompileLayers(benchmark::State& state) {
  DeviceMode mode(Options().disk_cache(false).async(false));
  const int64_t layers = state.range(0), width = 64 + 16 * layers;
  torch::nn::TransformerEncoder model(
      torch::nn::TransformerEncoderOptions(torch::nn::TransformerEncoderLayerOptions(width, 4).dropout(0), layers));
  torch::optim::SGD optimizer(model->parameters(), 1e-3);
  const torch::Tensor x = torch::randn({24, 8, width});
  for (auto _ : state) {
    reset();
    for (int i = 0; i < kFirstSteps; ++i) {
      optimizer.zero_grad();
      auto loss = model->forward(x).square().mean();
      loss.backward();
      optimizer.step();
      sync();
    }
    const Stats after = stats();
    state.SetIterationTime(after.compile_seconds);
    state.counters["programs"] = static_cast<double>(after.programs_compiled);
    state.counters["kernels"] = static_cast<double>(after.kernels_compiled);
    if (after.kernels_compiled == 0) state.SkipWithError("no kernel was compiled");
  }
}
BENCHMARK(CompileLayers)
    ->Name("compile/transformer_layers")
    ->Arg(1)
    ->Arg(12)
    ->Iterations(1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

void CompileKernel(benchmark::State& state) {
  DeviceMode mode(Options().disk_cache(false));
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = torch::randn({1024}), y = torch::randn({1024});
  sync();
  int variant = 0;
  int64_t kernels = 0;
  double first = 0, compiling = 0;
  for (auto _ : state) {
    reset();  // A site compiles a few programs only; each of these is its first.
    const double seconds = TimeRun([&] { return Chain(x, y, variant); });
    ++variant;
    state.SetIterationTime(seconds);
    first += seconds;
    const Stats after = stats();
    kernels += after.kernels_compiled;
    compiling += after.compile_seconds;
  }
  const auto runs = static_cast<double>(state.iterations());
  if (kernels < state.iterations()) state.SkipWithError(("only " + std::to_string(kernels) + " kernels were compiled").c_str());
  state.counters["first_run_ms"] = 1e3 * first / runs;
  state.counters["compile_ms"] = 1e3 * compiling / runs;
  state.counters["kernels"] = static_cast<double>(kernels) / runs;
}
BENCHMARK(CompileKernel)->Name("compile/kernel")->Iterations(kKernels)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lazuli::bench

BENCHMARK_MAIN();
