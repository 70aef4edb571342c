// Forecasts a noisy series with an encoder and a decoder made of LSTMs.
#include <lazuli/lazuli.h>
#include <torch/torch.h>

#include <cstdio>
#include <optional>

#include "common/command_line.h"
#include "series.h"

namespace lstm {
namespace {

namespace nn = torch::nn;

struct Options {
  int64_t steps = 100;
  int64_t batch = 16;
  int64_t hidden = 48;
  int64_t horizon = 10;
  int64_t seed = 1;
  bool lazuli = false;
};

class ForecasterImpl : public nn::Module {
 public:
  explicit ForecasterImpl(int64_t hidden) {
    encoder_ = register_module("encoder", nn::LSTM(nn::LSTMOptions(1, hidden).batch_first(true)));
    decoder_ = register_module("decoder", nn::LSTMCell(nn::LSTMCellOptions(1, hidden)));
    output_ = register_module("output", nn::Linear(hidden, 1));
  }

  // Forecasts [batch, horizon, 1]. Each value is made from the one before: the true one from `teacher` if it is defined, else the
  // forecast.
  torch::Tensor forward(const Batch& batch, const torch::Tensor& teacher) {
    // Padding comes after each sequence: the state at its last value has not seen any. The cell's memory starts anew.
    const auto states = std::get<0>(encoder_(batch.past));
    const auto last = (batch.lengths - 1).view({-1, 1, 1});
    auto hidden = states.gather(1, last.expand({-1, 1, states.size(2)})).squeeze(1);
    auto memory = torch::zeros_like(hidden);
    auto input = batch.past.gather(1, last).squeeze(1);
    std::vector<torch::Tensor> forecasts;
    for (int64_t t = 0; t < batch.future.size(1); ++t) {
      std::tie(hidden, memory) = decoder_(input, std::make_tuple(hidden, memory));
      forecasts.push_back(output_(hidden));
      input = teacher.defined() ? teacher.select(1, t) : forecasts.back();
    }
    return torch::stack(forecasts, 1);
  }

 private:
  nn::LSTM encoder_{nullptr};
  nn::LSTMCell decoder_{nullptr};
  nn::Linear output_{nullptr};
};
TORCH_MODULE(Forecaster);

examples::StepTimer Train(Forecaster& model, const Series& series, const Options& options) {
  torch::optim::RMSprop optimizer(model->parameters(), torch::optim::RMSpropOptions(2e-3).momentum(0.5));
  examples::StepTimer timer;
  int64_t step = 0;
  while (step < options.steps) {
    for (const Batch& batch : series.Sequences(12 * options.batch, 17, 48, 8, options.batch, options.horizon)) {
      timer.Start();
      // The teacher helps less and less.
      const bool teach = torch::rand({1}).item<double>() > static_cast<double>(step) / static_cast<double>(options.steps);
      optimizer.zero_grad();
      const auto loss = torch::smooth_l1_loss(model(batch, teach ? batch.future : torch::Tensor()), batch.future);
      loss.backward();
      const double norm = nn::utils::clip_grad_norm_(model->parameters(), 1.0);
      optimizer.step();
      const double value = loss.item<double>();
      timer.Stop();
      if (++step % 10 == 0 || step <= 5 || step == options.steps) {
        std::printf("step %lld  length %lld  %s  loss %.6f  gradient norm %.6f\n", static_cast<long long>(step),
                    static_cast<long long>(batch.past.size(1)), teach ? "taught" : "alone ", value, norm);
      }
      if (step == options.steps) break;
    }
  }
  return timer;
}

// Errors without a teacher: of the forecasts, and of repeating each sequence's last value.
void Test(Forecaster& model, const Series& series, const Options& options) {
  torch::NoGradGuard no_grad;
  model->eval();
  std::vector<torch::Tensor> errors, simple;
  for (const Batch& batch : series.Sequences(12 * options.batch, 17, 48, 8, options.batch, options.horizon)) {
    errors.push_back((model(batch, torch::Tensor()) - batch.future).abs().mean());
    simple.push_back((batch.past.gather(1, (batch.lengths - 1).view({-1, 1, 1})) - batch.future).abs().mean());
  }
  if (errors.empty()) return;
  std::printf("test: mean error %.6f, of the last value repeated %.6f\n", torch::stack(errors).mean().item<double>(),
              torch::stack(simple).mean().item<double>());
}

int Run(int argc, char** argv) {
  Options options;
  examples::CommandLine line("lstm", "forecasts a noisy series with an encoder and a decoder made of LSTMs.");
  line.Integer("--steps", options.steps, 1, 1000000000, "training steps");
  line.Integer("--batch", options.batch, 1, 10000, "sequences a step");
  line.Integer("--hidden", options.hidden, 1, 10000, "width of the model");
  line.Integer("--horizon", options.horizon, 1, 1000, "values to forecast");
  line.Integer("--seed", options.seed, 0, 1000000000, "seed of the series, weights and batches");
  line.Flag("--lazuli", options.lazuli, "turn Lazuli on");
  if (!line.Parse(argc, argv)) return 0;

  std::optional<lazuli::DeviceMode> mode;
  if (options.lazuli) mode.emplace();
  torch::manual_seed(static_cast<uint64_t>(options.seed));
  const Series series(4000);
  Forecaster model(options.hidden);
  const examples::StepTimer timer = Train(model, series, options);
  Test(model, series, options);
  timer.PrintMedian();
  return 0;
}

}  // namespace
}  // namespace lstm

int main(int argc, char** argv) {
  return examples::RunMain("lstm", [&] { return lstm::Run(argc, argv); });
}
