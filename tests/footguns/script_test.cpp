// TorchScript, and the containers that programs keep tensors in.

#include <ATen/core/Dict.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <sstream>

#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

class ScriptTest : public BackendTest {};

constexpr char kControlFlow[] = R"(
def collatz(x, limit: int):
    steps = 0
    while bool(x.sum() > 1) and steps < limit:
        if steps % 2 == 0:
            x = x * 0.5
        else:
            x = torch.relu(x - 0.25) + 0.125
        steps += 1
    return x, steps

def helper(x, w):
    return torch.sigmoid(torch.matmul(x, w))

def gates(x, w):
    y = helper(x, w)
    z = helper(x * 2, w)
    return y * torch.tanh(z) + (1 - y) * z
)";

TEST_P(ScriptTest, CompiledFunctionsWithControlFlow) {
  // The profiling executor rewrites a function after a few calls.
  ExpectSameAsEager([] {
    const auto unit = torch::jit::compile(kControlFlow);
    Tensors out;
    for (int i = 0; i < 4; ++i) {
      const auto pair = unit->run_method("collatz", torch::full({3}, 4.0f + i) * 2, 6).toTuple();
      out.push_back(pair->elements()[0].toTensor());
      out.push_back(torch::full({1}, pair->elements()[1].toInt()));
      out.push_back(unit->run_method("gates", torch::randn({2, 3}), torch::randn({3, 4})).toTensor());
    }
    return out;
  });
}

TEST_P(ScriptTest, CompiledFunctionsWithGradients) {
  ExpectSameAsEager([] {
    const auto unit = torch::jit::compile(kControlFlow);
    Tensors out;
    for (int i = 0; i < 4; ++i) {
      auto x = torch::randn({2, 3}).requires_grad_();
      auto w = torch::randn({3, 4}).requires_grad_();
      unit->run_method("gates", x, w).toTensor().pow(2).sum().backward();
      out.insert(out.end(), {x.grad(), w.grad()});
    }
    return out;
  });
}

torch::jit::Module MakeScripted() {
  torch::jit::Module module("scripted");
  module.register_parameter("weight", (torch::randn({4, 4}) * 0.3).requires_grad_(), false);
  module.register_buffer("calls", torch::zeros({1}));
  module.define(R"(
    def forward(self, x, training: bool):
        self.calls.add_(1)
        for i in range(2):
            x = torch.dropout(torch.tanh(torch.matmul(x, self.weight)), 0.2, training)
        return x
  )");
  return module;
}

TEST_P(ScriptTest, ModuleTrainedSavedAndLoaded) {
  ExpectSameAsEager([] {
    auto module = MakeScripted();
    Tensors parameters;
    for (const auto& parameter : module.parameters()) parameters.push_back(parameter);
    torch::optim::Adam optimizer(parameters, 0.01);
    const auto input = torch::randn({5, 4});
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      module.forward({input, true}).toTensor().pow(2).mean().backward();
      optimizer.step();
    }
    std::stringstream stream;
    module.save(stream);
    auto loaded = torch::jit::load(stream);
    loaded.eval();
    const c10::InferenceMode inference;
    return Tensors{loaded.forward({input, false}).toTensor().clone(), module.attr("weight").toTensor().detach().clone(),
                   loaded.attr("calls").toTensor().clone()};
  });
}

// What TorchScript's fork and wait do: the task goes on in LibTorch's pool, under the caller's state.
TEST_P(ScriptTest, ForkedTasks) {
#if defined(LAZULI_SANITIZE_THREAD)
  GTEST_SKIP() << "the hand-over to LibTorch's pool, which is not instrumented, looks like a race";
#endif
  const auto run = [] {
    const auto unit = torch::jit::compile(kControlFlow);
    Tensors out;
    for (int i = 0; i < 4; ++i) {
      const auto x = torch::arange(6, torch::kFloat).view({2, 3}) * (i + 1);
      const auto w = torch::linspace(-1, 1, 12).view({3, 4}) * 2;
      auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
      at::launch([=] { future->markCompleted(unit->run_method("gates", x * 0.1, w)); });
      const auto here = unit->run_method("helper", x * 0.2, w).toTensor();
      future->wait();
      out.push_back(future->value().toTensor() + here);
    }
    return out;
  };
  const auto eager = run();
  for (int round = 0; round < 3; ++round) {
    const StatsDelta delta;
    const lazuli::DeviceMode mode(options());
    ExpectSame(eager, run(), exact(), "round " + std::to_string(round));
    EXPECT_GT(delta.of(&Stats::ops_recorded), 0);
    EXPECT_GT(delta.of(&Stats::programs_compiled) + delta.of(&Stats::cache_hits), 0);
  }
}

