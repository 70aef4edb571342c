#include "tests/support/train.h"

#include <torch/torch.h>

#include <map>

namespace lazuli::testing {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

constexpr int64_t kBatch = 16;
constexpr int64_t kClasses = 5;

torch::Tensor Labels() { return torch::randint(kClasses, {kBatch}, torch::kLong); }

// `module` fed with normal noise of `sizes`, against random labels.
template <class Holder>
Model Classifier(Holder module, std::vector<int64_t> sizes) {
  return {module.ptr(), [module, sizes]() mutable {
            const auto input = torch::randn(sizes);
            return F::cross_entropy(module->forward(input), Labels());
          }};
}

struct LstmImpl : nn::Module {
  LstmImpl() {
    register_module("lstm", lstm);
    register_module("head", head);
  }
  torch::Tensor forward(const torch::Tensor& input) { return head->forward(std::get<0>(lstm->forward(input)).select(1, -1)); }
  nn::LSTM lstm{nn::LSTMOptions(12, 16).num_layers(2).batch_first(true).dropout(0.1)};
  nn::Linear head{16, kClasses};
};
TORCH_MODULE(Lstm);

struct EncoderImpl : nn::Module {
  EncoderImpl() {
    register_module("embedding", embedding);
    register_module("encoder", encoder);
    register_module("head", head);
    // Its part for the keys cannot change what attention gives: the gradient is rounding noise, which Adam would blow up.
    for (auto& parameter : encoder->named_parameters()) {
      if (parameter.key().find("in_proj_bias") != std::string::npos) parameter.value().set_requires_grad(false);
    }
  }
  torch::Tensor forward(const torch::Tensor& tokens) {
    return head->forward(encoder->forward(embedding->forward(tokens).transpose(0, 1)).mean(0));
  }
  nn::Embedding embedding{32, 16};
  nn::TransformerEncoder encoder{
      nn::TransformerEncoderOptions(nn::TransformerEncoderLayerOptions(16, 2).dim_feedforward(32).dropout(0.1), 2)};
  nn::Linear head{16, kClasses};
};
TORCH_MODULE(Encoder);

Training Loop(const Recipe& recipe, Model model) {
  auto optimizer = recipe.optimizer(model.module->parameters());
  const auto after_step = recipe.scheduler ? recipe.scheduler(optimizer.get()) : [](double) {};
  Training training;
  for (int step = 0; step < recipe.steps; ++step) {
    if (recipe.before_step) recipe.before_step(optimizer.get(), step);
    const auto loss = optimizer->step([&] {
      const at::AutoGradMode with_grad(true);
      optimizer->zero_grad();
      auto value = model.batch_loss();
      value.backward();
      if (recipe.clip_norm > 0) nn::utils::clip_grad_norm_(model.module->parameters(), recipe.clip_norm);
      return value;
    });
    training.losses.push_back(loss.item<double>());
    after_step(training.losses.back());
    training.stats.push_back(lazuli::stats());
  }
  for (const auto& parameter : model.module->parameters()) training.state.push_back(parameter.detach());
  for (const auto& buffer : model.module->buffers()) training.state.push_back(buffer.detach());
  return training;
}

}  // namespace

Training Train(const Recipe& recipe, const std::optional<lazuli::Options>& options, bool model_inside) {
  torch::manual_seed(99);
  if (!options.has_value()) return Loop(recipe, recipe.model());
  if (model_inside) {
    const lazuli::DeviceMode mode(*options);
    return Loop(recipe, recipe.model());
  }
  const Model model = recipe.model();
  const lazuli::DeviceMode mode(*options);
  return Loop(recipe, model);
}

Model PlainMlp() {
  return Classifier(nn::Sequential(nn::Linear(24, 32), nn::ReLU(), nn::Linear(32, 32), nn::Tanh(), nn::Linear(32, kClasses)), {kBatch, 24});
}

