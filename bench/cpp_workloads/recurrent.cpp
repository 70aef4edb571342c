// LSTMs: the library's, and one written by hand.
#include "workload.h"

namespace workloads {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

constexpr int64_t kVocabulary = 1000;
constexpr int64_t kBatch = 16;
constexpr int64_t kTime = 32;

torch::Tensor Numbers(int64_t below, at::IntArrayRef sizes, torch::Device device) {
  return torch::randint(0, below, sizes, torch::TensorOptions(torch::kLong).device(device));
}

torch::Tensor Ids(torch::Device device) { return Numbers(kVocabulary, {kBatch, kTime + 1}, device); }

class LanguageModelImpl : public nn::Module {
 public:
  LanguageModelImpl(int64_t width, int64_t hidden) {
    tokens_ = register_module("tokens", nn::Embedding(kVocabulary, width));
    lstm_ = register_module("lstm", nn::LSTM(nn::LSTMOptions(width, hidden).num_layers(2).batch_first(true)));
    head_ = register_module("head", nn::Linear(hidden, kVocabulary));
  }

  torch::Tensor forward(const torch::Tensor& ids) { return head_(std::get<0>(lstm_(tokens_(ids)))); }

 private:
  nn::Embedding tokens_{nullptr};
  nn::LSTM lstm_{nullptr};
  nn::Linear head_{nullptr};
};
TORCH_MODULE(LanguageModel);

Step LstmTrain(torch::Device device) {
  LanguageModel model(128, 256);
  model->to(device);
  const auto ids = Ids(device);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-3));
  return Trainer(std::move(optimizer), [=]() mutable {
    const auto logits = model(ids.slice(1, 0, kTime));
    return F::cross_entropy(logits.reshape({-1, kVocabulary}), ids.slice(1, 1).reshape(-1));
  });
}

Step LstmForward(torch::Device device) {
  LanguageModel model(128, 256);
  model->to(device);
  model->eval();
  const auto ids = Ids(device);
  return [=]() mutable {
    const torch::NoGradGuard no_grad;
    return model(ids);
  };
}

// An LSTM cell from its equations, unrolled over a text; the last state is classified.
class ClassifierImpl : public nn::Module {
 public:
  ClassifierImpl(int64_t width, int64_t hidden, int64_t classes) : hidden_(hidden) {
    tokens_ = register_module("tokens", nn::Embedding(kVocabulary, width));
    from_input_ = register_module("from_input", nn::Linear(width, 4 * hidden));
    from_state_ = register_module("from_state", nn::Linear(nn::LinearOptions(hidden, 4 * hidden).bias(false)));
    head_ = register_module("head", nn::Linear(hidden, classes));
  }

  torch::Tensor forward(const torch::Tensor& ids) {
    const auto inputs = tokens_(ids);
    auto state = torch::zeros({ids.size(0), hidden_}, inputs.options()), memory = torch::zeros_like(state);
    for (int64_t t = 0; t < ids.size(1); ++t) {
      const auto gates = (from_input_(inputs.select(1, t)) + from_state_(state)).chunk(4, 1);
      memory = torch::sigmoid(gates[1]) * memory + torch::sigmoid(gates[0]) * torch::tanh(gates[2]);
      state = torch::sigmoid(gates[3]) * torch::tanh(memory);
    }
    return head_(state);
  }

 private:
  int64_t hidden_;
  nn::Embedding tokens_{nullptr};
  nn::Linear from_input_{nullptr}, from_state_{nullptr}, head_{nullptr};
};
TORCH_MODULE(Classifier);

Step LstmCellTrain(torch::Device device) {
  Classifier model(64, 128, 10);
  model->to(device);
  const auto ids = Ids(device), labels = Numbers(10, {kBatch}, device);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-3));
  return Trainer(std::move(optimizer), [=]() mutable { return F::cross_entropy(model(ids), labels); });
}

}  // namespace

std::vector<Workload> RecurrentWorkloads() {
  return {
      {"lstm_train", "training step of a language model, nn::LSTM of 2 layers of 256, batch 16x32, Adam", LstmTrain, 5, 10},
      {"lstm_forward", "forward pass of the same, without grad", LstmForward, 5, 20},
      {"lstm_cell_train", "training step of a classifier, an LSTM cell of 128 unrolled by hand over 16x33 tokens, Adam", LstmCellTrain, 5,
       10},
  };
}

}  // namespace workloads
