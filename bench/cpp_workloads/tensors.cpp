// Chains of operators without a model, and an MLP.
#include "workload.h"

namespace workloads {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

Step Pointwise(torch::Device device) {
  const int64_t size = device.is_cuda() ? 64 << 20 : 4 << 20;
  const auto x = torch::randn({size}, device), y = torch::randn({size}, device);
  return [=] {
    const auto gelu = x * 0.5 * (1 + torch::tanh(0.79788456 * (x + 0.044715 * x * x * x)));
    const auto gated = torch::sigmoid(y) * gelu + torch::exp(-y * y);
    return torch::where(gated > 0, gated, 0.01 * gated) - x;
  };
}

Step SoftmaxLayerNorm(torch::Device device) {
  const int64_t rows = device.is_cuda() ? 16384 : 1024, width = device.is_cuda() ? 4096 : 1024;
  const auto x = torch::randn({rows, width}, device), weight = torch::randn({width}, device), bias = torch::randn({width}, device);
  return [=] {
    const auto hidden = F::gelu(torch::layer_norm(x + 1, {width}, weight, bias));
    return torch::softmax(hidden * 2, -1) + x;
  };
}

Step MlpTrain(torch::Device device) {
  nn::Sequential model;
  for (int i = 0; i < 6; ++i) {
    model->push_back(nn::Linear(512, 512));
    model->push_back(nn::LayerNorm(nn::LayerNormOptions({512})));
    model->push_back(nn::GELU());
  }
  model->push_back(nn::Linear(512, 10));
  model->to(device);
  const auto inputs = torch::randn({64, 512}, device),
             labels = torch::randint(0, 10, {64}, torch::TensorOptions(torch::kLong).device(device));
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-3));
  return Trainer(std::move(optimizer), [=]() mutable { return F::cross_entropy(model->forward(inputs), labels); });
}

}  // namespace

std::vector<Workload> TensorWorkloads() {
  return {
      {"pointwise", "a chain of 20 pointwise operators over 4 Mi floats (64 Mi on a GPU)", Pointwise, 5, 20},
      {"softmax_ln", "layer norm, GELU, softmax and a residual over 1024 rows of 1024 (16384 of 4096)", SoftmaxLayerNorm, 5, 20},
      {"mlp_train", "training step of an MLP of 6 layers of 512 with layer norm and GELU, batch 64, Adam", MlpTrain, 5, 20},
  };
}

}  // namespace workloads
