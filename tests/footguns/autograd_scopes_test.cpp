// Autograd's less common roads: forward mode, recomputation, anomalies, hooks that write or throw.

#include <ATen/autocast_mode.h>
#include <ATen/ops/_fw_primal.h>
#include <ATen/ops/_make_dual.h>
#include <ATen/ops/_unpack_dual.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/cpp_hook.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/torch.h>

#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class AutogradScopesTest : public BackendTest {
 protected:
  // What `program` throws, without the stack.
  static std::string ErrorOf(const std::function<void()>& program) {
    try {
      program();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }
};

// A level of forward-mode AD.
class DualLevel {
 public:
  DualLevel() : index_(torch::autograd::ForwardADLevel::get_next_idx()) {}
  ~DualLevel() { torch::autograd::ForwardADLevel::release_idx(index_); }
  torch::Tensor Make(const torch::Tensor& primal, const torch::Tensor& tangent) const {
    return at::_make_dual(primal, tangent, static_cast<int64_t>(index_));
  }
  torch::Tensor TangentOf(const torch::Tensor& dual) const {
    return std::get<1>(at::_unpack_dual(dual, static_cast<int64_t>(index_))).clone();
  }
  DualLevel(const DualLevel&) = delete;
  DualLevel& operator=(const DualLevel&) = delete;

 private:
  const uint64_t index_;
};

// Without gradients operators are recorded before autograd is asked, which has to see tangents, versions and errors all the same.
TEST_P(AutogradScopesTest, ForwardModeWithoutGrad) {
  ExpectSameAsEager([] {
    const DualLevel level;
    const torch::NoGradGuard no_grad;
    auto dual = level.Make(torch::linspace(-1, 1, 6).view({2, 3}) * 1, torch::randn({2, 3}) * 2);
    auto plain = torch::randn({2, 3});
    auto y = torch::cat({plain * 2, dual.tanh() * plain});
    plain.mul_(dual);
    return Tensors{y, level.TangentOf(y), plain, level.TangentOf(plain)};
  });
}

TEST_P(AutogradScopesTest, VersionsWithoutGrad) {
  const auto versions = [](std::initializer_list<torch::Tensor> tensors) {
    std::vector<int64_t> numbers;
    for (const torch::Tensor& tensor : tensors) numbers.push_back(tensor._version());
    return torch::tensor(numbers);
  };
  ExpectSameAsEager([&] {
    auto x = torch::randn({4, 3}), leaf = torch::randn({4, 3}).requires_grad_(), view = leaf.detach()[1];
    {
      const torch::NoGradGuard no_grad;
      x.add_(1).mul_(x).zero_().copy_(leaf).relu_();
      leaf.sub_(x, 0.1).clamp_(-1, 1);
      view.mul_(2);
    }
    x.div_(2);
    auto inference = [&] {
      const c10::InferenceMode mode;
      return (torch::ones({3}) * 2).add_(1);
    }();
    return Tensors{x, leaf, view, versions({x, leaf, view}), inference, torch::tensor(inference.is_inference())};
  });
}

TEST_P(AutogradScopesTest, WritesWithoutGradSpoilSavedTensors) {
  const auto program = [] {
    auto x = torch::randn({3}).requires_grad_(), y = x.exp();
    {
      const torch::NoGradGuard no_grad;
      y.mul_(2);
    }
    y.sum().backward();
  };
  const std::string eager = ErrorOf(program);
  EXPECT_NE(eager.find("modified by an inplace operation"), std::string::npos) << eager;
  const DeviceMode mode(options());
  EXPECT_EQ(ErrorOf(program), eager);
}

TEST_P(AutogradScopesTest, AutocastWithoutGrad) {
  ExpectSameAsEager([] {
    const torch::NoGradGuard no_grad;
    auto a = torch::randn({4, 8}), b = torch::randn({8, 4});
    at::autocast::set_autocast_enabled(at::kCPU, true);
    auto product = torch::mm(a * 2, b).relu_();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    return Tensors{product, torch::tensor(product.scalar_type() == torch::kBFloat16)};
  });
}

TEST_P(AutogradScopesTest, ForwardMode) {
  ExpectSameAsEager([] {
    const DualLevel level;
    auto dual = level.Make(torch::linspace(-1, 1, 6).view({2, 3}) * 1, torch::randn({2, 3}) * 2);
    auto y = torch::matmul(dual.tanh(), dual.t() * 3).softmax(1);
    y.mul_(2);
    y.select(0, 0).add_(dual.sum());
    return Tensors{level.TangentOf(y), y.detach().clone(), level.TangentOf(dual.slice(1, 0, 2).exp())};
  });
}

