// Other scopes of LibTorch, and Lazuli's own inside each other.

#include <ATen/autocast_mode.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <sstream>

#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

class ScopesTest : public BackendTest {};

TEST_P(ScopesTest, InferenceMode) {
  ExpectSameAsEager([] {
    const c10::InferenceMode inference;
    auto x = torch::arange(6, torch::kFloat).view({2, 3});
    auto y = x.t() * 2;
    y.add_(1);
    auto z = y.slice(0, 0, 2);
    z.mul_(3);
    EXPECT_TRUE(y.is_inference());
    EXPECT_TRUE(z.is_inference());
    return Tensors{x, y, z};
  });
}

TEST_P(ScopesTest, InferenceModeOverParametersMadeOutside) {
  ExpectSameAsEager([] {
    torch::nn::Sequential model(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Linear(8, 2));
    auto x = torch::randn({3, 4});
    const c10::InferenceMode inference;
    return Tensors{model->forward(x).clone()};
  });
}

TEST_P(ScopesTest, NoGradAndEnableGrad) {
  ExpectSameAsEager([] {
    auto x = torch::ones({3}).requires_grad_();
    torch::Tensor without;
    torch::Tensor with;
    {
      const torch::NoGradGuard no_grad;
      without = x * 2;
      const torch::AutoGradMode grad(true);
      with = x * 3;
    }
    EXPECT_FALSE(without.requires_grad());
    EXPECT_TRUE(with.requires_grad());
    with.sum().backward();
    return Tensors{without, with, x.grad()};
  });
}

TEST_P(ScopesTest, AutocastToBfloat16) {
  ExpectSameAsEager([] {
    torch::nn::Linear layer(8, 8);
    auto x = torch::randn({4, 8});
    at::autocast::set_autocast_enabled(TestDevice().type(), true);
    at::autocast::set_autocast_dtype(TestDevice().type(), at::kBFloat16);
    auto y = layer->forward(x);
    auto z = torch::softmax(y, -1).sum();
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(TestDevice().type(), false);
    EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
    z.backward();
    (y.to(torch::kFloat) * 2).sum();
    return Tensors{y, z, layer->bias.grad()};
  });
}

TEST_P(ScopesTest, NestedModesEndWithTheOutermost) {
  const StatsDelta delta;
  torch::Tensor x;
  {
    const lazuli::DeviceMode outer(options());
    x = torch::ones({3}) + 1;
    {
      const lazuli::DeviceMode inner(options());
      x = x * 2;
    }
    EXPECT_TRUE(lazuli::is_enabled());
    EXPECT_EQ(delta.of(&Stats::traces), 0);
    x = x + 1;
  }
  EXPECT_FALSE(lazuli::is_enabled());
  EXPECT_EQ(delta.of(&Stats::traces), 1);
  EXPECT_EQ(x.sum().item<float>(), 15);
}

TEST_P(ScopesTest, EagerScopeRunsAtOnceAndSettlesWhatItNeeds) {
  const StatsDelta delta;
  const lazuli::DeviceMode mode(options());
  auto x = torch::ones({3}) + 1;
  auto untouched = torch::ones({3}) * 4;
  torch::Tensor y;
  {
    const lazuli::EagerScope eager;
    EXPECT_FALSE(lazuli::is_enabled());
    const auto recorded = delta.of(&Stats::ops_recorded);
    y = torch::full({3}, 2.0) * 3;
    EXPECT_EQ(delta.of(&Stats::traces), 0);
    EXPECT_EQ(delta.of(&Stats::ops_recorded), recorded);
    y = y + x;
    EXPECT_EQ(delta.of(&Stats::traces), 1);
    x.mul_(10);
    const lazuli::EagerScope nested;
    y.add_(0.5);
  }
  EXPECT_TRUE(lazuli::is_enabled());
  x = x + y;
  EXPECT_EQ(x[1].item<float>(), 28.5);
  EXPECT_EQ(untouched.sum().item<float>(), 12);
}

TEST_P(ScopesTest, EagerScopeMayOverwriteWhatPendingWorkReads) {
  const torch::Tensor x = torch::ones({3});
  const lazuli::DeviceMode mode(options());
  for (int i = 0; i < 3; ++i) {
    const torch::Tensor y = x * 2;
    {
      const lazuli::EagerScope eager;
      x.add_(1);
    }
    EXPECT_EQ(y.sum().item<float>(), 6 * (i + 1));
  }
}

