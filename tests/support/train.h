// Trains small models the way a program does, eagerly or in a DeviceMode, and keeps what tests compare.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lazuli/lazuli.h"

namespace lazuli::testing {

// A model and the loss of one batch, drawn from the global generator.
struct Model {
  std::shared_ptr<torch::nn::Module> module;
  std::function<torch::Tensor()> batch_loss;
};
using MakeModel = std::function<Model()>;
using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

struct Recipe {
  MakeModel model;
  MakeOptimizer optimizer;
  int steps = 20;
  double clip_norm = 0;                                            // 0: no clipping.
  std::function<void(torch::optim::Optimizer*, int)> before_step;  // May change the learning rate; may be null.
  // Makes a scheduler, called after every step with the loss; may be null.
  std::function<std::function<void(double)>(torch::optim::Optimizer*)> scheduler = nullptr;
};

struct Training {
  std::vector<torch::Tensor> state;  // Parameters and buffers after the last step.
  std::vector<double> losses;        // Of every step.
  std::vector<lazuli::Stats> stats;  // Counters after every step.
};

// Trains from a fixed seed. `options`: the mode to train under, none for eager. `model_inside`: the mode starts before the model is made.
Training Train(const Recipe& recipe, const std::optional<lazuli::Options>& options, bool model_inside);

// The models: what each has is in its name. Layers before a batch norm have no bias: its gradient is rounding noise, which Adam would blow
// up.
Model MlpWithDropoutAndNorms();
Model PlainMlp();
Model FixedRegression();  // One layer, one batch, squares: convex.
Model CnnWithBatchNorm();
Model LstmClassifier();
Model TransformerEncoder();

// Optimizers by name: "sgd", "momentum", "adam", "amsgrad", "adamw", "rmsprop", "adagrad" and variants of them: see the table in
// train.cpp; "lbfgs" and "lbfgs_wolfe" for models with one batch.
MakeOptimizer OptimizerNamed(const std::string& name);

}  // namespace lazuli::testing
