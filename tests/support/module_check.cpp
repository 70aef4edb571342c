#include "tests/support/module_check.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>
#include <sstream>

#include "lazuli/lazuli.h"
#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"
#include "tests/support/test_env.h"

namespace lazuli::testing {
namespace {

constexpr int kRounds = 4;
constexpr uint64_t kSeed = 4711;

// What a program saw of a module, and what the counters gained over all rounds and in the last one.
struct Observed {
  Tensors forward;
  Tensors backward;
  Stats before, before_last, after;
  int64_t observed_again = 0;  // Operators observed in the first round for another shape than the first.
};

// One training step without an optimizer.
void Step(const ModuleUnderTest& tested, const Arguments& draws, Observed* seen) {
  Tensors arguments;
  for (const Draw& draw : draws) arguments.push_back(draw());
  lazuli::sync();  // A GPU's are random numbers that are yet to be drawn.
  tested.module->zero_grad();
  const Tensors outputs = tested.forward(arguments);
  torch::Tensor loss;
  for (const torch::Tensor& output : outputs) {
    seen->forward.push_back(output.detach());
    if (!output.requires_grad()) continue;
    const auto part = (output * torch::randn_like(output.detach())).sum();
    loss = loss.defined() ? loss + part : part;
  }
  if (loss.defined()) loss.backward();
  for (const torch::Tensor& argument : arguments) seen->backward.push_back(argument.grad());
  for (const torch::Tensor& parameter : tested.module->parameters()) {
    seen->backward.push_back(parameter.grad().defined() ? parameter.grad().clone() : torch::Tensor());
  }
  for (const torch::Tensor& buffer : tested.module->buffers()) seen->backward.push_back(buffer.clone());
  seen->backward.push_back(torch::rand({2}));
}

void Rounds(const ModuleRow& row, const ModuleUnderTest& tested, Observed* seen) {
  for (int round = 0; round < kRounds; ++round) {
    if (round + 1 == kRounds) seen->before_last = lazuli::stats();
    for (const Arguments& shape : row.shapes) {
      const int64_t observed = lazuli::stats().observations;
      Step(tested, shape, seen);
      lazuli::sync();
      if (round == 0 && &shape != &row.shapes.front()) seen->observed_again += lazuli::stats().observations - observed;
    }
  }
}

Observed RunModule(const ModuleRow& row, const std::optional<Options>& options, bool made_inside) {
  Observed seen;
  torch::manual_seed(kSeed);
  std::optional<ModuleUnderTest> tested;
  if (!made_inside) tested = row.make();
  seen.before = lazuli::stats();
  {
    std::optional<lazuli::DeviceMode> mode;
    if (options.has_value()) mode.emplace(*options);
    if (made_inside) tested = row.make();
    Rounds(row, *tested, &seen);
  }
  seen.after = lazuli::stats();
  return seen;
}

std::map<std::string, int64_t> Gained(const std::map<std::string, int64_t>& before, const std::map<std::string, int64_t>& after) {
  std::map<std::string, int64_t> gained;
  for (const auto& [name, count] : after) {
    const auto it = before.find(name);
    const int64_t difference = count - (it == before.end() ? 0 : it->second);
    if (difference != 0) gained[name] = difference;
  }
  return gained;
}

// Without the layers that a library of the device has whole: oneDNN's on the CPU, cuDNN's on a GPU.
std::vector<std::string> OnAnyDevice(std::vector<std::string> names) {
  const auto is_of_library = [](const std::string& name) {
    return name.find("mkldnn") != std::string::npos || name.find("cudnn") != std::string::npos;
  };
  if (OnGpu()) names.erase(std::remove_if(names.begin(), names.end(), is_of_library), names.end());
  return names;
}

void ExpectCompiled(const ModuleRow& row, const Observed& seen) {
  const Stats &begin = seen.before, &last = seen.before_last, &end = seen.after;
  EXPECT_GT(end.ops_recorded, begin.ops_recorded);
  EXPECT_GT(end.programs_compiled, begin.programs_compiled);
  EXPECT_EQ(end.compile_failures, begin.compile_failures);
  EXPECT_EQ(end.recompile_limit_hits, begin.recompile_limit_hits);
  // The last round is all cached, with no step taken op by op.
  EXPECT_GT(end.traces, last.traces);
  EXPECT_EQ(end.cache_hits - last.cache_hits, end.traces - last.traces);
  EXPECT_EQ(end.programs_compiled, last.programs_compiled);
  EXPECT_EQ(end.eager_replays, last.eager_replays);
  EXPECT_EQ(end.observations, last.observations);
  // Gradients of operators that run eagerly anyway (oneDNN's LSTM) are not worth one. On a GPU each function is first seen to be right.
  if (row.fallbacks.empty() && !OnGpu()) {
    EXPECT_EQ(seen.observed_again, 0) << "a shape function is missing";
  }
  std::vector<std::string> names;
  for (const auto& [name, count] : Gained(last.eager_fallbacks, end.eager_fallbacks)) names.push_back(name);
  std::vector<std::string> expected = row.fallbacks;
  if (OnGpu()) expected.insert(expected.end(), row.gpu_fallbacks.begin(), row.gpu_fallbacks.end());
  EXPECT_EQ(OnAnyDevice(names), OnAnyDevice(expected));
}

std::string FallbackText(const std::map<std::string, int64_t>& fallbacks) {
  std::string text;
  for (const auto& [name, count] : fallbacks) text += (text.empty() ? "" : ", ") + name + " " + std::to_string(count);
  return text.empty() ? "0" : text;
}

class Table : public ::testing::Environment {
 public:
  Table() : wanted_(TakeFromEnv("LAZULI_TEST_TABLE", 0) != 0) {}
  void Add(const TableLine& line) {
    std::ostringstream text;
    text << "| " << line.name << " | " << (line.forward_equal ? "yes" : "no") << " | " << (line.backward_equal ? "yes" : "no") << " | "
         << line.difference << " | " << line.programs << " | " << line.cache_hits << " | " << FallbackText(line.fallbacks) << " |\n";
    lines_ += text.str();
  }
  void TearDown() override {
    if (!wanted_) return;
    std::cout << "| what | aten: forward equal | aten: backward equal | llvm: largest relative difference | programs | cache hits | "
                 "eager fallbacks |\n|---|---|---|---|---|---|---|\n"
              << lines_;
  }

