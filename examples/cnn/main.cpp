// Trains a small convolutional network on digits read from MNIST's files, then tests it.
#include <lazuli/lazuli.h>
#include <torch/torch.h>

#include <cstdio>
#include <optional>
#include <string>

#include "common/command_line.h"
#include "digits.h"

namespace cnn {
namespace {

namespace nn = torch::nn;
namespace data = torch::data;
namespace F = torch::nn::functional;

struct Options {
  int64_t steps = 80;
  int64_t batch = 32;
  int64_t test_batches = 16;
  int64_t seed = 1;
  std::string data;
  bool lazuli = false;
};

class NetImpl : public nn::Module {
 public:
  NetImpl() {
    conv1_ = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 8, 3).padding(1).bias(false)));
    norm1_ = register_module("norm1", nn::BatchNorm2d(8));
    conv2_ = register_module("conv2", nn::Conv2d(nn::Conv2dOptions(8, 16, 3).padding(1).bias(false)));
    norm2_ = register_module("norm2", nn::BatchNorm2d(16));
    dropout_ = register_module("dropout", nn::Dropout(0.25));
    hidden_ = register_module("hidden", nn::Linear(16 * 7 * 7, 64));
    output_ = register_module("output", nn::Linear(64, 10));
  }

  // Log-probabilities [batch, 10] of images [batch, 1, 28, 28].
  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(norm1_(conv1_(x))), 2);
    x = torch::max_pool2d(torch::relu(norm2_(conv2_(x))), 2);
    x = dropout_(x.flatten(1));
    x = F::dropout(torch::relu(hidden_(x)), F::DropoutFuncOptions().p(0.5).training(is_training()));
    return torch::log_softmax(output_(x), 1);
  }

 private:
  nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  nn::BatchNorm2d norm1_{nullptr}, norm2_{nullptr};
  nn::Dropout dropout_{nullptr};
  nn::Linear hidden_{nullptr}, output_{nullptr};
};
TORCH_MODULE(Net);

auto Digits(const std::string& folder, data::datasets::MNIST::Mode mode) {
  return data::datasets::MNIST(folder, mode).map(data::transforms::Normalize<>(0.1307, 0.3081)).map(data::transforms::Stack<>());
}

// A step's time includes reading its batch.
examples::StepTimer Train(Net& net, const std::string& folder, const Options& options) {
  auto loader = data::make_data_loader(Digits(folder, data::datasets::MNIST::Mode::kTrain), data::DataLoaderOptions(options.batch));
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(2e-3));
  torch::optim::StepLR schedule(optimizer, /*step_size=*/10, /*gamma=*/0.9);
  examples::StepTimer timer;
  net->train();
  int64_t step = 0;
  double total = 0;
  timer.Start();
  while (step < options.steps) {
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      auto log_probabilities = net(batch.data);
      auto loss = torch::nll_loss(log_probabilities, batch.target);
      loss.backward();
      optimizer.step();
      schedule.step();
      total += loss.item<double>();
      if (++step % 10 == 0 || step <= 5 || step == options.steps) {
        const double accuracy = log_probabilities.argmax(1).eq(batch.target).to(torch::kFloat).mean().item<double>();
        std::printf("step %lld  mean loss %.6f  accuracy %.4f  lr %.6f\n", static_cast<long long>(step), total / static_cast<double>(step),
                    accuracy, optimizer.param_groups()[0].options().get_lr());
      }
      timer.Stop();
      if (step == options.steps) break;
      timer.Start();
    }
  }
  return timer;
}

void Test(Net& net, const std::string& folder, const Options& options) {
  torch::NoGradGuard no_grad;
  net->eval();
  auto loader = data::make_data_loader<data::samplers::SequentialSampler>(Digits(folder, data::datasets::MNIST::Mode::kTest),
                                                                          data::DataLoaderOptions(options.batch));
  double loss = 0;
  int64_t right = 0, seen = 0, batches = 0;
  for (auto& batch : *loader) {
    const auto log_probabilities = net(batch.data);
    loss += torch::nll_loss(log_probabilities, batch.target, {}, torch::Reduction::Sum).item<double>();
    right += log_probabilities.argmax(1).eq(batch.target).sum().item<int64_t>();
    seen += batch.target.size(0);
    if (++batches == options.test_batches) break;
  }
  std::printf("test: loss %.6f  accuracy %.4f over %lld images\n", loss / static_cast<double>(seen),
              static_cast<double>(right) / static_cast<double>(seen), static_cast<long long>(seen));
}

int Run(int argc, char** argv) {
  Options options;
  examples::CommandLine line("cnn", "trains a small convolutional network on digits in MNIST's file format.");
  line.Integer("--steps", options.steps, 1, 1000000000, "training steps");
  line.Integer("--batch", options.batch, 2, 10000, "images a step");
  line.Integer("--test-batches", options.test_batches, 1, 10000, "batches to test with");
  line.Integer("--seed", options.seed, 0, 1000000000, "seed of drawn digits, weights, order and dropout");
  line.Text("--data", options.data, "folder of MNIST's files; without it, digits are drawn into a temporary folder");
  line.Flag("--lazuli", options.lazuli, "turn Lazuli on");
  if (!line.Parse(argc, argv)) return 0;

  std::optional<TemporaryFolder> drawn;
  if (options.data.empty()) {
    WriteDigits(drawn.emplace().path(), static_cast<uint64_t>(options.seed));
    options.data = drawn->path().string();
  }
  CheckDigits(options.data);

  std::optional<lazuli::DeviceMode> mode;
  if (options.lazuli) mode.emplace();
  torch::manual_seed(static_cast<uint64_t>(options.seed));
  Net net;
  const examples::StepTimer timer = Train(net, options.data, options);
  Test(net, options.data, options);
  timer.PrintMedian();
  return 0;
}

}  // namespace
}  // namespace cnn

int main(int argc, char** argv) {
  return examples::RunMain("cnn", [&] { return cnn::Run(argc, argv); });
}
