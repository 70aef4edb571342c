// Operators that write every tensor of a list: fused optimizers' steps, gradients scaled back.
#include <torch/torch.h>

#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

class WrittenListsTest : public BackendTest {};

struct State {
  Tensors params, means, squares, largest, counts;
};

State FreshState() {
  State state;
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{4, 6}, {6}, {3, 4}, {}}) {
    state.params.push_back(torch::randn(sizes));
    state.means.push_back(torch::zeros(sizes));
    state.squares.push_back(torch::zeros(sizes));
    state.largest.push_back(torch::zeros(sizes));
    state.counts.push_back(torch::zeros({}));
  }
  return state;
}

// Of a loss that all parameters take part in.
Tensors Gradients(const Tensors& params) {
  Tensors gradients;
  for (const torch::Tensor& param : params) gradients.push_back((param * 1.5 + 0.25).sin() * params.back());
  return gradients;
}

Tensors All(const State& state) {
  Tensors all;
  for (const Tensors* list : {&state.params, &state.means, &state.squares, &state.largest, &state.counts}) {
    all.insert(all.end(), list->begin(), list->end());
  }
  return all;
}

TEST_P(WrittenListsTest, FusedAdam) {
  for (const bool decoupled : {false, true}) {
    for (const bool amsgrad : {false, true}) {
      SCOPED_TRACE(decoupled ? "adamw" : "adam");
      ExpectSameAsEager([&] {
        State state = FreshState();
        for (int step = 0; step < 4; ++step) {
          const Tensors gradients = Gradients(state.params);
          at::_foreach_add_(state.counts, 1);
          const double rate = 0.1 / (step + 1);
          const auto largest = amsgrad ? at::TensorList(state.largest) : at::TensorList();
          if (decoupled) {
            at::_fused_adamw_(state.params, gradients, state.means, state.squares, largest, state.counts, rate, 0.9, 0.99, 0.05, 1e-8,
                              amsgrad, false);
          } else {
            at::_fused_adam_(state.params, gradients, state.means, state.squares, largest, state.counts, rate, 0.9, 0.99, 0.05, 1e-8,
                             amsgrad, true);
          }
        }
        return All(state);
      });
    }
  }
}

TEST_P(WrittenListsTest, FusedSgdAndAdagrad) {
  ExpectSameAsEager([] {
    State state = FreshState();
    for (int step = 0; step < 3; ++step) {
      at::_fused_sgd_(state.params, Gradients(state.params), state.means, 0.01, 0.9, 0.05, 0, /*nesterov=*/true, false, step == 0);
    }
    for (int step = 0; step < 3; ++step) {
      at::_foreach_add_(state.counts, 1);
      at::_fused_adagrad_(state.params, Gradients(state.params), state.squares, state.counts, 0.05, 0.01, 0.1, 1e-10, false);
    }
    return All(state);
  });
}

// A step that is left out when a gradient is infinite, without anybody reading whether one is.
TEST_P(WrittenListsTest, GradientsOfAScaledLoss) {
  ExpectSameAsEager([] {
    State state = FreshState();
    const auto scale = torch::full({}, 1024.0), inverse = torch::full({}, 1 / 1024.0);
    for (int step = 0; step < 3; ++step) {
      Tensors gradients = Gradients(state.params);
      for (torch::Tensor& gradient : gradients) gradient.mul_(step == 1 ? scale / 0 : scale);
      auto found = torch::zeros({1});
      at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse);
      at::_foreach_add_(state.counts, 1 - found.squeeze());
      at::_fused_adam_(state.params, gradients, state.means, state.squares, {}, state.counts, 0.1, 0.9, 0.99, 0, 1e-8, false, false, {},
                       found);
    }
    return All(state);
  });
}

// Parameters that are windows of one storage are apart.
TEST_P(WrittenListsTest, WindowsOfOneBuffer) {
  ExpectSameAsEager([] {
    auto flat = torch::randn({40}), means = torch::zeros({40}), squares = torch::zeros({40});
    const auto counts = torch::zeros({2}).unbind();
    for (int step = 0; step < 3; ++step) {
      const auto params = flat.split({12, 28});
      at::_foreach_add_(counts, 1);
      at::_fused_adamw_(params, (flat * 2).split({12, 28}), means.split({12, 28}), squares.split({12, 28}), {}, counts, 0.1, 0.9, 0.99,
                        0.05, 1e-8, false, false);
      flat.mul_(1.01);
    }
    return Tensors{flat, means, squares};
  });
}

// What one element of a list writes is another's, too: only eager mode knows in which order.
TEST_P(WrittenListsTest, WindowsThatOverlapAreEagers) {
  const auto run = [] {
    torch::manual_seed(3);
    auto shared = torch::randn({10}) * 2;
    const Tensors params = {shared.slice(0, 0, 6), shared.slice(0, 4, 10)};
    const Tensors gradients = {torch::ones({6}), torch::ones({6})}, momenta = {torch::zeros({6}), torch::zeros({6})};
    at::_fused_sgd_(params, gradients, momenta, 0, 0.9, 0.5, 0, false, false, true);
    return shared;
  };
  const auto eager = run();
  for (int round = 0; round < 3; ++round) {
    const StatsDelta delta;
    const lazuli::DeviceMode mode(options());
    const auto lazy = run();
    EXPECT_EQ(delta.fallbacks("aten::_fused_sgd_"), 1);
    ExpectSame(eager, lazy, exact(), "overlapping windows");
  }
}

TEST_P(WrittenListsTest, ListsOfDifferentLengthsAreEagersError) {
  LAZULI_CPU_ONLY("LibTorch's CUDA kernels do not look");
  const auto error = [] {
    State state = FreshState();
    Tensors gradients = Gradients(state.params);
    gradients.pop_back();
    try {
      at::_fused_sgd_(state.params, gradients, state.means, 0, 0.9, 0.05, 0, false, false, true);
    } catch (const c10::Error& error) {
      return std::string(error.what_without_backtrace());
    }
    return std::string();
  };
  const std::string eager = error();
  EXPECT_NE(eager, "");
  const lazuli::DeviceMode mode(options());
  EXPECT_EQ(error(), eager);
}

LAZULI_FOR_EACH_BACKEND(WrittenListsTest);

}  // namespace
}  // namespace lazuli::testing
