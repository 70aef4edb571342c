// The programs that cpp_workloads times: plain LibTorch, with no knowledge of who runs them.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

namespace workloads {

// One call is one unit of work, and returns a tensor that depends on all of it.
using Step = std::function<torch::Tensor()>;

struct Workload {
  std::string name;
  std::string about;
  Step (*build)(torch::Device);  // Makes data and model there; GPUs are given as much as keeps them busy.
  int warm_up;                   // Steps before the first that is timed.
  int fewest;                    // Steps timed in a process at least; fast ones are repeated for a fixed time.
};

// Each file's workloads.
std::vector<Workload> TensorWorkloads();
std::vector<Workload> GptWorkloads();
std::vector<Workload> DecodeWorkloads();
std::vector<Workload> ImageWorkloads();
std::vector<Workload> RecurrentWorkloads();
std::vector<Workload> ReinforcementWorkloads();
std::vector<Workload> PhysicsWorkloads();

// All of them, in that order.
std::vector<Workload> AllWorkloads();

// A training step over one batch: forward, backward, optimizer. Returns the loss. `optimizer` moves in.
template <typename Optimizer, typename Loss>
Step Trainer(Optimizer optimizer, Loss loss_of) {
  auto shared = std::make_shared<Optimizer>(std::move(optimizer));
  return [shared, loss_of]() mutable {
    shared->zero_grad();
    const torch::Tensor loss = loss_of();
    loss.backward();
    shared->step();
    return loss.detach();
  };
}

}  // namespace workloads
