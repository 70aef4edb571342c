// Autograd's bookkeeping over pending tensors.

#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

class AutogradTest : public BackendTest {
 protected:
  // The message of the c10::Error that `program` throws, without the stack; empty when it throws nothing.
  static std::string ErrorOf(const std::function<void()>& program) {
    try {
      program();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "";
  }
};

TEST_P(AutogradTest, VersionCountersAdvanceAsInEager) {
  const auto versions = [] {
    auto x = torch::ones({4}) + 1;
    auto view = x.slice(0, 1, 3);
    std::vector<int64_t> seen{x._version()};
    view.add_(1);
    seen.push_back(x._version());
    x.mul_(2).zero_();
    seen.push_back(view._version());
    auto detached = x.detach();
    detached.add_(1);
    seen.push_back(x._version());
    torch::add_out(x, x, x);
    seen.push_back(x._version());
    return seen;
  };
  const auto eager = versions();
  const lazuli::DeviceMode mode(options());
  EXPECT_EQ(versions(), eager);
}

TEST_P(AutogradTest, ModifiedInPlaceIsReportedAsInEager) {
  const auto program = [] {
    auto x = torch::ones({4}).requires_grad_();
    auto y = x.exp();
    auto z = y * y;
    y.add_(1);
    z.sum().backward();
  };
  const std::string eager = ErrorOf(program);
  ASSERT_NE(eager.find("modified by an inplace operation"), std::string::npos);
  const lazuli::DeviceMode mode(options());
  EXPECT_EQ(ErrorOf(program), eager);
  // The mode goes on working.
  EXPECT_EQ((torch::ones({2}) + 1).sum().item<float>(), 4);
}

TEST_P(AutogradTest, InPlaceOnALeafAndOnAViewOfALeafIsRefused) {
  const auto on_leaf = [] { torch::ones({4}).requires_grad_().add_(1); };
  const auto on_view = [] { torch::ones({4}).requires_grad_().slice(0, 0, 2).add_(1); };
  const std::string eager_leaf = ErrorOf(on_leaf);
  const std::string eager_view = ErrorOf(on_view);
  const lazuli::DeviceMode mode(options());
  EXPECT_EQ(ErrorOf(on_leaf), eager_leaf);
  EXPECT_EQ(ErrorOf(on_view), eager_view);
}

TEST_P(AutogradTest, InPlaceThroughViewsOfGradTensors) {
  ExpectSameAsEager([] {
    auto x = torch::arange(6, torch::kFloat).requires_grad_();
    auto y = x * 3;
    y.slice(0, 1, 4).mul_(x.slice(0, 0, 3));
    y.select(0, 5).zero_();
    auto z = y.view({2, 3}).t();
    z.add_(1);
    z.pow(2).sum().backward();
    return Tensors{x.grad(), y, z};
  });
}

TEST_P(AutogradTest, SavedTensorsSurviveTheirOwners) {
  ExpectSameAsEager([] {
    auto x = torch::linspace(-2, 2, 9).requires_grad_();
    torch::Tensor loss;
    {
      auto hidden = (x * 2).tanh();
      auto gate = hidden.sigmoid() * hidden;
      loss = (gate * gate.detach()).sum();
    }
    loss.backward();
    return Tensors{x.grad(), loss};
  });
}

TEST_P(AutogradTest, GradientsAccumulateInPlace) {
  ExpectSameAsEager([] {
    auto x = torch::arange(4, torch::kFloat).requires_grad_();
    (x * 2).sum().backward();
    auto held = x.grad();
    (x * x).sum().backward();
    (x * x * x).sum().backward();
    held.mul_(10);
    auto result = x.grad() + 0;
    x.mutable_grad().reset();
    (x * 5).sum().backward();
    return Tensors{held, result, x.grad()};
  });
}

TEST_P(AutogradTest, StolenGradientKeepsItsIdentity) {
  // AccumulateGrad takes over an incoming gradient that nobody else holds, else it copies: recording must not look like a holder.
  const auto use_count_and_alias = [] {
    auto x = torch::ones({8}).requires_grad_();
    auto grad = torch::full({8}, 3.0) * 1;
    auto y = x * 1.0;
    y.backward(grad);
    const bool shares = x.grad().is_alias_of(grad);
    return std::make_pair(x.grad().use_count(), shares);
  };
  const auto eager = use_count_and_alias();
  const lazuli::DeviceMode mode(options());
  EXPECT_EQ(use_count_and_alias(), eager);
}

TEST_P(AutogradTest, HooksRunOnceInOrder) {
  const auto program = [](std::vector<std::string>* calls) {
    auto x = torch::arange(3, torch::kFloat).requires_grad_();
    auto y = x * 2;
    x.register_hook([calls](torch::Tensor grad) {
      calls->push_back("x");
      return grad * 10;
    });
    y.register_hook([calls](torch::Tensor grad) {
      calls->push_back("y");
      return grad + 1;
    });
    y.retain_grad();
    (y * y).sum().backward();
    return Tensors{x.grad(), y.grad()};
  };
  std::vector<std::string> eager_calls;
  std::vector<std::string> lazy_calls;
  const auto eager = program(&eager_calls);
  {
    const lazuli::DeviceMode mode(options());
    ExpectSame(eager, program(&lazy_calls), exact(), "gradients");
  }
  EXPECT_EQ(lazy_calls, eager_calls);
}

TEST_P(AutogradTest, HookThatReadsAValueInTheMiddleOfBackward) {
  ExpectSameAsEager([] {
    auto x = torch::arange(1, 5, torch::kFloat).requires_grad_();
    auto y = x.exp();
    double seen = 0;
    y.register_hook([&seen](torch::Tensor grad) {
      seen = grad.sum().item<double>();
      return grad / grad.sum().item<double>();
    });
    (y * 2).sum().backward();
    return Tensors{x.grad(), torch::full({1}, seen)};
  });
}

TEST_P(AutogradTest, RetainGraphAndSecondBackward) {
  ExpectSameAsEager([] {
    auto x = torch::arange(4, torch::kFloat).requires_grad_();
    auto loss = (x.sin() * x).sum();
    loss.backward({}, /*retain_graph=*/true);
    auto first = x.grad().clone();
    loss.backward();
    return Tensors{first, x.grad()};
  });
  const auto twice = [] {
    auto x = torch::ones({2}).requires_grad_();
    auto loss = x.exp().sum();
    loss.backward();
    loss.backward();
  };
  const std::string eager = ErrorOf(twice);
  ASSERT_FALSE(eager.empty());
  const lazuli::DeviceMode mode(options());
  EXPECT_EQ(ErrorOf(twice), eager);
}

TEST_P(AutogradTest, DoubleBackward) {
  ExpectSameAsEager([] {
    auto x = torch::linspace(-1, 1, 5).requires_grad_();
    auto w = torch::linspace(0.5, 1.5, 5).requires_grad_();
    auto y = (x * w).tanh().pow(3).sum();
    auto grads = torch::autograd::grad({y}, {x, w}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    auto penalty = (grads[0].pow(2) + grads[1].pow(2)).sum();
    penalty.backward();
    return Tensors{grads[0].detach(), x.grad(), w.grad()};
  });
}

struct ScaledExp : torch::autograd::Function<ScaledExp> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x, double scale) {
    auto y = (x * scale).exp();
    context->save_for_backward({y});
    context->saved_data["scale"] = scale;
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list grads) {
    const auto y = context->get_saved_variables()[0];
    return {grads[0] * y * context->saved_data["scale"].toDouble(), torch::Tensor()};
  }
};

