// A physics-informed network: derivatives of derivatives.
#include "workload.h"

namespace workloads {
namespace {

namespace nn = torch::nn;

torch::Tensor Gradient(const torch::Tensor& y, const torch::Tensor& x) {
  return torch::autograd::grad({y}, {x}, {torch::ones_like(y)}, /*retain_graph=*/true, /*create_graph=*/true)[0];
}

// Sum of the second derivatives of u [points, 1] by the columns of x [points, dimensions].
torch::Tensor Laplacian(const torch::Tensor& u, const torch::Tensor& x) {
  const auto slope = Gradient(u, x);
  auto sum = torch::zeros_like(u);
  for (int64_t i = 0; i < x.size(1); ++i) {
    const auto column = slope.narrow(1, i, 1);
    sum = sum + Gradient(column, x).narrow(1, i, 1);
  }
  return sum;
}

// Solves Poisson's equation on a square, with u = 0 at its edges.
Step PinnTrain(torch::Device device) {
  nn::Sequential model(nn::Linear(2, 64), nn::Tanh(), nn::Linear(64, 64), nn::Tanh(), nn::Linear(64, 64), nn::Tanh(), nn::Linear(64, 1));
  model->to(device);
  const auto inside = torch::rand({1024, 2}, device).requires_grad_();
  const auto source = (torch::sin(M_PI * inside).prod(1, true) * (2 * M_PI * M_PI)).detach();
  const auto along = torch::rand({64, 1}, device), zero = torch::zeros_like(along), one = torch::ones_like(along);
  const auto edges =
      torch::cat({torch::cat({along, zero}, 1), torch::cat({along, one}, 1), torch::cat({zero, along}, 1), torch::cat({one, along}, 1)});
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-3));
  return Trainer(std::move(optimizer), [=]() mutable {
    const auto residual = Laplacian(model->forward(inside), inside) + source;
    return residual.square().mean() + model->forward(edges).square().mean();
  });
}

}  // namespace

std::vector<Workload> PhysicsWorkloads() {
  return {{"pinn_train", "training step for Poisson's equation, an MLP of 4 layers of 64, 1024 points, double backward, Adam", PinnTrain, 5,
           10}};
}

}  // namespace workloads
