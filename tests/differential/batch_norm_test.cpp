// Batch norm and its gradients over every layout, with and without weights and running statistics, in training and evaluation.
#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "tests/support/error_of.h"
#include "tests/support/expect_launches.h"
#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

namespace F = torch::nn::functional;

enum class Layout { kContiguous, kChannelsLast, kStrided };

struct Input {
  std::vector<int64_t> sizes;
  Layout layout = Layout::kContiguous;
};

const std::vector<Input>& Inputs() {
  static const auto* inputs = new std::vector<Input>{
      {{16, 9}},
      {{70, 130}},
      {{3, 7, 11}},
      {{4, 5, 6, 8}},
      {{2, 1, 5, 5}},
      {{4, 5, 6, 8}, Layout::kStrided},
      {{8, 64, 17, 19}, Layout::kChannelsLast},
      {{8, 3, 17, 19}, Layout::kChannelsLast},
      {{8, 32, 40, 40}, Layout::kChannelsLast},  // Large enough that its rows are split among threads.
      {{2, 3, 4, 5, 6}},
      {{2, 3, 4, 5, 6}, Layout::kChannelsLast},
  };
  return *inputs;
}

torch::Tensor Make(const Input& input, torch::ScalarType dtype) {
  torch::Tensor x = torch::randn(input.sizes, torch::kDouble).mul(2).add(0.5).to(dtype);
  if (input.layout == Layout::kChannelsLast) {
    return x.contiguous(x.dim() == 5 ? torch::MemoryFormat::ChannelsLast3d : torch::MemoryFormat::ChannelsLast);
  }
  return input.layout == Layout::kStrided ? torch::cat({x, x}, -1).slice(-1, 0, {}, 2) : x;
}

struct Form {
  bool affine, statistics, training;
};

// Every form that there is: evaluation needs statistics.
std::vector<Form> Forms() {
  std::vector<Form> forms;
  for (bool affine : {false, true}) {
    forms.push_back({affine, false, true});
    forms.push_back({affine, true, true});
    forms.push_back({affine, true, false});
  }
  return forms;
}

struct Operands {
  Operands(const Input& input, torch::ScalarType dtype, const Form& form) : x(Make(input, dtype)) {
    const int64_t channels = x.size(1);
    if (form.affine) {
      weight = torch::rand({channels}, dtype) + 0.5;
      bias = torch::randn({channels}, dtype);
    }
    if (form.statistics) {
      mean = torch::randn({channels}, dtype);
      var = torch::rand({channels}, dtype) + 0.5;
    }
  }
  // Of another type, and memory of their own.
  Operands Clone(torch::ScalarType dtype) const {
    Operands copy = *this;
    for (torch::Tensor* t : {&copy.x, &copy.weight, &copy.bias, &copy.mean, &copy.var}) {
      if (t->defined()) *t = t->detach().to(dtype, /*non_blocking=*/false, /*copy=*/true);
    }
    return copy;
  }
  torch::Tensor Norm(bool training) const { return torch::batch_norm(x, weight, bias, mean, var, training, 0.1, 1e-5, false); }
  torch::Tensor x, weight, bias, mean, var;
};

class BatchNormTest : public BackendTest {
 protected:
  using Case = std::function<void(const Input&, torch::ScalarType, const Form&)>;
  void ForEachForm(const std::vector<torch::ScalarType>& dtypes, const Case& run) const {
    for (const Input& input : Inputs()) {
      for (torch::ScalarType dtype : dtypes) {
        for (const Form& form : Forms()) {
          SCOPED_TRACE(::testing::Message() << input.sizes << " layout " << static_cast<int>(input.layout) << " " << dtype << " affine "
                                            << form.affine << " statistics " << form.statistics << " training " << form.training);
          lazuli::reset();
          run(input, dtype, form);
        }
      }
    }
  }

