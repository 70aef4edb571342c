// Sizes that change: one program for all of them, and the same results.

#include <gmock/gmock.h>

#include "guards/program_cache.h"
#include "tests/support/log_file.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

using torch::Tensor;

class DynamicTest : public BackendTest {
 protected:
  using Step = std::function<Tensors(int64_t)>;

  // Runs `step` eagerly and in a mode for each of `sizes`, by turns; expects at most `programs` compiled, and none after the first
  // `settled` sizes.
  void ExpectFewPrograms(const Step& step, const std::vector<int64_t>& sizes, int64_t programs, size_t settled) const {
    std::vector<Tensors> expected;
    for (const int64_t size : sizes) {
      torch::manual_seed(size);
      expected.push_back(step(size));
    }
    const StatsDelta all;
    std::optional<StatsDelta> late;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (i == settled) late.emplace();
      Tensors actual;
      {
        const lazuli::DeviceMode mode(options());
        torch::manual_seed(sizes[i]);
        actual = step(sizes[i]);
      }
      ExpectSame(expected[i], actual, exact(), "size " + std::to_string(sizes[i]));
    }
    EXPECT_LE(all.of(&Stats::programs_compiled), programs);
    EXPECT_GE(all.of(&Stats::dynamic_programs), 1);
    EXPECT_EQ(all.of(&Stats::eager_replays), 0);
    EXPECT_EQ(late->of(&Stats::programs_compiled), 0);
    EXPECT_EQ(late->of(&Stats::cache_misses), 0);
    EXPECT_EQ(late->of(&Stats::observations), 0);
    EXPECT_GE(late->of(&Stats::cache_hits), static_cast<int64_t>(sizes.size() - settled));
  }
};

const std::vector<int64_t> kSizes = {64, 48, 50, 3, 2, 100, 17, 333, 64, 1000};

TEST_P(DynamicTest, Pointwise) {
  ExpectFewPrograms(
      [](int64_t n) -> Tensors {
        return {torch::tanh(torch::randn({n, 33}) * 2 + torch::randn({33})).relu_()};
      },
      kSizes, 2, 2);
}

// Few rows are multiplied by code of our own, many by the library's, in the same program.
TEST_P(DynamicTest, ProductsOfFewAndManyRows) {
  const auto w = torch::randn({30, 33}), bias = torch::randn({30});
  ExpectFewPrograms([&](int64_t n) -> Tensors { return {torch::linear(torch::randn({n, 33}), w, bias).relu()}; }, kSizes, 2, 2);
}

TEST_P(DynamicTest, InnermostDimension) {
  ExpectFewPrograms([](int64_t n) -> Tensors { return {torch::randn({5, n}).exp().mul(torch::randn({5, 1}))}; }, kSizes, 2, 2);
}

TEST_P(DynamicTest, Indices) {
  const Tensor table = torch::randn({40, 12});
  ExpectFewPrograms(
      [&](int64_t n) -> Tensors {
        const Tensor tokens = torch::randint(0, 40, {n, 3});
        const Tensor x = torch::embedding(table, tokens) + torch::embedding(table, torch::randint(0, 40, {n, 1}));
        const Tensor logits = torch::randn({n * 3, 21}).requires_grad_();
        const Tensor targets = torch::randint(0, 21, {n * 3});
        torch::cross_entropy_loss(logits, targets).backward();
        return {x, logits.grad(), logits.detach().gather(1, targets.unsqueeze(1)), table.t().index_select(1, targets) * 2};
      },
      kSizes, 2, 2);
}