TEST_P(ScriptTest, ContainersOfPendingTensors) {
  ExpectSameAsEager([] {
    c10::Dict<std::string, torch::Tensor> dict;
    c10::List<torch::Tensor> list;
    for (int i = 0; i < 3; ++i) {
      const auto pending = torch::full({3}, i) * 2;
      dict.insert(std::to_string(i), pending);
      list.push_back(pending);
    }
    dict.at("1").add_(5);
    const c10::IValue value(dict);
    const c10::IValue copy = value.deepcopy();
    copy.toGenericDict().at("0").toTensor().sub_(1);
    std::vector<torch::Tensor> state = list.vec();
    state[2].mul_(3);
    const c10::IValue tuple = c10::ivalue::Tuple::create({list.get(2), copy});
    c10::IValue::HashIdentityIValues memo;
    EXPECT_TRUE(value.toGenericDict().at("1").toTensor().is_alias_of(list.get(1)));
    return Tensors{list.get(0), list.get(1), tuple.toTuple()->elements()[0].toTensor(), copy.toGenericDict().at("0").toTensor(),
                   copy.toGenericDict().at("1").toTensor()};
  });
}

TEST_P(ScriptTest, PickledPendingTensors) {
  LAZULI_CPU_ONLY("LibTorch's unpickler gives each tensor on a GPU memory of its own");
  ExpectSameAsEager([] {
    auto base = torch::arange(12, torch::kFloat).view({3, 4}) * 2;
    const auto row = base.select(0, 1);
    base.add_(1);
    const std::vector<char> bytes = torch::pickle_save(c10::ivalue::Tuple::create({base, row, 7}));
    base.zero_();
    const auto loaded = torch::pickle_load(bytes).toTuple();
    auto first = loaded->elements()[0].toTensor();
    const auto second = loaded->elements()[1].toTensor();
    EXPECT_TRUE(first.is_alias_of(second));
    first.mul_(10);
    return Tensors{first, second, base};
  });
}

// The tracer leaves aten::convolution to what it calls, and takes what it did not see for a constant.
TEST_P(ScriptTest, ATracedConvolution) {
  const auto weight = torch::randn({2, 1, 3, 3});
  const auto convolve = [&](torch::jit::Stack inputs) -> torch::jit::Stack { return {at::conv2d(inputs[0].toTensor(), weight) + 1}; };
  const lazuli::DeviceMode mode(options());
  for (int round = 0; round < 3; ++round) {
    const auto traced = torch::jit::tracer::trace({torch::zeros({1, 1, 4, 4})}, convolve, [](const torch::Tensor&) { return ""; });
    EXPECT_NE(traced.first->graph->toString().find("aten::_convolution"), std::string::npos) << *traced.first->graph;
  }
}

// What a traced function allocates is its own, each time.
TEST_P(ScriptTest, TracedAllocations) {
  const auto keep = [](torch::jit::Stack inputs) -> torch::jit::Stack {
    auto y = at::empty({3});
    y.copy_(inputs[0].toTensor());
    return {y};
  };
  const lazuli::DeviceMode mode(options());
  const auto traced = torch::jit::tracer::trace({torch::zeros({3})}, keep, [](const torch::Tensor&) { return ""; });
  EXPECT_NE(traced.first->graph->toString().find("aten::empty"), std::string::npos) << *traced.first->graph;
}

LAZULI_FOR_EACH_BACKEND(ScriptTest);

}  // namespace
}  // namespace lazuli::testing
