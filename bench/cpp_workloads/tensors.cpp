// Chains of operators without a model, and an MLP.
#include "workload.h"

namespace workloads {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

Step Pointwise() {
  const auto x = torch::randn({4 << 20}), y = torch::randn({4 << 20});
  return [=] {
    const auto gelu = x * 0.5 * (1 + torch::tanh(0.79788456 * (x + 0.044715 * x * x * x)));
    const auto gated = torch::sigmoid(y) * gelu + torch::exp(-y * y);
    return torch::where(gated > 0, gated, 0.01 * gated) - x;
  };
}

Step SoftmaxLayerNorm() {
  const auto x = torch::randn({1024, 1024}), weight = torch::randn({1024}), bias = torch::randn({1024});
  return [=] {
    const auto hidden = F::gelu(torch::layer_norm(x + 1, {1024}, weight, bias));
    return torch::softmax(hidden * 2, -1) + x;
  };
}

Step MlpTrain() {
  nn::Sequential model;
  for (int i = 0; i < 6; ++i) {
    model->push_back(nn::Linear(512, 512));
    model->push_back(nn::LayerNorm(nn::LayerNormOptions({512})));
    model->push_back(nn::GELU());
  }
  model->push_back(nn::Linear(512, 10));
  const auto inputs = torch::randn({64, 512}), labels = torch::randint(0, 10, {64}, torch::kLong);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-3));
  return Trainer(std::move(optimizer), [=]() mutable { return F::cross_entropy(model->forward(inputs), labels); });
}

}  // namespace

std::vector<Workload> TensorWorkloads() {
  return {
      {"pointwise", "a chain of 20 pointwise operators over 4 Mi floats", Pointwise, 5, 20},
      {"softmax_ln", "layer norm, GELU, softmax and a residual over 1024 rows of 1024", SoftmaxLayerNorm, 5, 20},
      {"mlp_train", "training step of an MLP of 6 layers of 512 with layer norm and GELU, batch 64, Adam", MlpTrain, 5, 20},
  };
}

}  // namespace workloads