// The operators that throw for a bad index see the sizes of this run.
TEST_P(DynamicTest, BadIndices) {
  const auto message = [](const std::function<void()>& program) -> std::string {
    try {
      program();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "";
  };
  const auto look_up = [](int64_t n, int64_t index) {
    return torch::randn({n, n + 1}).index({torch::full({n}, index), torch::arange(n)}) * 2;
  };
  const auto loss = [](int64_t n, int64_t index) {
    return torch::cross_entropy_loss(torch::randn({n, 9}), torch::full({n}, index), {}, at::Reduction::None);
  };
  for (const std::function<Tensor(int64_t, int64_t)>& program : {std::function<Tensor(int64_t, int64_t)>(look_up), {loss}}) {
    std::optional<StatsDelta> late;
    for (const int64_t n : {5, 7, 6, 8, 7}) {
      if (n == 8) late.emplace();
      const std::string eager = message([&] { program(n, 9); });
      ASSERT_NE(eager, "");
      const lazuli::DeviceMode mode(options());
      Tensor good = program(n, 2);
      EXPECT_EQ(message([] { lazuli::sync(); }), "");
      EXPECT_EQ(good.numel(), n);
      good = program(n, 9);
      EXPECT_EQ(message([] { lazuli::sync(); }), eager);
    }
    EXPECT_EQ(late->of(&Stats::programs_compiled), 0);
    EXPECT_EQ(late->of(&Stats::eager_replays), 0);
  }
}

TEST_P(DynamicTest, Windows) {
  const Tensor past = torch::randn({3, 16});
  ExpectFewPrograms(
      [&](int64_t n) -> Tensors {
        const Tensor x = torch::randn({n, 16});
        const Tensor half = torch::cat({-x.slice(1, 8), x.slice(1, 0, 8)}, 1);
        return {torch::cat({past, x * 2, x + 1}, 0) * 3, half * x, torch::stack({x * 2, x + 1}, 0),
                torch::constant_pad_nd(x, {1, 2, 0, 1}, 7)};
      },
      kSizes, 2, 2);
}

// Where a window of a result begins is a guard until it moves.
TEST_P(DynamicTest, WindowsThatMove) {
  const Tensor x = torch::randn({40, 6});
  const auto step = [&](int64_t n) -> Tensors {
    const Tensor y = torch::tanh(x);
    return {y.slice(0, n, n + 3) * 2 + y.select(1, n % 6).slice(0, 0, 3).unsqueeze(1)};
  };
  ExpectFewPrograms(step, {7, 9, 15, 10, 31, 22, 21, 8, 13, 27}, 2, 2);
}

// 512 + 9 is what the first size is written as.
TEST_P(DynamicTest, SumsOfNumbersAreNoSymbols) {
  const Tensor a = torch::randn({512}), b = torch::randn({9});
  const auto step = [&](int64_t n) -> Tensors {
    const Tensor all = torch::cat({a.tanh(), b.tanh(), torch::randn({2 * n}).tanh()});
    return {all.slice(0, n, 2 * n) * 2, all.slice(0, 521, 521 + n) + 1};
  };
  ExpectFewPrograms(step, {300, 400, 60, 270, 100, 55, 77, 401, 258}, 4, 6);
}

// Two of them, elsewhere each time: the trace is still as predicted.
TEST_P(DynamicTest, WindowsThatMoveArePredicted) {
  const Tensor x = torch::randn({40, 6});
  const auto step = [&](int64_t n) -> Tensors {
    const Tensor y = torch::tanh(x), z = torch::sin(x);
    return {y.slice(0, n, n + 3) * z.slice(0, 37 - n, 40 - n)};
  };
  ExpectFewPrograms(step, {7, 9, 15, 10, 31, 22, 21, 8}, 2, 2);
  const lazuli::DeviceMode mode(options());
  for (int64_t n = 3; n < 6; ++n) step(n), lazuli::sync();
  const StatsDelta delta;
  for (int64_t n = 11; n < 20; ++n) step(n), lazuli::sync();
  EXPECT_EQ(delta.of(&Stats::predicted_hits), 9);
}

TEST_P(DynamicTest, WindowsThatMoveWithSizes) {
  const auto step = [](int64_t n) -> Tensors {
    const Tensor y = torch::randn({2 * n, 3}).tanh();
    const Tensor halves = y.slice(0, 0, n) * y.slice(0, n, 2 * n);
    return {halves.select(1, 0) - halves.select(1, 2), torch::stack({halves, halves + 1}).select(0, 1) * 2};
  };
  ExpectFewPrograms(step, kSizes, 2, 2);
}

TEST_P(DynamicTest, WritesWhereIndicesSay) {
  ExpectFewPrograms(
      [&](int64_t n) -> Tensors {
        // Whole numbers: sums are exact in any order.
        const Tensor x = torch::randint(-3, 4, {n, 12}, torch::kFloat), places = torch::randint(0, n, {n});
        const Tensor table = torch::randint(-3, 4, {40, 12}, torch::kFloat).requires_grad_();
        (torch::embedding(table, torch::randint(0, 40, {n, 3})) * 2).sum().backward();
        return {table.grad(), x.index_add(0, places, x * 2), torch::zeros({n, 12}).index_put_({places}, x, true),
                torch::zeros({n, 12}).scatter_add_(0, places.unsqueeze(1).expand({n, 12}), x)};
      },
      kSizes, 2, 2);
}

TEST_P(DynamicTest, GradientsOfSlices) {
  ExpectFewPrograms(
      [](int64_t n) -> Tensors {
        // Whole numbers: sums are exact in any order.
        const Tensor x = torch::randint(-3, 4, {n + 2, 7, 3}, torch::kFloat).requires_grad_();
        const Tensor sum = x.slice(0, 1, n + 1) * 2 + x.slice(0, 0, -2) * x.select(0, 1) + x.slice(1, 2).sum() * x.select(0, -1);
        (sum * torch::randint(-3, 4, {n, 7, 3}, torch::kFloat)).sum().backward();
        return {x.grad()};
      },
      kSizes, 2, 2);
}

// The same sizes, but another argument, which may be negative, too.
TEST_P(DynamicTest, ArgumentsThatChangeAndTheirSigns) {
  const auto x = torch::randn({6, 7, 8}).requires_grad_();
  const auto scores = torch::randn({9, 7}).requires_grad_();
  const auto targets = torch::tensor({0, 1, 2, 3, 4, 5, 6, 2, 3});
  const auto step = [&](int64_t n) -> Tensors {
    const auto selected = x.select(1, n).sin().sum() + x.slice(1, n, n == -1 ? 7 : n + 1).cos().sum();
    const auto loss = torch::nll_loss(torch::log_softmax(scores, 1), targets, {}, at::Reduction::Mean, n);
    return {torch::autograd::grad({selected}, {x})[0], loss, torch::autograd::grad({loss}, {scores})[0]};
  };
  ExpectFewPrograms(step, {2, 3, -1, -5, 5, 1, -2, 4, 2, -3}, 2, 2);
}

TEST_P(DynamicTest, SizesOfWhatIsLookedUpIn) {
  ExpectFewPrograms(
      [](int64_t n) -> Tensors {
        const Tensor table = torch::randn({n, n + 1});
        const Tensor logits = torch::randn({6, n}).requires_grad_();
        const Tensor targets = torch::randint(0, n, {6});
        torch::cross_entropy_loss(logits, targets).backward();
        return {torch::embedding(table, targets) * 2, table.index({targets, targets - n}) + 1, logits.grad()};
      },
      kSizes, 2, 2);
}

TEST_P(DynamicTest, SoftmaxAndNorms) {
  ExpectFewPrograms(
      [](int64_t n) -> Tensors {
        const Tensor x = torch::randn({7, n});
        return {torch::softmax(x, 1), torch::log_softmax(x, 0), torch::layer_norm(x, {n}), x.var(1), x.std(0), x.norm()};
      },
      kSizes, 2, 2);
}

TEST_P(DynamicTest, Reductions) {
  ExpectFewPrograms(
      [](int64_t n) -> Tensors {
        const Tensor x = torch::randn({n, 12, n});
        return {x.sum(), x.mean(0), x.sum(at::IntArrayRef({0, 2})), x.amax(1), (x > 0).any(2), x.mean(at::IntArrayRef({1, 2}), true)};
      },
      {6, 9, 20, 2, 31, 64}, 2, 2);
}

TEST_P(DynamicTest, TransposesAndStrides) {
  ExpectFewPrograms(
      [](int64_t n) -> Tensors {
        const Tensor x = torch::randn({n, 24});
        return {x.t().contiguous() * 2, x.t() + torch::randn({24, n}), x.slice(1, 0, 24, 2).exp(), x.view({n, 4, 6}).transpose(1, 2) * 3};
      },
      kSizes, 2, 2);
}

TEST_P(DynamicTest, MatrixProductsAndTheirGradients) {
  ExpectFewPrograms(
      [](int64_t n) -> Tensors {
        const Tensor x = torch::randn({n, 16}), w = torch::randn({16, 8}, torch::requires_grad());
        const Tensor loss = torch::mse_loss(torch::gelu(torch::mm(x, w)), torch::randn({n, 8}));
        loss.backward();
        return {loss.detach(), w.grad()};
      },
      kSizes, 4, 2);
}

TEST_P(DynamicTest, CatsPadsAndIndices) {
  ExpectFewPrograms(
      [](int64_t n) -> Tensors {
        const Tensor x = torch::randn({n, 6}), ids = torch::randint(0, n, {n});
        return {torch::cat({x, torch::randn({3, 6})}),
                torch::constant_pad_nd(x, {1, 2}),
                x.index({ids}) * 2,
                torch::embedding(torch::randn({50, 4}), ids.remainder(50)).relu(),
                torch::stack({x, x * 2}),
                torch::arange(n) * 2};
      },
      kSizes, 8, 3);
}

TEST_P(DynamicTest, SearchesAndRunningValues) {
  ExpectFewPrograms(
      [](int64_t n) -> Tensors {
        const Tensor x = torch::randn({n, 6});
        const auto [values, places] = torch::cummax(x, 1);
        const Tensor bounds = torch::linspace(-1, 1, 5);
        return {torch::logsumexp(x, 1) * 2,
                x.flip({0}) + 1,
                x.roll(1, 0) * 2,
                values + 1,
                places,
                x.logcumsumexp(1) * 2,
                (x * 2).cumsum(0) + 1,
                x.flip({0}).cumsum(0).flip({0}) * x,
                x.t().cumsum(1).sum(0),
                x.cumprod(1) * 2,
                torch::bucketize(x, bounds),
                torch::cdist(x, x, 1) * 2,
                x.nansum() * 2,
                std::get<0>(x.median(1)) * 2};
      },
      kSizes, 3, 2);
}

TEST_P(DynamicTest, WritesAtPositionsAndMasks) {
  ExpectFewPrograms(
      [](int64_t n) -> Tensors {
        const Tensor x = torch::randn({n, 6}), ids = torch::randperm(n);
        const Tensor a = x * 2, b = x * 3, c = x * 4;
        a.index_put_({ids}, x);
        b.index_put_({b > 0}, torch::tensor(0.5));
        c.index_fill_(0, ids, 2);
        return {a * 2, b * 2, c * 2, torch::nan_to_num(x) * 2};
      },
      kSizes, 4, 3);
}

TEST_P(DynamicTest, LossesAndTheirGradients) {
  ExpectFewPrograms(
      [](int64_t n) -> Tensors {
        const Tensor x = torch::randn({n, 6}).requires_grad_(), y = torch::rand({n, 6});
        const Tensor loss = torch::huber_loss(x, y) + torch::smooth_l1_loss(x, y) + torch::log_sigmoid(x).mean() +
                            torch::binary_cross_entropy_with_logits(x, y) + torch::glu(x, 1).mean() + torch::mish(x).mean() +
                            torch::celu(x).sum();
        loss.backward();
        return {loss.detach(), x.grad()};
      },
      kSizes, 4, 3);
}

TEST_P(DynamicTest, SampledAndPaddedImages) {
  ExpectFewPrograms(
      [](int64_t n) -> Tensors {
        const Tensor x = torch::rand({n, 3, 8, 6}).requires_grad_(), grid = torch::rand({n, 4, 5, 2}) * 2 - 1;
        const Tensor sampled = torch::grid_sampler(x, grid, 0, 0, false), padded = torch::reflection_pad2d(x, {1, 2, 2, 1});
        const Tensor unfolded = torch::im2col(x, {2, 2}, {1, 1}, {0, 0}, {1, 1});
        (sampled.sum() + padded.mean() + unfolded.mean()).backward();
        return {sampled.detach() * 2, padded.detach(), torch::pixel_shuffle(torch::rand({n, 4, 3, 3}), 2) * 2, x.grad()};
      },
      {6, 9, 20, 2, 31, 64}, 4, 2);
}

// Steps with sizes that never came before follow the prediction like any other, to the program and back.
TEST_P(DynamicTest, SizesThatNeverCameBeforeArePredicted) {
  const auto step = [](int64_t n) -> Tensors {
    const Tensor x = torch::randn({n, 6, 8}).requires_grad_(), w = torch::randn({8, 8});
    const Tensor y = torch::layer_norm(torch::matmul(x, w), {8}).relu().transpose(0, 1).contiguous();
    torch::log_softmax(y.view({6 * n, 8}), 1).sum().backward();
    return {y.detach(), x.grad()};
  };
  const std::vector<int64_t> sizes = {12, 15, 18, 7, 100, 31, 9, 64, 23, 5};
  ExpectFewPrograms(step, sizes, 2, 2);
  const lazuli::DeviceMode mode(options());
  std::optional<StatsDelta> delta;
  for (const int64_t size : {8, 10, 11, 13, 14, 201}) {
    if (size == 11) delta.emplace();
    const Tensors results = step(size);
    lazuli::sync();
  }
  EXPECT_GT(delta->of(&Stats::traces), 0);
  EXPECT_EQ(delta->of(&Stats::predicted_hits), delta->of(&Stats::traces));
}

TEST_P(DynamicTest, AMinimumOfSizesIsNoSymbol) {
  // Results have min(n, 40) columns, which is n for the sizes that come first.
  const auto step = [](int64_t n) -> Tensors {
    const auto [q, r] = torch::linalg_qr(torch::randn({40, n}) * 2);
    return {q.matmul(r) + 1};
  };
  ExpectFewPrograms(step, {8, 12, 30, 39, 41, 64, 50, 20, 41, 100, 64}, 4, 6);
}

TEST_P(DynamicTest, TheOrderOfStridesIsNoConstant) {
  // A result's strides follow the order of its operand's, here n and 100.
  const auto step = [](int64_t n) -> Tensors {
    const Tensor base = torch::arange(2000, torch::kFloat);
    const Tensor x = base.as_strided({4, 8}, {n, 100});
    return {x.neg(), x.exp().mul(2)};
  };
  ExpectFewPrograms(step, {150, 200, 170, 30, 50, 160, 20, 110, 90, 140}, 4, 6);
}

TEST_P(DynamicTest, BatchAndTime) {
  // Sizes of two dimensions and their product.
  const auto step = [](int64_t n) -> Tensors {
    const int64_t batch = 2 + n % 3, time = n;
    const Tensor x = torch::randn({batch, time, 8}), w = torch::randn({8, 8});
    const Tensor q = torch::matmul(x, w).view({batch, time, 2, 4}).transpose(1, 2);
    const Tensor scores = torch::softmax(torch::matmul(q, q.transpose(2, 3)), -1);
    return {torch::matmul(scores, q).transpose(1, 2).reshape({batch * time, 8}).relu()};
  };
  ExpectFewPrograms(step, {10, 12, 20, 7, 33, 64, 9, 11}, 3, 3);
}

TEST_P(DynamicTest, DecodingThatGrowsByOneTokenAStep) {
  const Tensor tokens = torch::randn({64, 8});
  const auto decode = [&tokens] {
    Tensors results;
    Tensor keys = torch::zeros({2, 8});
    for (int64_t step = 0; step < 40; ++step) {
      keys = torch::cat({keys, tokens.slice(0, step, step + 1)});
      results.push_back(torch::softmax(torch::matmul(tokens.slice(0, step, step + 1), keys.t()), -1).matmul(keys));
      results.back().sum().item<float>();
    }
    return results;
  };
  const Tensors expected = decode();
  Tensors first, again;
  {
    const lazuli::DeviceMode mode(options());
    const StatsDelta new_sizes;
    first = decode();
    EXPECT_LE(new_sizes.of(&Stats::programs_compiled), 4);
    EXPECT_EQ(new_sizes.of(&Stats::recompile_limit_hits), 0);
    const StatsDelta known_sizes;
    again = decode();
    EXPECT_EQ(known_sizes.of(&Stats::programs_compiled), 0);
    EXPECT_EQ(known_sizes.of(&Stats::eager_replays), 0);
  }
  ExpectSame(expected, first, exact(), "first");
  ExpectSame(expected, again, exact(), "again");
}

TEST_P(DynamicTest, AccumulationOfVaryingLengthAndBranches) {
  const auto step = [](int64_t n) -> Tensors {
    Tensor sum = torch::zeros({8});
    for (int64_t i = 0; i < n % 4 + 1; ++i) {
      sum = sum + torch::randn({8}).sigmoid();
      if (sum.sum().item<float>() > 6) sum = sum * 0.5;
    }
    return {sum};
  };
  std::vector<Tensors> expected;
  for (int64_t i = 0; i < 40; ++i) {
    torch::manual_seed(i);
    expected.push_back(step(i));
  }
  const lazuli::DeviceMode mode(options());
  std::optional<StatsDelta> late;
  for (int64_t round = 0; round < 3; ++round) {
    if (round == 2) late.emplace();
    for (int64_t i = 0; i < 40; ++i) {
      torch::manual_seed(i);
      ExpectSame(expected[i], step(i), exact(), "step " + std::to_string(i));
    }
  }
  EXPECT_EQ(late->of(&Stats::programs_compiled), 0);
  EXPECT_EQ(late->of(&Stats::eager_replays), 0);
}

TEST_P(DynamicTest, ZeroAndOneHaveProgramsOfTheirOwn) {
  const auto step = [](int64_t n) -> Tensors {
    const Tensor x = torch::ones({n, 4}) * 3;
    return {x.sum(0), x + torch::ones({n, 1})};
  };
  ExpectFewPrograms(step, {8, 9, 1, 0, 5, 1, 0, 12}, 4, 4);
}

TEST_P(DynamicTest, AOneBeforeTheSecondSizeDoesNotCount) {
  ExpectFewPrograms([](int64_t n) -> Tensors { return {(torch::ones({n, 4}) * 3).sum(0)}; }, {8, 1, 0, 9, 1, 10, 0, 12}, 4, 4);
}

// What was known of earlier operators' results stays known when a later size is less than any that was tested, and the trace another one.
TEST_P(DynamicTest, ALaterSizeIsLessThanWasTested) {
  const auto step = [](int64_t n, int64_t m, bool other) {
    const Tensor a = torch::arange(n * 4, torch::kFloat).reshape({n, 4}), b = torch::ones({m, 4});
    const Tensor top = std::get<0>(a.topk(3, 0)).relu(), z = torch::tanh(b);
    return (top.sum() + (other ? z.sin() : z.cos()).sum()).item<float>();
  };
  const auto expected = step(12, 2, true);
  const lazuli::DeviceMode mode(options());
  const StatsDelta delta;
  for (const auto& [n, m] : std::vector<std::pair<int64_t, int64_t>>{{10, 20}, {12, 25}, {14, 31}, {9, 17}, {11, 23}, {13, 19}})
    step(n, m, false);
  EXPECT_GT(delta.of(&Stats::dynamic_programs), 0);
  EXPECT_FLOAT_EQ(step(12, 2, true), expected);
}

TEST_P(DynamicTest, ManySizesKeepLittle) {
  const lazuli::DeviceMode mode(options());
  for (int64_t n = 2; n < 300; ++n) EXPECT_EQ((torch::ones({n}) * 2).sum().item<float>(), 2 * n);
  EXPECT_LE(lazuli::stats().programs_compiled, 3);
  EXPECT_LE(guards::ProgramCache::Get().size(), guards::Skeleton::kMaxServed + 8);
}

TEST_P(DynamicTest, OffMeansAProgramForEachSize) {
  const lazuli::DeviceMode mode(options().dynamic("0"));
  const StatsDelta delta;
  for (int64_t n = 2; n < 6; ++n) EXPECT_EQ((torch::ones({n}) * 2).sum().item<float>(), 2 * n);
  EXPECT_EQ(delta.of(&Stats::programs_compiled), 4);
  EXPECT_EQ(delta.of(&Stats::dynamic_programs), 0);
}

TEST_P(DynamicTest, TheLogSaysWhatBecameASymbol) {
  const LogFile log;
  const lazuli::DeviceMode mode(options().logs("dynamic").log_file(log.path()));
  for (const int64_t n : {5, 6, 1}) (torch::ones({n, 3}).exp() * 2).sum().item<float>();
  EXPECT_THAT(log.text(), ::testing::HasSubstr("is compiled with symbols:\n"));
  EXPECT_THAT(log.text(), ::testing::HasSubstr(" at index 0, was 5\n"));
  EXPECT_THAT(log.text(), ::testing::HasSubstr("is compiled for its sizes alone: a size that changed was 0 or 1, which are specialised"));
}

LAZULI_FOR_EACH_BACKEND(DynamicTest);

}  // namespace
}  // namespace lazuli::testing
