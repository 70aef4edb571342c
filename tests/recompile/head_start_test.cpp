// Programs whose first steps run while their trace is still recorded: results, what is taken back, and when it is given up.

#include <torch/library.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <set>
#include <thread>

#include "tests/support/log_file.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

using torch::Tensor;

// An operator that has plans of the thread's own, by its name.
std::set<std::thread::id> attending_threads;
Tensor Attend(const Tensor& x) {
  attending_threads.insert(std::this_thread::get_id());
  return x * 2;
}
Tensor AttendOnMeta(const Tensor& x) { return torch::empty_like(x); }

TORCH_LIBRARY(lazuli_head_start_test, m) { m.def("cudnn_attention(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(lazuli_head_start_test, CPU, m) { m.impl("cudnn_attention", &Attend); }
TORCH_LIBRARY_IMPL(lazuli_head_start_test, Meta, m) { m.impl("cudnn_attention", &AttendOnMeta); }

class HeadStartTest : public BackendTest {
 protected:
  // The parameter is a backend, with "_thread" where steps are launched by a thread of their own.
  bool exact() const { return Backend() == "aten"; }
  Options options() const {
    const bool on_thread = Backend() != GetParam();
    return Options().backend(Backend()).head_start("1").launch_thread(on_thread ? "1" : "0").async(false).step_aside(false);
  }
  std::string Backend() const { return GetParam().substr(0, GetParam().find('_')); }

  // Forty operators that write two inputs on their way, one of them larger than what is saved; then one of two ends.
  struct State {
    Tensor count = torch::zeros({4}), large = torch::zeros({1 << 16}), x = torch::arange(32.0) * 0.01;

    float Step(bool other_end) {
      Tensor y = x;
      for (int i = 0; i < 10; ++i) y = y * 0.9 + 0.05;
      count.add_(y.mean());
      for (int i = 0; i < 10; ++i) y = torch::relu(y) + count.slice(0, 0, 1) * 0.001;
      large.add_(1);
      y = y + large.slice(0, 0, 32);
      if (other_end) y = torch::sin(y) * count.mean();
      return y.mean().item<float>();
    }
    Tensors All() const { return {count.clone(), large.clone(), x.clone()}; }
  };

  // Steps of which those in `others` end otherwise, eagerly and in the mode.
  void Compare(int steps, const std::vector<int>& others, const Options& options) {
    const torch::NoGradGuard no_grad;
    State eager, lazy;
    std::vector<float> expected, results;
    const auto is_other = [&](int i) { return std::find(others.begin(), others.end(), i) != others.end(); };
    for (int i = 0; i < steps; ++i) expected.push_back(eager.Step(is_other(i)));
    {
      const lazuli::DeviceMode mode(options);
      for (int i = 0; i < steps; ++i) results.push_back(lazy.Step(is_other(i)));
    }
    for (int i = 0; i < steps; ++i) EXPECT_NEAR(results[static_cast<size_t>(i)], expected[static_cast<size_t>(i)], 1e-3) << i;
    ExpectSame(eager.All(), lazy.All(), exact(), "what was written");
  }
};

TEST_P(HeadStartTest, ExpectedTracesGetOne) {
  const StatsDelta delta;
  Compare(8, {}, options());
  EXPECT_GE(delta.of(&Stats::head_starts), 4);
  EXPECT_EQ(delta.of(&Stats::head_starts_in_vain), 0);
  EXPECT_EQ(delta.of(&Stats::compile_failures), 0);
}

// What runs ahead and what runs when the trace is complete.
TEST_P(HeadStartTest, OperatorsWithPlansOfTheThreadsOwnStayOnOne) {
  static const auto attend =
      c10::Dispatcher::singleton().findSchemaOrThrow("lazuli_head_start_test::cudnn_attention", "").typed<Tensor(const Tensor&)>();
  const torch::NoGradGuard no_grad;
  const lazuli::DeviceMode mode(options());
  State state;
  const StatsDelta delta;
  for (int i = 0; i < 12; ++i) {
    if (i == 8) attending_threads.clear();
    Tensor y = attend.call(state.x * 0.5);
    for (int k = 0; k < 20; ++k) y = y * 0.9 + 0.05;
    state.large.add_(1);  // More than is saved: what follows does not run ahead.
    y = attend.call(y + state.large.slice(0, 0, 32)) * 0.5;
    EXPECT_GT(y.sum().item<float>(), 0);
  }
  EXPECT_GE(delta.of(&Stats::head_starts), 4);
  EXPECT_EQ(attending_threads.size(), 1U);
  EXPECT_EQ(attending_threads.count(std::this_thread::get_id()) == 0, Backend() != GetParam());
}

TEST_P(HeadStartTest, NoneWhereTheOptionsSaySo) {
  const StatsDelta delta;
  Compare(8, {}, options().head_start("0"));
  EXPECT_EQ(delta.of(&Stats::head_starts), 0);
}

TEST_P(HeadStartTest, WhatAnotherTraceOverwroteIsRestored) {
  const StatsDelta delta;
  Compare(8, {5}, options());
  EXPECT_GE(delta.of(&Stats::head_starts_in_vain), 1);
  EXPECT_LE(delta.of(&Stats::head_starts_in_vain), 2);  // What comes next may be expected to be like it.
  EXPECT_GE(delta.of(&Stats::head_starts), 4);
}

TEST_P(HeadStartTest, TracesThatAreOftenOthersGetNoMore) {
  const LogFile log;
  const StatsDelta delta;
  Compare(60, {5, 8, 11, 14, 17, 20, 23, 26, 29, 32, 35, 38, 41, 44, 47, 50}, options().logs("perf_hints").log_file(log.path()));
  EXPECT_GE(delta.of(&Stats::head_starts_in_vain), 3);
  EXPECT_LE(delta.of(&Stats::head_starts_in_vain), 10);
  EXPECT_GE(CountOf(log.text(), "often turns out to be another one"), 1);
}

// Programs with two parameters and a factor that are long the same: steps run before these are recorded.
class ForetoldTest : public HeadStartTest {
 protected:
  struct Model {
    Tensor first = torch::full({32}, 0.5, torch::requires_grad()), second = torch::full({32}, 2.0, torch::requires_grad()),
           spare = torch::full({32}, -1.0, torch::requires_grad());
    double factor = 0.9;

    // `between` comes when the trace has not mentioned `second` and `factor` yet.
    float Step(const std::function<void(Model*)>& between) {
      const Tensor x = torch::arange(32.0);
      Tensor y = x * first;
      for (int i = 0; i < 10; ++i) y = torch::relu(y) + 0.25;
      between(this);
      y = y * factor + second;
      for (int i = 0; i < 10; ++i) y = torch::tanh(y);
      return y.sum().item<float>();
    }
  };

  // Twelve steps, eagerly and in the mode, with `between` in the ninth.
  static void Compare(const std::function<void(Model*)>& between, const Options& options) {
    const torch::NoGradGuard no_grad;
    Model eager, lazy;
    const auto steps = [&](Model* model) {
      std::vector<float> results;
      for (int i = 0; i < 12; ++i) results.push_back(model->Step(i == 8 ? between : [](Model*) {}));
      return results;
    };
    const std::vector<float> expected = steps(&eager);
    const lazuli::DeviceMode mode(options);
    const std::vector<float> results = steps(&lazy);
    for (size_t i = 0; i < results.size(); ++i) EXPECT_NEAR(results[i], expected[i], 1e-4) << i;
  }

  // Twelve steps of which `use` gives a number: that of the step, which a tensor is filled with before the trace has mentioned it.
  static void CompareWrittenLate(const std::function<Tensor(const Tensor&, const Tensor&)>& use, const Options& options) {
    const torch::NoGradGuard no_grad;
    const Tensor state = torch::zeros({32});
    float* const data = state.data_ptr<float>();
    const lazuli::DeviceMode mode(options);
    const StatsDelta delta;
    for (int i = 0; i < 12; ++i) {
      Tensor y = torch::arange(32.0) * 0.5;
      for (int j = 0; j < 10; ++j) y = torch::relu(y) + 0.25;
      for (int j = 0; j < 32; ++j) data[j] = static_cast<float>(3 * i);
      EXPECT_NEAR(use(y, state).item<float>(), static_cast<float>(3 * i), 1e-4);
    }
    EXPECT_GE(delta.of(&Stats::head_starts), 6);
    EXPECT_EQ(delta.of(&Stats::head_starts_in_vain), 0);
  }
};

TEST_P(ForetoldTest, NothingIsTakenBackWhereAllIsAsEver) {
  const StatsDelta delta;
  Compare([](Model*) {}, options());
  EXPECT_GE(delta.of(&Stats::head_starts), 6);
  EXPECT_EQ(delta.of(&Stats::head_starts_in_vain), 0);
}

TEST_P(ForetoldTest, AnotherParameterInItsPlace) {
  const StatsDelta delta;
  Compare([](Model* model) { model->second = model->spare; }, options());
  EXPECT_EQ(delta.of(&Stats::head_starts_in_vain), 1);
}

TEST_P(ForetoldTest, AnotherNumber) {
  const StatsDelta delta;
  Compare([](Model* model) { model->factor = 0.1; }, options());
  EXPECT_EQ(delta.of(&Stats::head_starts_in_vain), 1);
}

TEST_P(ForetoldTest, AParameterThatAnEagerOperatorWrites) {
  const StatsDelta delta;
  Compare([](Model* model) { model->second.uniform_(3.0, 3.0); }, options());
  EXPECT_EQ(delta.of(&Stats::head_starts_in_vain), 1);
}

TEST_P(ForetoldTest, AParameterThatIsWrittenThroughItsPointer) {
  const StatsDelta delta;
  Compare([](Model* model) { model->second.data_ptr<float>()[3] = 7; }, options());
  EXPECT_EQ(delta.of(&Stats::head_starts_in_vain), 1);
}

TEST_P(ForetoldTest, AParameterThatGetsOtherMemory) {
  const StatsDelta delta;
  Compare([](Model* model) { model->second.set_data(model->spare.data()); }, options());
  EXPECT_EQ(delta.of(&Stats::head_starts_in_vain), 1);
}

// What is not a parameter may be written through a pointer that was taken long before.
TEST_P(ForetoldTest, OtherTensorsAreNotForetold) {
  CompareWrittenLate([](const Tensor& y, const Tensor& state) { return (y * 0 + state).mean(); }, options());
}

TEST_P(ForetoldTest, NorThoseThatTheTraceWrites) {
  const auto use = [](const Tensor& y, Tensor state) {
    const Tensor sums = (y * 0 + state).cumsum(0);
    state.add_(1);
    return sums[0];
  };
  CompareWrittenLate(use, options());
}

TEST_P(ForetoldTest, AParameterThatAThreadWithoutTheModeWrites) {
  const StatsDelta delta;
  const auto write = [](Model* model) {
    std::thread([model] {
      const torch::NoGradGuard no_grad;
      model->second.mul_(10);
    }).join();
  };
  Compare(write, options());
  EXPECT_EQ(delta.of(&Stats::head_starts_in_vain), 1);
}

// A kernel that runs ahead meets it before the trace has mentioned all of its inputs.
TEST_P(ForetoldTest, AnIndexOutOfRange) {
  const torch::NoGradGuard no_grad;
  const Tensor table = torch::arange(40.0).view({10, 4}), late = torch::full({4}, 0.5);
  const lazuli::DeviceMode mode(options());
  const StatsDelta delta;
  for (int i = 0; i < 10; ++i) {
    const Tensor index = torch::full({3}, i == 7 ? 99 : 3, torch::kLong);
    const auto step = [&] {
      Tensor y = torch::relu(torch::embedding(table, index));
      for (int j = 0; j < 10; ++j) y = torch::relu(y) + 0.25;
      return (y * late).sum().item<float>();
    };
    if (i == 7) {
      EXPECT_THROW(step(), c10::Error);
    } else {
      EXPECT_NEAR(step(), 1.5F * (12 + 13 + 14 + 15 + 4 * 2.5F), 1e-3) << i;
    }
  }
  EXPECT_GE(delta.of(&Stats::head_starts), 4);
}

// A size that changes and is only seen in the middle: until then nothing runs ahead with the one that came before.
TEST_P(ForetoldTest, SizesThatAreSeenLate) {
  const torch::NoGradGuard no_grad;
  const Tensor x = torch::arange(8.0);
  const auto step = [&](int64_t rows) {
    Tensor y = x;
    for (int i = 0; i < 10; ++i) y = torch::relu(y) + 0.25;
    Tensor z = torch::ones({rows, 8}) * y;
    for (int i = 0; i < 10; ++i) z = torch::tanh(z) + 0.25;
    return z.sum().item<float>();
  };
  std::vector<float> expected;
  for (int64_t i = 0; i < 16; ++i) expected.push_back(step(3 + i));
  const lazuli::DeviceMode mode(options());
  const StatsDelta delta;
  for (int64_t i = 0; i < 16; ++i) EXPECT_NEAR(step(3 + i), expected[static_cast<size_t>(i)], 1e-3);
  EXPECT_GE(delta.of(&Stats::head_starts), 6);
  EXPECT_LE(delta.of(&Stats::head_starts_in_vain), 1);  // Before the program has symbols.
}

// What a step that runs ahead is about to read goes out of scope, and its thread's mode, before the trace is complete.
TEST_P(ForetoldTest, TheModeEndsInTheMiddle) {
  const torch::NoGradGuard no_grad;
  Model model;
  const auto nothing = [](Model*) {};
  const float expected = model.Step(nothing);
  const StatsDelta delta;
  for (int i = 0; i < 10; ++i) {
    const lazuli::DeviceMode mode(options());
    EXPECT_NEAR(model.Step(nothing), expected, 1e-4);
    const Tensor x = torch::arange(32.0);
    Tensor y = x * model.first;
    for (int j = 0; j < 10; ++j) y = torch::relu(y) + 0.25;
  }
  EXPECT_GE(delta.of(&Stats::head_starts), 3);
  EXPECT_NEAR(model.Step(nothing), expected, 1e-4);
}

const auto kEach = ::testing::Values("aten", "llvm", "aten_thread", "llvm_thread");
const auto kName = [](const ::testing::TestParamInfo<std::string>& info) { return info.param; };
INSTANTIATE_TEST_SUITE_P(Backends, HeadStartTest, kEach, kName);
INSTANTIATE_TEST_SUITE_P(Backends, ForetoldTest, kEach, kName);

}  // namespace
}  // namespace lazuli::testing