TEST_P(AutogradScopesTest, ForwardOverReverse) {
  ExpectSameAsEager([] {
    const DualLevel level;
    auto x = (torch::linspace(-1, 1, 4) * 1).requires_grad_();
    auto dual = level.Make(x, torch::ones({4}));
    auto grad = torch::autograd::grad({(dual.pow(3) * 2).sum()}, {dual}, {}, true, /*create_graph=*/true)[0];
    return Tensors{level.TangentOf(grad).detach(), grad.detach().clone()};
  });
}

// Keeps nothing of its block but its input, and runs it again in the backward.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static torch::Tensor Block(const torch::Tensor& x, const torch::Tensor& w) { return torch::tanh(torch::matmul(x, w)).pow(2) + x.sin(); }
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, const torch::Tensor& w) {
    context->save_for_backward({x, w});
    return Block(x, w);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const torch::AutoGradMode with_grad(true);
    const auto x = saved[0].detach().requires_grad_();
    const auto w = saved[1].detach().requires_grad_();
    Block(x, w).backward(grads[0]);
    return {x.grad(), w.grad()};
  }
};

TEST_P(AutogradScopesTest, RecomputationInBackward) {
  ExpectSameAsEager([] {
    auto x = torch::randn({3, 4}).requires_grad_();
    auto w = torch::randn({4, 4}).requires_grad_();
    auto y = x * 1;
    for (int i = 0; i < 3; ++i) y = Recomputed::apply(y, w);
    y.sum().backward();
    return Tensors{y.detach(), x.grad(), w.grad()};
  });
}

TEST_P(AutogradScopesTest, AnomalyModeNamesTheSameFunction) {
  const auto program = [] {
    const torch::autograd::DetectAnomalyGuard anomaly;
    auto x = OnTestDevice(torch::tensor({-1.0f, 4.0f})).requires_grad_();
    auto y = (x * 2).sqrt();
    (y * 3).sum().backward();
  };
  const std::string eager = ErrorOf(program);
  ASSERT_NE(eager.find("returned nan values"), std::string::npos) << eager;
  for (int round = 0; round < 3; ++round) {
    const lazuli::DeviceMode mode(options());
    EXPECT_EQ(ErrorOf(program), eager);
  }
}

TEST_P(AutogradScopesTest, AnomalyModeWithoutAnAnomaly) {
  ExpectSameAsEager([] {
    const torch::autograd::DetectAnomalyGuard anomaly;
    auto x = torch::linspace(1, 2, 5).requires_grad_();
    (x.sqrt() * x).sum().backward();
    return Tensors{x.grad()};
  });
}

struct ClearAfterStep : torch::autograd::PostAccumulateGradHook {
  explicit ClearAfterStep(double in_rate) : rate(in_rate) {}
  void operator()(const torch::autograd::Variable& parameter) override {
    const torch::NoGradGuard no_grad;
    const_cast<torch::autograd::Variable&>(parameter).sub_(parameter.grad(), rate);
    parameter.mutable_grad().reset();
  }
  double rate;
};

TEST_P(AutogradScopesTest, OptimizerStepInAPostAccumulateGradHook) {
  ExpectSameAsEager([] {
    auto w = torch::ones({4}).requires_grad_();
    auto b = torch::zeros({4}).requires_grad_();
    for (const auto& parameter : {w, b}) {
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<ClearAfterStep>(0.1));
    }
    const auto x = torch::linspace(0, 1, 4);
    for (int step = 0; step < 4; ++step) {
      (x * w + b).pow(2).sum().backward();
      EXPECT_FALSE(w.grad().defined());
    }
    return Tensors{w.detach(), b.detach()};
  });
}

TEST_P(AutogradScopesTest, HooksThatWrite) {
  ExpectSameAsEager([] {
    auto x = torch::linspace(-1, 1, 5).requires_grad_();
    auto seen = torch::zeros({5}) + 1;
    auto y = x.exp();
    y.register_hook([seen](const torch::Tensor& grad) { seen.add_(grad.detach()); });
    y.register_hook([](torch::Tensor grad) {
      auto copy = grad.clone();
      copy.clamp_(-0.5, 0.5);
      copy.select(0, 0).zero_();
      return copy;
    });
    (y * y).sum().backward();
    (x * 2).sum().backward();
    return Tensors{x.grad(), seen};
  });
}