  void ForEachCase(const std::vector<torch::ScalarType>& dtypes, const std::function<Tensors(const Operands&, const Form&)>& run) const {
    ForEachForm(dtypes, [&](const Input& input, torch::ScalarType dtype, const Form& form) {
      ExpectSameAsEager([&] { return run(Operands(input, dtype, form), form); });
    });
  }
};

TEST_P(BatchNormTest, Forward) {
  ForEachCase({torch::kFloat, torch::kDouble, torch::kBFloat16}, [](const Operands& o, const Form& form) {
    const torch::Tensor y = o.Norm(form.training).relu_();
    const auto [z, mean, invstd] = torch::native_batch_norm(o.x, o.weight, o.bias, o.mean, o.var, form.training, 0.3, 1e-3);
    return Tensors{y, z, mean, invstd, o.mean, o.var};
  });
}

// The gradients of the sum of batch norm's results, those above 0 if `clamped`, by x and, if they are there, weight and bias. `weights` are
// the results' in it. Behind them the results.
Tensors Gradients(const Operands& o, bool training, const torch::Tensor& weights, bool clamped) {
  Tensors wanted;
  for (const torch::Tensor& t : {o.x, o.weight, o.bias}) {
    if (t.defined()) wanted.push_back(t.requires_grad_());
  }
  const torch::Tensor y = o.Norm(training);
  Tensors results = torch::autograd::grad({((clamped ? y.relu() : y) * weights).sum()}, wanted);
  results.push_back(y.detach());
  return results;
}

torch::Tensor WeightsOf(const torch::Tensor& y) { return torch::linspace(0, 1, y.numel(), y.scalar_type()).view(y.sizes()); }

// How far gradients in float may be from those in double precision. Sums are added up in blocks, so that no term goes through more than
// a block's additions and those of the blocks' sums. Each sum may be off by the rounding of so many additions of the sum of its terms'
// magnitudes. The gradient by bias takes one sum, that by weight three (mean, variance, itself), that by x four.
Tensors AllowedErrors(const Operands& o, bool training, const torch::Tensor& g) {
  constexpr double kBlock = 128, kUnitRoundoff = 0x1p-24, kOfATerm = 4;
  const torch::NoGradGuard no_grad;
  std::vector<int64_t> dims, channels(o.x.dim(), 1);
  for (int64_t d = 0; d < o.x.dim(); ++d) {
    if (d != 1) dims.push_back(d);
  }
  channels[1] = -1;
  const double terms = static_cast<double>(o.x.numel() / o.x.size(1));
  const double sum_error = kUnitRoundoff * (std::min(kBlock, terms) + std::ceil(terms / kBlock) + kOfATerm);
  const torch::Tensor mean = (training ? o.x.mean(dims) : o.mean).view(channels);
  const torch::Tensor var = (training ? o.x.var(dims, /*unbiased=*/false) : o.var).view(channels);
  const torch::Tensor scale = (var + 1e-5).rsqrt();
  const torch::Tensor spread = ((o.x - mean).abs() + o.x.abs().mean(dims, /*keepdim=*/true)) * scale;
  const torch::Tensor shares = g.abs() + g.abs().mean(dims, true) + spread * (g.abs() * spread).mean(dims, true);
  Tensors allowed = {shares * scale * (o.weight.defined() ? o.weight.view(channels) : torch::ones_like(scale)) * (4 * sum_error)};
  if (o.weight.defined()) {
    allowed.push_back((g.abs() * spread).sum(dims) * (3 * sum_error));
    allowed.push_back(g.abs().sum(dims) * sum_error);
  }
  return allowed;
}

void ExpectNearDoublePrecision(const Operands& operands, bool training, const torch::Tensor& passed, const Tensors& gradients) {
  const Operands wide = operands.Clone(torch::kDouble);
  const Tensors allowed = AllowedErrors(wide, training, passed);
  const Tensors expected = Gradients(wide, training, passed, false);
  ASSERT_EQ(gradients.size(), expected.size());
  for (size_t i = 0; i < allowed.size(); ++i) {
    const torch::Tensor error = (gradients[i] - expected[i]).abs() / allowed[i].clamp_min(1e-30);
    EXPECT_LE(error.max().item<double>(), 1) << "times what is allowed, gradient " << i;
  }
}

