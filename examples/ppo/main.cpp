// Trains a PPO agent to keep a pole on a cart upright.
#include <lazuli/lazuli.h>
#include <torch/torch.h>

#include <cstdio>
#include <optional>

#include "agent.h"
#include "common/command_line.h"

namespace ppo {
namespace {

int Run(int argc, char** argv) {
  Options options;
  examples::CommandLine line("ppo", "trains an agent with proximal policy optimisation to keep a pole on a cart upright.");
  line.Integer("--steps", options.steps, 1, 1000000000, "training steps, each --horizon moves on every cart and then learning");
  line.Integer("--horizon", options.horizon, 1, 100000, "moves of each cart a step");
  line.Integer("--carts", options.carts, 1, 10000, "carts played side by side");
  line.Integer("--epochs", options.epochs, 1, 1000, "passes over each step's moves");
  line.Integer("--minibatch", options.minibatch, 2, 1000000, "moves learnt from at once");
  line.Integer("--seed", options.seed, 0, 1000000000, "seed of carts, weights, actions and order");
  line.Flag("--lazuli", options.lazuli, "turn Lazuli on");
  if (!line.Parse(argc, argv)) return 0;
  if (options.horizon * options.carts % options.minibatch != 0) {
    throw examples::UserError("--minibatch " + std::to_string(options.minibatch) + " does not divide the " +
                              std::to_string(options.horizon * options.carts) + " moves of a step: change it, --horizon or --carts.");
  }

  std::optional<lazuli::DeviceMode> mode;
  if (options.lazuli) mode.emplace();
  torch::manual_seed(static_cast<uint64_t>(options.seed));
  Agent agent(options);
  examples::StepTimer timer;
  for (int64_t step = 1; step <= options.steps; ++step) {
    timer.Start();
    const Losses losses = agent.Learn(agent.Play());
    timer.Stop();
    std::printf("step %lld  return %.4f  policy loss %.6f  value loss %.6f  entropy %.6f  clipped %.4f\n", static_cast<long long>(step),
                agent.TakeMeanReturn(), losses.policy, losses.value, losses.entropy, losses.clipped);
  }
  timer.PrintMedian();
  return 0;
}

}  // namespace
}  // namespace ppo

int main(int argc, char** argv) {
  return examples::RunMain("ppo", [&] { return ppo::Run(argc, argv); });
}