TEST_P(AutogradTest, CustomFunction) {
  ExpectSameAsEager([] {
    auto x = torch::linspace(-1, 1, 7).requires_grad_();
    auto y = ScaledExp::apply(x, 0.5) + ScaledExp::apply(x * 2, 1.5);
    y.mean().backward();
    return Tensors{y, x.grad()};
  });
}

struct DirtyScale : torch::autograd::Function<DirtyScale> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor x) {
    x.mul_(3);
    context->mark_dirty({x});
    return x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list grads) {
    return {grads[0] * 3};
  }
};

TEST_P(AutogradTest, CustomFunctionThatWritesItsInput) {
  ExpectSameAsEager([] {
    auto x = torch::arange(5, torch::kFloat).requires_grad_();
    auto y = x + 1;
    auto z = DirtyScale::apply(y);
    (z * z).sum().backward();
    return Tensors{y, z, x.grad()};
  });
}

struct WithoutGradient : torch::autograd::Function<WithoutGradient> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x) { return x * 1; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list) {
    return {torch::Tensor()};
  }
};

// Formulas are then called with undefined gradients, and some answer with undefined results.
TEST_P(AutogradTest, GradientsThatThereAreNoneOf) {
  using Layer = std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)>;
  const std::vector<Layer> layers = {
      [](const auto& x, const auto& w) { return torch::scaled_dot_product_attention(x, w, x); },
      [](const auto& x, const auto& w) { return torch::layer_norm(x, {4}, w.flatten().slice(0, 0, 4)); },
      [](const auto& x, const auto& w) { return torch::batch_norm(x, w.flatten().slice(0, 0, 2), {}, {}, {}, true, 0.1, 1e-5, false); },
      [](const auto& x, const auto& w) { return torch::conv2d(x, w.slice(3, 0, 3)); },
      [](const auto& x, const auto& w) { return torch::matmul(x, w.transpose(2, 3)); },
      [](const auto& x, const auto& w) { return torch::gelu(x) * w; },
      [](const auto& x, const auto& w) { return torch::log_softmax(x, 1) + w.cumsum(0); },
      [](const auto& x, const auto& w) { return std::get<0>(torch::max(x * w, 1)); },
  };
  for (size_t i = 0; i < layers.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSameAsEager([&layer = layers[i]] {
      const auto x = torch::randn({2, 2, 3, 4}).requires_grad_(), w = torch::randn({2, 2, 3, 4}).requires_grad_();
      const auto y = layer(x, w);
      Tensors results = torch::autograd::grad({WithoutGradient::apply(y).sum()}, {x, w}, {}, /*retain_graph=*/true, /*create_graph=*/false,
                                              /*allow_unused=*/true);
      for (const auto& grad : torch::autograd::grad({WithoutGradient::apply(y).sum() + y.mean()}, {x, w})) results.push_back(grad);
      return results;
    });
  }
}

TEST_P(AutogradTest, NoGradGuardInsideAGraph) {
  ExpectSameAsEager([] {
    auto w = torch::ones({3}).requires_grad_();
    for (int i = 0; i < 3; ++i) {
      (w * w).sum().backward();
      const torch::NoGradGuard no_grad;
      w.sub_(w.grad() * 0.1);
      w.mutable_grad().zero_();
    }
    return Tensors{w, w.grad()};
  });
}

LAZULI_FOR_EACH_BACKEND(AutogradTest);

}  // namespace
}  // namespace lazuli::testing