// Eager mode may add up all terms one after another, so that its error in float says little: what is right is what double precision says.
// What relu lets through is decided by each run's own results, which may be on the other side of 0 where they are next to it.
TEST_P(BatchNormTest, BackwardIsNearDoublePrecision) {
  ForEachForm({torch::kFloat}, [this](const Input& input, torch::ScalarType dtype, const Form& form) {
    const Operands operands(input, dtype, form);
    const torch::Tensor weights = WeightsOf(operands.x);
    for (int run = 0; run < 3; ++run) {
      const StatsDelta delta;
      Tensors lazy;
      {
        const Operands own = operands.Clone(dtype);
        const lazuli::DeviceMode mode(options());
        lazy = Gradients(own, form.training, weights, true);
        lazuli::sync();
      }
      ExpectNearDoublePrecision(operands, form.training, (weights * (lazy.back() > 0)).to(torch::kDouble), lazy);
      EXPECT_GT(delta.of(&Stats::ops_recorded), 0);
      if (run < 2) continue;
      EXPECT_EQ(delta.of(&Stats::cache_hits), delta.of(&Stats::traces)) << "a trace of the last run had no program";
      EXPECT_EQ(delta.of(&Stats::eager_replays), 0);
    }
  });
}

TEST_P(BatchNormTest, Backward) {
  std::vector<torch::ScalarType> dtypes = {torch::kDouble};
  if (exact()) dtypes.push_back(torch::kFloat);
  ForEachCase(dtypes, [](const Operands& o, const Form& form) { return Gradients(o, form.training, WeightsOf(o.x), true); });
}

// A gradient that is the same everywhere has strides of its own.
TEST_P(BatchNormTest, BackwardOfASum) {
  ForEachCase({torch::kFloat}, [](const Operands& o, const Form& form) {
    o.x.requires_grad_();
    const torch::Tensor y = o.Norm(form.training);
    return torch::autograd::grad({y.sum() + y.select(0, 0).square().sum()}, {o.x});
  });
}

TEST_P(BatchNormTest, DoubleBackward) {
  for (bool training : {false, true}) {
    ExpectSameAsEager([training] {
      Operands o({{3, 4, 5, 2}}, torch::kDouble, {true, true, training});
      o.x.requires_grad_();
      o.weight.requires_grad_();
      const torch::Tensor y = o.Norm(training).tanh();
      const Tensors first = torch::autograd::grad({(y * y).sum()}, {o.x, o.weight}, {}, /*retain_graph=*/true, /*create_graph=*/true);
      return torch::autograd::grad({first[0].square().sum() + first[1].square().sum()}, {o.x, o.weight});
    });
  }
}

// A residual block's end, twice: the second batch norm's statistics depend on the first one's output.
TEST_P(BatchNormTest, BlocksInARow) {
  ExpectSameAsEager([] {
    const Operands o({{4, 16, 9, 9}, Layout::kChannelsLast}, torch::kFloat, {true, true, true});
    torch::Tensor y = o.x;
    for (int i = 0; i < 2; ++i) y = torch::relu(torch::batch_norm(y, o.weight, o.bias, o.mean, o.var, true, 0.3, 1e-3, false) + o.x);
    return Tensors{y, o.mean, o.var};
  });
}

TEST_P(BatchNormTest, ConstantChannelsAndNoEps) {
  ExpectSameAsEager([] {
    const torch::Tensor x = torch::ones({4, 3, 2, 2});
    const auto [y, mean, invstd] = torch::native_batch_norm(x, {}, {}, {}, {}, true, 0.1, 0.0);
    return Tensors{y, mean, invstd};
  });
}