TEST_P(ScopesTest, ModeInsideAnEagerScope) {
  const lazuli::DeviceMode mode(options());
  const lazuli::EagerScope eager;
  {
    const StatsDelta delta;
    const lazuli::DeviceMode inner(options());
    EXPECT_TRUE(lazuli::is_enabled());
    EXPECT_EQ((torch::ones({2}) + 1).sum().item<float>(), 4);
    EXPECT_GT(delta.of(&Stats::ops_recorded), 0);
  }
  EXPECT_FALSE(lazuli::is_enabled());
}

TEST_P(ScopesTest, SavedAndLoadedTensorsAndModules) {
  ExpectSameAsEager([] {
    torch::nn::Linear layer(4, 3);
    auto x = torch::randn({2, 4});
    {
      const torch::NoGradGuard no_grad;
      layer->weight.mul_(2).add_(0.5);
    }
    std::stringstream module_stream;
    torch::save(layer, module_stream);
    torch::nn::Linear copy(4, 3);
    torch::load(copy, module_stream);
    auto pending = x.exp() * 2;
    std::stringstream tensor_stream;
    torch::save(pending, tensor_stream);
    pending.zero_();
    torch::Tensor loaded;
    torch::load(loaded, tensor_stream);
    return Tensors{copy->forward(x), loaded, loaded + 1, pending};
  });
}

TEST_P(ScopesTest, OptimizerStateSavedInTheMiddleOfTraining) {
  ExpectSameAsEager([] {
    torch::nn::Linear layer(4, 3);
    torch::optim::Adam optimizer(layer->parameters(), 0.01);
    auto x = torch::randn({2, 4});
    const auto step = [&] {
      optimizer.zero_grad();
      layer->forward(x).pow(2).sum().backward();
      optimizer.step();
    };
    step();
    step();
    std::stringstream stream;
    torch::save(optimizer, stream);
    step();
    torch::load(optimizer, stream);
    step();
    return Tensors{layer->weight, layer->bias};
  });
}

TEST_P(ScopesTest, TorchScriptModule) {
  ExpectSameAsEager([] {
    torch::jit::Module module("scripted");
    module.register_parameter("weight", torch::linspace(-1, 1, 12).view({3, 4}), false);
    module.define(R"(
      def forward(self, x):
          y = torch.matmul(x, self.weight)
          if bool((y > 0).any()):
              y = y * 2
          for i in range(3):
              y[i % 2].add_(i)
          return torch.relu(y), y.sum(0)
    )");
    const auto result = module.forward({torch::arange(6, torch::kFloat).view({2, 3}) + 1}).toTuple();
    return Tensors{result->elements()[0].toTensor() + 1, result->elements()[1].toTensor()};
  });
}

TEST_P(ScopesTest, PrintingAPendingTensor) {
  const auto print = [] {
    std::ostringstream stream;
    stream << (torch::arange(4, torch::kFloat) * 1.5) << (torch::ones({2, 2}) > 0);
    return stream.str();
  };
  const std::string eager = print();
  const lazuli::DeviceMode mode(options());
  EXPECT_EQ(print(), eager);
}

TEST_P(ScopesTest, DataLoaderWithWorkers) {
  ExpectSameAsEager([] {
    auto data = torch::data::datasets::TensorDataset(torch::arange(12, torch::kFloat).view({6, 2}) * 2);
    auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
        std::move(data).map(torch::data::transforms::Stack<torch::data::TensorExample>()), torch::data::DataLoaderOptions(2).workers(2));
    Tensors batches;
    for (auto& batch : *loader) batches.push_back(batch.data * 0.5);
    return batches;
  });
}

// Workers that read what is recorded to be read, too, cut the trace at any time: they might write it.
TEST_P(ScopesTest, DataLoaderWhoseBatchesAreViews) {
  const auto run = [] {
    auto data = torch::data::datasets::TensorDataset(torch::arange(60, torch::kFloat).view({30, 2}) * 2);
    auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(std::move(data),
                                                                                          torch::data::DataLoaderOptions(2).workers(2));
    Tensors batches;
    for (auto& batch : *loader) {
      Tensors rows;
      for (auto& example : batch) rows.push_back(example.data);
      batches.push_back(torch::stack(rows) * 0.5);
    }
    return batches;
  };
  const Tensors eager = run();
  const lazuli::DeviceMode mode(options());
  for (int round = 0; round < 3; ++round) {
    const Tensors lazy = run();
    for (size_t i = 0; i < eager.size(); ++i) ExpectSame(eager[i], lazy[i], /*exact=*/true, "batch " + std::to_string(i));
  }
}

LAZULI_FOR_EACH_BACKEND(ScopesTest);

}  // namespace
}  // namespace lazuli::testing
