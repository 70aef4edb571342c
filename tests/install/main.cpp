// Trains a line for a few steps, eagerly and with Lazuli, and compares.
#include <lazuli/lazuli.h>
#include <torch/torch.h>

#include <cstdio>

namespace {

torch::Tensor Train() {
  torch::manual_seed(0);
  torch::Tensor x = torch::randn({64, 3});
  torch::Tensor y = x.matmul(torch::tensor({1.0f, -2.0f, 0.5f}));
  torch::Tensor w = torch::zeros({3}, torch::requires_grad());
  torch::optim::SGD optimizer({w}, 0.1);
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    (x.matmul(w) - y).square().mean().backward();
    optimizer.step();
  }
  return w.detach().clone();
}

}  // namespace

int main() {
  torch::Tensor eager = Train();
  torch::Tensor lazy;
  {
    lazuli::DeviceMode mode(lazuli::Options().recompile_limit(16));
    lazy = Train();
    lazuli::sync();
  }
  const bool equal = torch::allclose(eager, lazy, 1e-5, 1e-6);
  const lazuli::Stats stats = lazuli::stats();
  std::printf("equal: %d, ops recorded: %lld, %s\n", equal, static_cast<long long>(stats.ops_recorded), stats.ToJson().c_str());
  return equal && stats.ops_recorded > 0 ? 0 : 1;
}
