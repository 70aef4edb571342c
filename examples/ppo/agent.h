// Policy, experience and learning of a PPO agent.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "cart_pole.h"

namespace ppo {

struct Options {
  int64_t steps = 12;
  int64_t horizon = 64;  // Moves of each cart in one step of training.
  int64_t carts = 4;
  int64_t epochs = 4;
  int64_t minibatch = 64;
  int64_t seed = 1;
  bool lazuli = false;
};

// Two small networks: what to do, and how well things stand.
class ActorCriticImpl : public torch::nn::Module {
 public:
  ActorCriticImpl();
  torch::Tensor Logits(const torch::Tensor& observations) { return actor_->forward(observations); }
  torch::Tensor Value(const torch::Tensor& observations) { return critic_->forward(observations).squeeze(-1); }

 private:
  torch::nn::Sequential actor_{nullptr}, critic_{nullptr};
};
TORCH_MODULE(ActorCritic);

// What happened, one row for each move.
struct Experience {
  torch::Tensor observations, actions, log_probabilities, advantages, returns;
};

struct Losses {
  double policy = 0, value = 0, entropy = 0, clipped = 0;
};

class Agent {
 public:
  explicit Agent(const Options& options);

  // Plays options.horizon moves on every cart.
  Experience Play();
  // Several epochs over the experience in shuffled minibatches. Returns means over the minibatches.
  Losses Learn(const Experience& experience);
  // Mean return of the episodes that ended since the last call, 0 if none did.
  double TakeMeanReturn();

 private:
  torch::Tensor Observe() const;
  // Carts move; those that are done start again. `rewards` and `running` get one element per cart.
  void Move(const torch::Tensor& actions, std::vector<float>& rewards, std::vector<float>& running);
  Losses LearnMinibatch(const Experience& batch);

  Options options_;
  ActorCritic model_;
  torch::optim::Adam optimizer_;
  std::vector<CartPole> carts_;
  std::vector<double> returns_;  // Of each cart's episode so far.
  std::vector<double> ended_;    // Of episodes that ended.
};

}  // namespace ppo
