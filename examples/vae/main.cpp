// Trains a variational autoencoder on drawn shapes, saves it, loads it into another model, and draws new shapes.
#include <lazuli/lazuli.h>
#include <stdlib.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

#include "common/command_line.h"
#include "shapes.h"

namespace vae {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct Options {
  int64_t steps = 200;
  int64_t batch = 64;
  int64_t latent = 8;
  int64_t seed = 1;
  std::string save;
  bool lazuli = false;
};

struct Output {
  torch::Tensor image, mean, log_variance;
};

class VaeImpl : public nn::Module {
 public:
  explicit VaeImpl(int64_t latent) {
    encoder_ = register_module(
        "encoder", nn::Sequential(nn::Flatten(), nn::Linear(kSide * kSide, 128), nn::LayerNorm(nn::LayerNormOptions({128})), nn::GELU()));
    mean_ = register_module("mean", nn::Linear(128, latent));
    log_variance_ = register_module("log_variance", nn::Linear(128, latent));
    expand_ = register_module("expand", nn::Linear(latent, 16 * 4 * 4));
    decoder_ = register_module("decoder",
                               nn::Sequential(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(16, 8, 4).stride(2).padding(1).bias(false)),
                                              nn::BatchNorm2d(8), nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.1)),
                                              nn::ConvTranspose2d(nn::ConvTranspose2dOptions(8, 1, 4).stride(2).padding(1))));
  }

  // Random when training; from the mean when not.
  Output forward(const torch::Tensor& images) {
    const auto features = encoder_->forward(images);
    const auto mean = mean_(features), log_variance = log_variance_(features);
    const auto z = is_training() ? mean + torch::randn_like(mean) * torch::exp(0.5 * log_variance) : mean;
    return {Decode(z), mean, log_variance};
  }

  torch::Tensor Decode(const torch::Tensor& z) { return torch::sigmoid(decoder_->forward(torch::relu(expand_(z)).view({-1, 16, 4, 4}))); }

 private:
  nn::Sequential encoder_{nullptr}, decoder_{nullptr};
  nn::Linear mean_{nullptr}, log_variance_{nullptr}, expand_{nullptr};
};
TORCH_MODULE(Vae);

void Train(Vae& model, const Options& options, examples::StepTimer& timer) {
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(2e-3).weight_decay(1e-3));
  model->train();
  for (int64_t step = 1; step <= options.steps; ++step) {
    timer.Start();
    const auto images = DrawShapes(options.batch);
    const auto output = model(images);
    const auto count = static_cast<double>(options.batch);
    const auto likeness = F::binary_cross_entropy(output.image, images, F::BinaryCrossEntropyFuncOptions().reduction(torch::kSum)) / count;
    const auto spread = -0.5 * torch::sum(1 + output.log_variance - output.mean.pow(2) - output.log_variance.exp()) / count;
    optimizer.zero_grad();
    (likeness + spread).backward();
    optimizer.step();
    const double bce = likeness.item<double>(), kl = spread.item<double>();
    timer.Stop();
    if (step % 20 == 0 || step <= 5 || step == options.steps) {
      std::printf("step %lld  bce %.6f  kl %.6f\n", static_cast<long long>(step), bce, kl);
    }
  }
}

// A name in the temporary folder that nothing has yet.
std::string TemporaryFile() {
  std::string name = (std::filesystem::temp_directory_path() / "vae_XXXXXX").string();
  const int file = mkstemp(name.data());
  if (file < 0) throw examples::UserError("Cannot make a file like '" + name + "'. Name another with --save FILE.");
  close(file);
  return name;
}

// Saves the model, loads it into a new one, and compares what the two make of the same images.
bool CheckReload(Vae& model, const Options& options) {
  torch::NoGradGuard no_grad;
  const bool keep = !options.save.empty();
  const std::string path = keep ? options.save : TemporaryFile();
  torch::save(model, path);
  Vae loaded(options.latent);
  torch::load(loaded, path);
  if (!keep) std::filesystem::remove(path);
  model->eval();
  loaded->eval();
  const auto images = DrawShapes(4);
  const auto before = model(images).image, after = loaded(images).image;
  const bool same = torch::equal(before, after);
  std::printf("reloaded model: %s, reconstruction error %.6f\n", same ? "the same" : "DIFFERENT",
              torch::mse_loss(after, images).item<double>());
  std::printf("images, and what the model makes of them:\n%s%s", ToAscii(images).c_str(), ToAscii(after).c_str());
  return same;
}

void PrintSamples(Vae& model, const Options& options) {
  torch::NoGradGuard no_grad;
  model->eval();
  const auto images = model->Decode(torch::randn({4, options.latent}));
  std::printf("drawn by the model, mean brightness %.6f:\n%s", images.mean().item<double>(), ToAscii(images).c_str());
}

int Run(int argc, char** argv) {
  Options options;
  examples::CommandLine line("vae", "trains a variational autoencoder on drawn shapes.");
  line.Integer("--steps", options.steps, 1, 1000000000, "training steps");
  line.Integer("--batch", options.batch, 1, 100000, "images a step");
  line.Integer("--latent", options.latent, 1, 10000, "numbers that an image is coded in");
  line.Integer("--seed", options.seed, 0, 1000000000, "seed of images, weights and noise");
  line.Text("--save", options.save, "file to keep the model in");
  line.Flag("--lazuli", options.lazuli, "turn Lazuli on");
  if (!line.Parse(argc, argv)) return 0;

  std::optional<lazuli::DeviceMode> mode;
  if (options.lazuli) mode.emplace();
  torch::manual_seed(static_cast<uint64_t>(options.seed));
  Vae model(options.latent);
  examples::StepTimer timer;
  Train(model, options, timer);
  const bool same = CheckReload(model, options);
  PrintSamples(model, options);
  timer.PrintMedian();
  return same ? 0 : 1;
}

}  // namespace
}  // namespace vae

int main(int argc, char** argv) {
  return examples::RunMain("vae", [&] { return vae::Run(argc, argv); });
}