TEST_P(BatchNormTest, MomentumIsARunTimeNumber) {
  DeviceMode mode(options());
  int64_t compiled = 0;
  const torch::Tensor x = torch::randn({4, 3, 5, 5});
  for (int step = 0; step < 4; ++step) {
    const double momentum = 0.1 + 0.2 * step;
    const torch::Tensor mean = torch::zeros({3}), var = torch::ones({3});
    torch::batch_norm(x, {}, {}, mean, var, true, momentum, 1e-5, false);
    const torch::Tensor expected = x.mean(torch::IntArrayRef{0, 2, 3}) * momentum;
    EXPECT_TRUE(torch::allclose(mean, expected, 1e-5, 1e-6));
    if (step == 1) compiled = lazuli::stats().programs_compiled;
  }
  EXPECT_EQ(lazuli::stats().programs_compiled, compiled);
}

struct ShortForm {
  Input input;
  torch::ScalarType dtype, wide;  // Of the input and of parameters.
  bool training;
  double scale, shift;  // What random numbers are multiplied by, and what is added then.
};

struct ShortResults {
  Tensors of_elements;    // The result, the running statistics, and the input's gradient, which is noise where all inputs are the same.
  Tensors of_parameters;  // Gradients of weight and bias.
};

// `exact`: of the same numbers, in double precision.
ShortResults ShortStep(const ShortForm& form, bool exact = false) {
  torch::manual_seed(3);
  const torch::ScalarType type = exact ? torch::kDouble : form.dtype;
  Operands o = Operands(form.input, form.dtype, {true, true, form.training}).Clone(exact ? torch::kDouble : form.wide);
  o.x = Make(form.input, torch::kDouble).mul(form.scale).add(form.shift).to(form.dtype).to(type).requires_grad_();
  const torch::Tensor grad = torch::randn(form.input.sizes, torch::kDouble).to(form.dtype).to(type);
  o.weight.requires_grad_();
  o.bias.requires_grad_();
  const torch::Tensor y = o.Norm(form.training);
  const Tensors grads = torch::autograd::grad({y}, {o.x, o.weight, o.bias}, {grad});
  ShortResults results{{y, o.mean, o.var}, {grads[1].to(torch::kDouble), grads[2].to(torch::kDouble)}};
  if (form.scale != 0) results.of_elements.push_back(grads[0]);
  return results;
}

// Parameters' gradients are as close to exact ones as eager's, or closer: some of ATen's kernels round what they sum.
void ExpectNoLessExact(const Tensors& exact, const Tensors& eager, const Tensors& actual, torch::ScalarType dtype) {
  const double rounding = dtype == torch::kHalf ? 0x1p-10 : 0x1p-7;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double error = (eager[i] - exact[i]).abs().max().item<double>();
    EXPECT_TRUE(torch::allclose(actual[i], exact[i], rounding, error)) << "parameter " << i << "\n" << exact[i] << "\n" << actual[i];
  }
}

// Inputs of half a word with parameters of either kind; far from zero, and all the same.
TEST_P(BatchNormTest, ShortNumbersAndWideParameters) {
  const std::vector<std::pair<double, double>> numbers = {{1, 100}, {0, 3}};
  for (const Input& input : Inputs()) {
    for (int i = 0; i < 8 * static_cast<int>(numbers.size()); ++i) {
      const torch::ScalarType dtype = i % 2 == 0 ? torch::kBFloat16 : torch::kHalf;
      const ShortForm form{
          input, dtype, i / 2 % 2 == 0 ? dtype : torch::kFloat, i / 4 % 2 == 0, numbers[i / 8].first, numbers[i / 8].second};
      SCOPED_TRACE(::testing::Message() << input.sizes << " layout " << static_cast<int>(input.layout) << " " << dtype << " with "
                                        << form.wide << " training " << form.training << " of " << form.scale << " and " << form.shift);
      lazuli::reset();
      ExpectSameAsEager([&] { return ShortStep(form).of_elements; });
      if (form.scale == 0) continue;
      const Tensors exact = ShortStep(form, /*exact=*/true).of_parameters, eager = ShortStep(form).of_parameters;
      Tensors actual;
      {
        DeviceMode mode(options());
        actual = ShortStep(form).of_parameters;
        lazuli::sync();
      }
      ExpectNoLessExact(exact, eager, actual, dtype);
    }
  }
}

