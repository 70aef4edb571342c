// Proximal policy optimisation for continuous actions.
#include <cmath>

#include "workload.h"

namespace workloads {
namespace {

namespace nn = torch::nn;

constexpr int64_t kObservations = 17;
constexpr int64_t kActions = 6;
constexpr int64_t kMoves = 128;  // A rollout: so many moves
constexpr int64_t kCopies = 16;  // in so many copies of the environment.
constexpr int64_t kMinibatch = 256;
constexpr int64_t kEpochs = 2;
constexpr double kDiscount = 0.99;
constexpr double kLambda = 0.95;
constexpr double kClip = 0.2;

nn::Sequential Network(int64_t outputs) {
  return nn::Sequential(nn::Linear(kObservations, 64), nn::Tanh(), nn::Linear(64, 64), nn::Tanh(), nn::Linear(64, outputs));
}

class ActorCriticImpl : public nn::Module {
 public:
  ActorCriticImpl() {
    actor_ = register_module("actor", Network(kActions));
    critic_ = register_module("critic", Network(1));
    log_deviation_ = register_parameter("log_deviation", torch::full({kActions}, -0.5));
  }

  torch::Tensor LogProbability(const torch::Tensor& observations, const torch::Tensor& actions) {
    const auto off = (actions - actor_->forward(observations)) / log_deviation_.exp();
    return (-0.5 * off.square() - log_deviation_ - 0.5 * std::log(2 * M_PI)).sum(-1);
  }
  torch::Tensor Value(const torch::Tensor& observations) { return critic_->forward(observations).squeeze(-1); }
  torch::Tensor Entropy() const { return (log_deviation_ + 0.5 * std::log(2 * M_PI * M_E)).sum(); }

 private:
  nn::Sequential actor_{nullptr}, critic_{nullptr};
  torch::Tensor log_deviation_;
};
TORCH_MODULE(ActorCritic);

// What was seen and done: [moves, copies, ...]. `observations` has one more move than the rest.
struct Rollout {
  explicit Rollout(torch::Device device)
      : observations(torch::randn({kMoves + 1, kCopies, kObservations}, device)),
        actions(torch::randn({kMoves, kCopies, kActions}, device)),
        rewards(torch::randn({kMoves, kCopies}, device)),
        running((torch::rand({kMoves, kCopies}, device) > 0.02).to(torch::kFloat)) {}

  torch::Tensor observations, actions, rewards, running;
};

// Generalised advantage estimation, from the last move to the first.
torch::Tensor Advantages(const Rollout& rollout, const torch::Tensor& values) {
  std::vector<torch::Tensor> advantages(kMoves);
  auto next = torch::zeros({kCopies}, values.options());
  for (int64_t t = kMoves; t-- > 0;) {
    const auto delta = rollout.rewards[t] + kDiscount * values[t + 1] * rollout.running[t] - values[t];
    next = delta + kDiscount * kLambda * rollout.running[t] * next;
    advantages[static_cast<size_t>(t)] = next;
  }
  return torch::stack(advantages);
}

class Learner {
 public:
  explicit Learner(torch::Device device) : rollout_(device), optimizer_(Parameters(device), torch::optim::AdamOptions(3e-4).eps(1e-5)) {}

  // One update from one rollout. Returns the mean loss of its minibatches.
  torch::Tensor Update() {
    Batch all;
    {
      const torch::NoGradGuard no_grad;
      const auto values = model_->Value(rollout_.observations);
      const auto advantages = Advantages(rollout_, values);
      all.observations = rollout_.observations.narrow(0, 0, kMoves).flatten(0, 1);
      all.actions = rollout_.actions.flatten(0, 1);
      all.log_probabilities = model_->LogProbability(all.observations, all.actions);
      all.advantages = advantages.flatten();
      all.returns = all.advantages + values.narrow(0, 0, kMoves).flatten();
    }
    auto total = torch::zeros({}, all.returns.options());
    for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      for (const auto& rows :
           torch::randperm(kMoves * kCopies, torch::TensorOptions(torch::kLong).device(total.device())).split(kMinibatch))
        total += Learn(all.Rows(rows));
    }
    return total / static_cast<double>(kEpochs * kMoves * kCopies / kMinibatch);
  }

 private:
  std::vector<torch::Tensor> Parameters(torch::Device device) {
    model_->to(device);
    return model_->parameters();
  }

  struct Batch {
    torch::Tensor observations, actions, log_probabilities, advantages, returns;

    Batch Rows(const torch::Tensor& rows) const {
      return {observations.index_select(0, rows), actions.index_select(0, rows), log_probabilities.index_select(0, rows),
              advantages.index_select(0, rows), returns.index_select(0, rows)};
    }
  };

  torch::Tensor Learn(const Batch& batch) {
    const auto advantages = (batch.advantages - batch.advantages.mean()) / (batch.advantages.std() + 1e-8);
    const auto ratio = (model_->LogProbability(batch.observations, batch.actions) - batch.log_probabilities).exp();
    const auto policy = -torch::min(ratio * advantages, ratio.clamp(1 - kClip, 1 + kClip) * advantages).mean();
    const auto value = torch::mse_loss(model_->Value(batch.observations), batch.returns);
    const auto loss = policy + 0.5 * value - 0.01 * model_->Entropy();
    optimizer_.zero_grad();
    loss.backward();
    nn::utils::clip_grad_norm_(model_->parameters(), 0.5);
    optimizer_.step();
    return loss.detach();
  }

  Rollout rollout_;
  ActorCritic model_;
  torch::optim::Adam optimizer_;
};

Step PpoUpdate(torch::Device device) {
  auto learner = std::make_shared<Learner>(device);
  return [learner] { return learner->Update(); };
}

}  // namespace

std::vector<Workload> ReinforcementWorkloads() {
  return {{"ppo_update", "PPO: advantages over 128 moves of 16 copies, then 16 minibatches of 256 with clipped gradients and Adam",
           PpoUpdate, 5, 10}};
}

}  // namespace workloads