 private:
  const bool wanted_;
  std::string lines_;
};

Table* const table = static_cast<Table*>(::testing::AddGlobalTestEnvironment(new Table));

torch::Tensor WithGrad(torch::Tensor tensor) { return tensor.requires_grad_(); }

}  // namespace

Draw Normal(std::vector<int64_t> sizes) {
  return [sizes] { return WithGrad(torch::randn(sizes)); };
}
Draw Unit(std::vector<int64_t> sizes) {
  return [sizes] { return WithGrad(torch::rand(sizes) * 0.9 + 0.05); };
}
Draw Index(int64_t end, std::vector<int64_t> sizes) {
  return [end, sizes] { return torch::randint(end, sizes, torch::kLong); };
}
Draw Cycle(int64_t end, int64_t size) {
  return [end, size] { return torch::arange(size, torch::kLong).remainder(end); };
}
Draw Sign(std::vector<int64_t> sizes) {
  return [sizes] { return torch::randint(2, sizes, torch::kFloat) * 2 - 1; };
}
Draw Simplex(std::vector<int64_t> sizes) {
  return [sizes] { return torch::softmax(torch::randn(sizes), -1); };
}

std::vector<Arguments> Shapes(std::vector<int64_t> first, std::vector<int64_t> second) {
  return {{Normal(std::move(first))}, {Normal(std::move(second))}};
}

double RelativeDifference(const Tensors& eager, const Tensors& lazy) {
  double largest = 0;
  for (size_t i = 0; i < eager.size() && i < lazy.size(); ++i) {
    if (!eager[i].defined() || !lazy[i].defined() || !eager[i].is_floating_point() || eager[i].numel() == 0) continue;
    const auto e = eager[i].detach().to(torch::kDouble);
    const auto difference = (e - lazy[i].detach().to(torch::kDouble)).abs().max().item<double>();
    if (difference > 0) largest = std::max(largest, difference / e.abs().max().item<double>());
  }
  return largest;
}

void AddTableLine(const TableLine& line) { table->Add(line); }

void CheckModule(const ModuleRow& row) {
  TableLine line;
  line.name = row.name;
  line.forward_equal = line.backward_equal = true;
  for (const bool made_inside : {false, true}) {
    SCOPED_TRACE(made_inside ? "made inside the mode" : "made before the mode");
    const Observed eager = RunModule(row, std::nullopt, made_inside);
    EXPECT_EQ(eager.after.ops_recorded, eager.before.ops_recorded);
    {
      SCOPED_TRACE("aten");
      lazuli::reset();
      const Observed aten = RunModule(row, Options().backend("aten"), made_inside);
      // ATen's own kernels on a GPU add up in any order, in part: as much apart as sums may be.
      const Tolerance tolerance = OnGpu() ? Tolerance{64, 64} : Tolerance{};
      const std::string forward = DiffAll(eager.forward, aten.forward, tolerance);
      const std::string backward = DiffAll(eager.backward, aten.backward, tolerance);
      EXPECT_EQ(forward, "");
      EXPECT_EQ(backward, "");
      line.forward_equal &= forward.empty();
      line.backward_equal &= backward.empty();
      ExpectCompiled(row, aten);
    }
    SCOPED_TRACE("llvm");
    lazuli::reset();
    const Observed llvm = RunModule(row, Options().backend("llvm"), made_inside);
    ExpectSame(eager.forward, llvm.forward, /*exact=*/false, "forward");
    ExpectSame(eager.backward, llvm.backward, /*exact=*/false, "backward");
    ExpectCompiled(row, llvm);
    line.difference =
        std::max({line.difference, RelativeDifference(eager.forward, llvm.forward), RelativeDifference(eager.backward, llvm.backward)});
    line.programs = llvm.after.programs_compiled - llvm.before.programs_compiled;
    line.cache_hits = llvm.after.cache_hits - llvm.before.cache_hits;
    line.fallbacks = Gained(llvm.before.eager_fallbacks, llvm.after.eager_fallbacks);
  }
  AddTableLine(line);
}

}  // namespace lazuli::testing
