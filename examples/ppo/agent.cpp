#include "agent.h"

#include <numeric>

namespace ppo {
namespace {

namespace nn = torch::nn;

constexpr double kDiscount = 0.99;
constexpr double kLambda = 0.95;
constexpr double kClip = 0.2;
constexpr double kValueWeight = 0.5;
constexpr double kEntropyWeight = 0.01;
constexpr double kMaxNorm = 0.5;

nn::Linear Layer(int64_t in, int64_t out, double gain) {
  nn::Linear layer(in, out);
  nn::init::orthogonal_(layer->weight, gain);
  nn::init::zeros_(layer->bias);
  return layer;
}

nn::Sequential Network(int64_t outputs, double gain) {
  const double root = std::sqrt(2.0);
  return nn::Sequential(Layer(CartPole::kObservations, 64, root), nn::Tanh(), Layer(64, 64, root), nn::Tanh(), Layer(64, outputs, gain));
}

// Generalised advantage estimation, from the last move to the first. `values` has one more element than the rest.
torch::Tensor Advantages(const std::vector<torch::Tensor>& rewards, const std::vector<torch::Tensor>& running,
                         const std::vector<torch::Tensor>& values) {
  std::vector<torch::Tensor> advantages(rewards.size());
  auto next = torch::zeros_like(rewards.back());
  for (size_t t = rewards.size(); t-- > 0;) {
    const auto delta = rewards[t] + kDiscount * values[t + 1] * running[t] - values[t];
    next = delta + kDiscount * kLambda * running[t] * next;
    advantages[t] = next;
  }
  return torch::stack(advantages);
}

}  // namespace

ActorCriticImpl::ActorCriticImpl() {
  actor_ = register_module("actor", Network(CartPole::kActions, 0.01));
  critic_ = register_module("critic", Network(1, 1.0));
}

Agent::Agent(const Options& options)
    : options_(options),
      optimizer_(model_->parameters(), torch::optim::AdamOptions(1e-3).eps(1e-5)),
      returns_(static_cast<size_t>(options.carts)) {
  for (int64_t i = 0; i < options.carts; ++i) carts_.emplace_back(static_cast<uint64_t>(options.seed * 1000 + i));
}

torch::Tensor Agent::Observe() const {
  std::vector<torch::Tensor> rows;
  for (const CartPole& cart : carts_) rows.push_back(torch::tensor(at::ArrayRef<float>(cart.observation())));
  return torch::stack(rows);
}

void Agent::Move(const torch::Tensor& actions, std::vector<float>& rewards, std::vector<float>& running) {
  rewards.clear();
  running.clear();
  for (size_t i = 0; i < carts_.size(); ++i) {
    const CartPole::Outcome outcome = carts_[i].Step(actions[static_cast<int64_t>(i)].item<int64_t>());
    rewards.push_back(outcome.reward);
    running.push_back(outcome.done ? 0.0F : 1.0F);
    returns_[i] += outcome.reward;
    if (!outcome.done) continue;
    ended_.push_back(returns_[i]);
    returns_[i] = 0;
    carts_[i].Reset();
  }
}

Experience Agent::Play() {
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> observations, actions, log_probabilities, values, rewards, running;
  std::vector<float> reward, runs;
  for (int64_t t = 0; t < options_.horizon; ++t) {
    observations.push_back(Observe());
    const auto log_all = torch::log_softmax(model_->Logits(observations.back()), -1);
    actions.push_back(torch::multinomial(log_all.exp(), 1));
    log_probabilities.push_back(log_all.gather(-1, actions.back()).squeeze(-1));
    values.push_back(model_->Value(observations.back()));
    Move(actions.back(), reward, runs);
    rewards.push_back(torch::tensor(reward));
    running.push_back(torch::tensor(runs));
  }
  values.push_back(model_->Value(Observe()));
  const auto advantages = Advantages(rewards, running, values);
  values.pop_back();
  Experience all;
  all.observations = torch::cat(observations);
  all.actions = torch::cat(actions);
  all.log_probabilities = torch::cat(log_probabilities);
  all.advantages = advantages.flatten();
  all.returns = all.advantages + torch::cat(values);
  return all;
}

Losses Agent::LearnMinibatch(const Experience& batch) {
  const auto log_all = torch::log_softmax(model_->Logits(batch.observations), -1);
  const auto log_probabilities = log_all.gather(-1, batch.actions).squeeze(-1);
  const auto advantages = (batch.advantages - batch.advantages.mean()) / (batch.advantages.std() + 1e-8);
  const auto ratio = (log_probabilities - batch.log_probabilities).exp();
  const auto policy = -torch::min(ratio * advantages, ratio.clamp(1 - kClip, 1 + kClip) * advantages).mean();
  const auto value = torch::mse_loss(model_->Value(batch.observations), batch.returns);
  const auto entropy = -(log_all.exp() * log_all).sum(-1).mean();
  const auto loss = policy + kValueWeight * value - kEntropyWeight * entropy;
  optimizer_.zero_grad();
  loss.backward();
  nn::utils::clip_grad_norm_(model_->parameters(), kMaxNorm);
  optimizer_.step();
  const auto clipped = ((ratio.detach() - 1).abs() > kClip).to(torch::kFloat).mean();
  return {policy.item<double>(), value.item<double>(), entropy.item<double>(), clipped.item<double>()};
}

Losses Agent::Learn(const Experience& experience) {
  const int64_t moves = experience.actions.size(0);
  Losses total;
  double minibatches = 0;
  for (int64_t epoch = 0; epoch < options_.epochs; ++epoch) {
    for (const auto& rows : torch::randperm(moves).split(options_.minibatch)) {
      const Experience batch = {experience.observations.index_select(0, rows), experience.actions.index_select(0, rows),
                                experience.log_probabilities.index_select(0, rows), experience.advantages.index_select(0, rows),
                                experience.returns.index_select(0, rows)};
      const Losses losses = LearnMinibatch(batch);
      total.policy += losses.policy;
      total.value += losses.value;
      total.entropy += losses.entropy;
      total.clipped += losses.clipped;
      ++minibatches;
    }
  }
  return {total.policy / minibatches, total.value / minibatches, total.entropy / minibatches, total.clipped / minibatches};
}

double Agent::TakeMeanReturn() {
  if (ended_.empty()) return 0;
  const double mean = std::accumulate(ended_.begin(), ended_.end(), 0.0) / static_cast<double>(ended_.size());
  ended_.clear();
  return mean;
}

}  // namespace ppo