// From the second batch size on one program serves them all.
TEST_P(BatchNormTest, BatchSizesThatChange) {
  const auto step = [](int64_t batch) {
    torch::manual_seed(batch);
    const Operands o({{batch, 16, 9, 9}, Layout::kChannelsLast}, torch::kFloat, {true, true, true});
    o.x.requires_grad_();
    o.weight.requires_grad_();
    Tensors out = torch::autograd::grad({o.Norm(true).relu().square().sum()}, {o.x, o.weight});
    lazuli::sync();
    out.insert(out.end(), {o.mean, o.var});
    return out;
  };
  std::vector<Tensors> expected;
  const std::vector<int64_t> batches = {2, 3, 5, 7, 11};
  for (const int64_t batch : batches) expected.push_back(step(batch));
  int64_t compiled = 0;
  for (size_t i = 0; i < batches.size(); ++i) {
    Tensors actual;
    {
      DeviceMode mode(options().dynamic("auto"));
      actual = step(batches[i]);
    }
    ExpectSame(expected[i], actual, exact(), "batch of " + std::to_string(batches[i]));
    if (i == 2) compiled = lazuli::stats().programs_compiled;
  }
  EXPECT_EQ(lazuli::stats().programs_compiled, compiled);
  EXPECT_GT(lazuli::stats().dynamic_programs, 0);
}

TEST_P(BatchNormTest, Errors) {
  const auto errors = [] {
    const torch::Tensor x = torch::ones({1, 3});
    return std::vector<std::string>{
        ErrorOf([&] { F::batch_norm(x, torch::zeros({3}), torch::ones({3}), F::BatchNormFuncOptions().training(true)); }),
        ErrorOf([&] { torch::batch_norm(x, {}, {}, torch::zeros({4}), torch::ones({4}), true, 0.1, 1e-5, false).sum().item(); }),
        ErrorOf([&] { torch::batch_norm(x, torch::ones({2}), {}, {}, {}, true, 0.1, 1e-5, false).sum().item(); }),
        ErrorOf([&] { torch::batch_norm(x, {}, {}, {}, {}, false, 0.1, 1e-5, false).sum().item(); }),
    };
  };
  const auto expected = errors();
  DeviceMode mode(options());
  EXPECT_EQ(errors(), expected);
  EXPECT_NE(expected[0].find("Expected more than 1 value per channel when training"), std::string::npos) << expected[0];
}

class BatchNormLaunches : public BackendTest {
 protected:
  void SetUp() override {
    LAZULI_CPU_ONLY("how many kernels there are is the CPU's plan");
    BackendTest::SetUp();
  }
};

TEST_P(BatchNormLaunches, ChannelsLast) {
  const Operands o({{4, 16, 9, 9}, Layout::kChannelsLast}, torch::kFloat, {true, true, true});
  const auto step = [&](bool training) {
    return [&o, training] {
      torch::Tensor y = torch::relu(o.Norm(training) + o.x);
      lazuli::sync();
    };
  };
  ExpectLaunches(2, step(true));   // Sums by columns, and all the rest.
  ExpectLaunches(2, step(false));  // Numbers of each channel, and all the rest.
}

TEST_P(BatchNormLaunches, Contiguous) {
  const Operands o({{4, 16, 9, 9}}, torch::kFloat, {true, true, true});
  ExpectLaunches(1, [&] {
    torch::Tensor y = torch::relu(o.Norm(true) + o.x);
    lazuli::sync();
  });
}

LAZULI_FOR_EACH_BACKEND(BatchNormTest);
INSTANTIATE_TEST_SUITE_P(Llvm, BatchNormLaunches, ::testing::Values("llvm"));

}  // namespace
}  // namespace lazuli::testing