Model MlpWithDropoutAndNorms() {
  return Classifier(
      nn::Sequential(nn::Linear(24, 32), nn::LayerNorm(nn::LayerNormOptions({32})), nn::GELU(), nn::Dropout(0.2),
                     nn::Linear(nn::LinearOptions(32, 32).bias(false)), nn::BatchNorm1d(32), nn::ReLU(), nn::Linear(32, kClasses)),
      {kBatch, 24});
}

Model CnnWithBatchNorm() {
  return Classifier(nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1).bias(false)), nn::BatchNorm2d(8), nn::ReLU(),
                                   nn::MaxPool2d(nn::MaxPool2dOptions(2)), nn::Conv2d(nn::Conv2dOptions(8, 8, 3).padding(1).bias(false)),
                                   nn::BatchNorm2d(8), nn::ReLU(), nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions(1)), nn::Flatten(),
                                   nn::Linear(8, kClasses)),
                    {kBatch, 3, 12, 12});
}

Model LstmClassifier() { return Classifier(Lstm(), {kBatch, 6, 12}); }

Model TransformerEncoder() {
  Encoder module;
  return {module.ptr(), [module]() mutable {
            const auto tokens = torch::randint(32, {kBatch, 7}, torch::kLong);
            return F::cross_entropy(module->forward(tokens), Labels());
          }};
}

Model FixedRegression() {
  // A line search branches on values: in float, on their last bits.
  nn::Linear layer(12, 4);
  layer->to(torch::kDouble);
  const auto input = torch::randn({kBatch, 12}, torch::kDouble);
  const auto target = torch::randn({kBatch, 4}, torch::kDouble);
  return {layer.ptr(), [=]() mutable { return F::mse_loss(layer->forward(input), target); }};
}

namespace {

template <class Optimizer, class OptimizerOptions>
MakeOptimizer Make(OptimizerOptions options) {
  return [options](std::vector<torch::Tensor> parameters) { return std::make_unique<Optimizer>(std::move(parameters), options); };
}

}  // namespace

MakeOptimizer OptimizerNamed(const std::string& name) {
  using namespace torch::optim;  // NOLINT: the table reads as in programs.
  static const auto* table = new std::map<std::string, MakeOptimizer>{
      {"sgd", Make<SGD>(SGDOptions(0.05))},
      {"momentum", Make<SGD>(SGDOptions(0.05).momentum(0.9).weight_decay(1e-3))},
      {"damped", Make<SGD>(SGDOptions(0.05).momentum(0.9).dampening(0.2))},
      {"nesterov", Make<SGD>(SGDOptions(0.05).momentum(0.9).nesterov(true))},
      {"adam", Make<Adam>(AdamOptions(1e-2))},
      {"adam_decay", Make<Adam>(AdamOptions(1e-2).weight_decay(1e-2).betas({0.8, 0.95}))},
      {"amsgrad", Make<Adam>(AdamOptions(1e-2).amsgrad(true))},
      {"adamw", Make<AdamW>(AdamWOptions(1e-2))},
      {"adamw_amsgrad", Make<AdamW>(AdamWOptions(1e-2).amsgrad(true))},
      {"rmsprop_plain", Make<RMSprop>(RMSpropOptions(1e-3))},
      {"rmsprop", Make<RMSprop>(RMSpropOptions(1e-3).momentum(0.5).centered(true))},
      {"adagrad", Make<Adagrad>(AdagradOptions(1e-2))},
      {"adagrad_decay", Make<Adagrad>(AdagradOptions(1e-2).lr_decay(0.1).weight_decay(1e-2))},
      {"lbfgs", Make<LBFGS>(LBFGSOptions(0.1).max_iter(4).history_size(3))},
      {"lbfgs_wolfe", Make<LBFGS>(LBFGSOptions(1).max_iter(4).history_size(3).line_search_fn("strong_wolfe"))}};
  const auto found = table->find(name);
  TORCH_CHECK(found != table->end(), "no optimizer is called ", name);
  return found->second;
}

}  // namespace lazuli::testing