TEST_P(AutogradScopesTest, HookThatThrowsEndsTheBackwardAndNothingElse) {
  const auto program = [](torch::Tensor* grad) {
    auto x = torch::ones({3}).requires_grad_();
    auto w = torch::ones({3}).requires_grad_();
    auto y = x * 2;
    y.register_hook([](const torch::Tensor& g) {
      if (g.sum().item<float>() > 0) throw std::runtime_error("the program's own");
    });
    (y * w).sum().backward();
    *grad = x.grad();
  };
  torch::Tensor grad;
  const std::string eager = ErrorOf([&] { program(&grad); });
  ASSERT_EQ(eager, "the program's own");
  const lazuli::DeviceMode mode(options());
  const auto before = torch::ones({4}) * 3;
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(ErrorOf([&] { program(&grad); }), eager);
    EXPECT_FALSE(grad.defined());
  }
  EXPECT_EQ((before + 1).sum().item<float>(), 16);
}

TEST_P(AutogradScopesTest, CustomFunctionThatThrows) {
  struct Throws : torch::autograd::Function<Throws> {
    static torch::Tensor forward(AutogradContext*, const torch::Tensor& x) { return x * 2; }
    static variable_list backward(AutogradContext*, variable_list grads) { TORCH_CHECK(false, "no gradient of size ", grads[0].sizes()); }
  };
  const auto program = [] { Throws::apply(torch::ones({3}).requires_grad_() * 1).sum().backward(); };
  const std::string eager = ErrorOf(program);
  ASSERT_NE(eager.find("no gradient of size [3]"), std::string::npos);
  const lazuli::DeviceMode mode(options());
  EXPECT_EQ(ErrorOf(program), eager);
}

TEST_P(AutogradScopesTest, GradWithCreateGraphThreeTimes) {
  ExpectSameAsEager([] {
    auto x = torch::linspace(0.1, 1, 4).requires_grad_();
    auto y = (x.sin() * x).sum();
    Tensors out;
    for (int order = 0; order < 3; ++order) {
      auto grad = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
      out.push_back(grad.detach().clone());
      y = (grad * grad).sum();
    }
    y.backward();
    out.push_back(x.grad().detach());
    x.mutable_grad().reset();
    return out;
  });
}

TEST_P(AutogradScopesTest, TrainingUnderAutocast) {
  ExpectSameAsEager([] {
    torch::nn::Sequential model(torch::nn::Linear(8, 16), torch::nn::GELU(), torch::nn::Linear(16, 4));
    torch::optim::SGD optimizer(model->parameters(), 0.05);
    const auto x = torch::randn({5, 8});
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      at::autocast::set_autocast_enabled(TestDevice().type(), true);
      at::autocast::set_autocast_dtype(TestDevice().type(), at::kBFloat16);
      const auto y = model->forward(x);
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(TestDevice().type(), false);
      EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
      torch::mse_loss(y.to(torch::kFloat), torch::ones({5, 4})).backward();
      optimizer.step();
    }
    const auto weight = model[0]->as<torch::nn::Linear>()->weight.detach();
    // Two roundings of bfloat16 apart at most, after three steps.
    return Tensors{weight.to(torch::kBFloat16)};
  });
}

TEST_P(AutogradScopesTest, InferenceModeBetweenTrainingSteps) {
  ExpectSameAsEager([] {
    torch::nn::Linear layer(4, 3);
    torch::optim::Adam optimizer(layer->parameters(), 0.01);
    const auto x = torch::randn({6, 4});
    Tensors out;
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      layer->forward(x).pow(2).mean().backward();
      optimizer.step();
      const c10::InferenceMode inference;
      auto y = layer->forward(x);
      y.relu_();
      out.push_back(y);
    }
    Tensors copies;
    for (const auto& tensor : out) copies.push_back(tensor.clone());
    return copies;
  });
  const auto misuse = [] {
    torch::Tensor inside;
    {
      const c10::InferenceMode inference;
      inside = torch::ones({3}) * 2;
    }
    (inside * torch::ones({3}).requires_grad_()).sum().backward();
  };
  const std::string eager = ErrorOf(misuse);
  ASSERT_NE(eager.find("Inference tensors cannot be saved"), std::string::npos);
  const lazuli::DeviceMode mode(options());
  EXPECT_EQ(ErrorOf(misuse), eager);
}

LAZULI_FOR_EACH_BACKEND(AutogradScopesTest);

}  // namespace
}  // namespace lazuli::testing
