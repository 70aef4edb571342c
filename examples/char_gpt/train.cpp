#include "train.h"

#include <chrono>

namespace char_gpt {

CharGpt MakeModel(const Options& options, const Corpus& corpus) {
  torch::manual_seed(options.seed);
  return CharGpt(ModelConfig{corpus.vocabulary(), options.block, options.layers, options.dim, options.heads, options.dropout});
}

TrainLog Train(CharGpt& model, const Corpus& corpus, const Options& options, const StepHook& after_step) {
  using Clock = std::chrono::steady_clock;
  torch::manual_seed(options.seed);
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(options.lr).weight_decay(0.1));
  model->train();
  TrainLog log;
  for (int64_t step = 1; step <= options.steps; ++step) {
    const auto start = Clock::now();
    auto [inputs, targets] = corpus.RandomBatch(options.batch, options.block);
    auto logits = model(inputs);
    auto loss = torch::nn::functional::cross_entropy(logits.flatten(0, 1), targets.flatten());
    optimizer.zero_grad();
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
    optimizer.step();
    log.losses.push_back(loss.item<double>());
    log.step_ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    after_step(step, log.losses.back());
  }
  return log;
}

std::string Sample(CharGpt& model, const Corpus& corpus, const Options& options, int64_t length) {
  torch::NoGradGuard no_grad;
  torch::manual_seed(options.seed);
  model->eval();
  auto context = corpus.Prompt(options.block);
  std::string text;
  for (int64_t i = 0; i < length; ++i) {
    const auto logits = model(context).select(1, -1);
    const auto next = torch::multinomial(torch::softmax(logits / 0.8, -1), 1);
    context = torch::cat({context.narrow(1, 1, options.block - 1), next}, 1);
    text.push_back(corpus.Decode(next.item<int64_t>()));
  }
  return text;
}

}  // namespace char_gpt
