// Solves Burgers' equation with a physics-informed network: the equation's residual, made of derivatives of the network by its inputs,
// is the loss. Adam first, L-BFGS then.
#include <lazuli/lazuli.h>
#include <torch/torch.h>

#include <cstdio>
#include <optional>

#include "common/command_line.h"

namespace pinn {
namespace {

namespace nn = torch::nn;

constexpr double kViscosity = 0.05;

struct Options {
  int64_t steps = 200;
  int64_t lbfgs_steps = 5;
  int64_t points = 512;
  int64_t width = 32;
  int64_t seed = 1;
  bool lazuli = false;
};

// The travelling wave that solves u_t + u u_x = viscosity u_xx.
torch::Tensor Exact(const torch::Tensor& x, const torch::Tensor& t) { return torch::sigmoid((0.5 * t - x) / (2 * kViscosity)); }

class NetImpl : public nn::Module {
 public:
  explicit NetImpl(int64_t width) {
    layers_ = register_module("layers", nn::Sequential(nn::Linear(2, width), nn::Tanh(), nn::Linear(width, width), nn::Tanh(),
                                                       nn::Linear(width, width), nn::Tanh(), nn::Linear(width, 1)));
    for (auto& parameter : named_parameters()) {
      if (parameter.key().find("weight") != std::string::npos) nn::init::xavier_normal_(parameter.value());
    }
  }

  // u at places x and times t, all [points, 1].
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& t) { return layers_->forward(torch::cat({x, t}, 1)); }

 private:
  nn::Sequential layers_{nullptr};
};
TORCH_MODULE(Net);

torch::Tensor Derivative(const torch::Tensor& y, const torch::Tensor& x) {
  return torch::autograd::grad({y}, {x}, {torch::ones_like(y)}, /*retain_graph=*/true, /*create_graph=*/true)[0];
}

// Random points of x in [-1, 1] and t in [0, 1]: inside, at the start, and at both ends.
class Problem {
 public:
  explicit Problem(int64_t points) {
    const auto doubles = torch::TensorOptions().dtype(torch::kDouble);
    x_ = (torch::rand({points, 1}, doubles) * 2 - 1).requires_grad_();
    t_ = torch::rand({points, 1}, doubles).requires_grad_();
    const int64_t edge = points / 4;
    const auto start = torch::linspace(-1, 1, edge, doubles).unsqueeze(1);
    const auto times = torch::rand({edge, 1}, doubles);
    edge_x_ = torch::cat({start, torch::full_like(times, -1), torch::full_like(times, 1)});
    edge_t_ = torch::cat({torch::zeros_like(start), times, times});
    edge_u_ = Exact(edge_x_, edge_t_);
  }

  // Mean squares of the equation's residual and of the distance from what is known at the edges.
  torch::Tensor Loss(Net& net) const {
    const auto u = net(x_, t_);
    const auto u_x = Derivative(u, x_);
    const auto residual = Derivative(u, t_) + u * u_x - kViscosity * Derivative(u_x, x_);
    return residual.square().mean() + torch::mse_loss(net(edge_x_, edge_t_), edge_u_);
  }

 private:
  torch::Tensor x_, t_, edge_x_, edge_t_, edge_u_;
};

// Relative distance from the exact solution over a grid.
double Error(Net& net) {
  torch::NoGradGuard no_grad;
  const auto line = torch::linspace(-1, 1, 50, torch::kDouble);
  const auto grid = torch::meshgrid({line, (line + 1) / 2}, "ij");
  const auto x = grid[0].reshape({-1, 1}), t = grid[1].reshape({-1, 1});
  const auto exact = Exact(x, t);
  return ((net(x, t) - exact).norm() / exact.norm()).item<double>();
}

examples::StepTimer RunAdam(Net& net, const Problem& problem, const Options& options) {
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(5e-3));
  examples::StepTimer timer;
  for (int64_t step = 1; step <= options.steps; ++step) {
    timer.Start();
    optimizer.zero_grad();
    const auto loss = problem.Loss(net);
    loss.backward();
    optimizer.step();
    const double value = loss.item<double>();
    timer.Stop();
    if (step % 20 == 0 || step <= 5 || step == options.steps) {
      std::printf("adam step %lld  loss %.8f\n", static_cast<long long>(step), value);
    }
  }
  return timer;
}

void RunLbfgs(Net& net, const Problem& problem, const Options& options) {
  torch::optim::LBFGS optimizer(net->parameters(),
                                torch::optim::LBFGSOptions(1).max_iter(10).history_size(20).line_search_fn("strong_wolfe"));
  for (int64_t step = 1; step <= options.lbfgs_steps; ++step) {
    int64_t calls = 0;
    optimizer.step([&] {
      ++calls;
      optimizer.zero_grad();
      const auto loss = problem.Loss(net);
      loss.backward();
      return loss;
    });
    std::printf("lbfgs step %lld  loss %.8f  evaluations %lld\n", static_cast<long long>(step), problem.Loss(net).item<double>(),
                static_cast<long long>(calls));
  }
}

int Run(int argc, char** argv) {
  Options options;
  examples::CommandLine line("pinn", "solves Burgers' equation with a physics-informed network.");
  line.Integer("--steps", options.steps, 1, 1000000000, "steps of Adam");
  line.Integer("--lbfgs-steps", options.lbfgs_steps, 0, 1000000000, "steps of L-BFGS after them, ten iterations each");
  line.Integer("--points", options.points, 4, 1000000, "points at which the equation must hold");
  line.Integer("--width", options.width, 1, 10000, "width of the network");
  line.Integer("--seed", options.seed, 0, 1000000000, "seed of weights and points");
  line.Flag("--lazuli", options.lazuli, "turn Lazuli on");
  if (!line.Parse(argc, argv)) return 0;

  std::optional<lazuli::DeviceMode> mode;
  if (options.lazuli) mode.emplace();
  torch::manual_seed(static_cast<uint64_t>(options.seed));
  Net net(options.width);
  net->to(torch::kDouble);
  const Problem problem(options.points);
  std::printf("before: error %.6f\n", Error(net));
  const examples::StepTimer timer = RunAdam(net, problem, options);
  std::printf("after Adam: error %.6f\n", Error(net));
  RunLbfgs(net, problem, options);
  std::printf("after L-BFGS: error %.6f\n", Error(net));
  timer.PrintMedian();
  return 0;
}

}  // namespace
}  // namespace pinn

int main(int argc, char** argv) {
  return examples::RunMain("pinn", [&] { return pinn::Run(argc, argv); });
}
