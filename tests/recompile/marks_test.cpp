// lazuli::mark_dynamic, lazuli::mark_static and LAZULI_DYNAMIC=1: symbols before a second size was seen, or never.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "tests/support/error_of.h"
#include "tests/support/log_file.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

using ::testing::HasSubstr;
using Prepare = std::function<void(const torch::Tensor&)>;

class MarksTest : public BackendTest {
 protected:
  // x [rows, 12] through a layer, for each number of rows in turn; `prepare` sees each x. What was counted.
  Stats Run(const std::vector<int64_t>& rows, const Prepare& prepare) const { return Run(rows, prepare, options()); }
  Stats Run(const std::vector<int64_t>& rows, const Prepare& prepare, const Options& options) const {
    lazuli::reset();
    const torch::NoGradGuard no_grad;
    const torch::Tensor weight = torch::randn({12, 20});
    const DeviceMode mode(options);
    for (const int64_t count : rows) {
      const torch::Tensor x = torch::randn({count, 12});
      prepare(x);
      const auto work = [&] { return torch::softmax(torch::mm(torch::relu(x + 1), weight), 1).sum(0); };
      const torch::Tensor result = work();
      lazuli::sync();
      const EagerScope eager;
      EXPECT_TRUE(torch::allclose(result, work(), 1e-5, 1e-6)) << count;
    }
    return lazuli::stats();
  }
};

void Nothing(const torch::Tensor&) {}
void MarkRows(const torch::Tensor& x) { lazuli::mark_dynamic(x, 0); }

TEST_P(MarksTest, OneProgramFromTheStart) {
  EXPECT_EQ(Run({30, 40, 50}, Nothing).programs_compiled, 2);
  const Stats stats = Run({30, 40, 50}, MarkRows);
  EXPECT_EQ(stats.programs_compiled, 1);
  EXPECT_EQ(stats.dynamic_programs, 1);
  EXPECT_EQ(stats.recompiles, 0);
}

// Where the second half begins is a multiple of the marked size.
TEST_P(MarksTest, WindowsFollowFromMarkedSizes) {
  lazuli::reset();
  const torch::NoGradGuard no_grad;
  const DeviceMode mode(options());
  for (const int64_t rows : {30, 40, 50}) {
    const torch::Tensor x = torch::randn({rows, 12}), y = torch::randn({rows, 12});
    MarkRows(x);
    MarkRows(y);
    const auto work = [&] {
      const torch::Tensor both = torch::stack({x.tanh(), y.tanh()});
      return both.select(0, 0) * both.select(0, 1);
    };
    const torch::Tensor result = work();
    lazuli::sync();
    const EagerScope eager;
    EXPECT_TRUE(torch::allclose(result, work(), 1e-5, 1e-6)) << rows;
  }
  EXPECT_EQ(lazuli::stats().programs_compiled, 1);
}

// A program for each position would be too many.
TEST_P(MarksTest, WindowsMoveWithoutSymbols) {
  lazuli::reset();
  Options options = this->options();
  options.dynamic("0");
  const DeviceMode mode(options);
  const torch::Tensor x = torch::randn({40, 6});
  for (int64_t row = 3; row < 12; ++row) {
    const torch::Tensor y = x.tanh();
    const torch::Tensor result = y.slice(0, row, row + 3) * 2;
    lazuli::sync();
    const EagerScope eager;
    EXPECT_TRUE(torch::allclose(result, x.tanh().slice(0, row, row + 3) * 2, 1e-5, 1e-6)) << row;
  }
  EXPECT_EQ(lazuli::stats().programs_compiled, 1);
}

TEST_P(MarksTest, OnceIsEnough) {
  bool first = true;
  const Stats stats = Run({30, 40, 50}, [&](const torch::Tensor& x) {
    if (std::exchange(first, false)) lazuli::mark_dynamic(x, -2);
  });
  EXPECT_EQ(stats.programs_compiled, 1);
}

TEST_P(MarksTest, SizesOutOfRangeGetProgramsOfTheirOwn) {
  const Stats stats =
      Run({30, 40, 100, 35}, [](const torch::Tensor& x) { lazuli::mark_dynamic(x, 0, 10, std::max<int64_t>(60, x.size(0))); });
  EXPECT_EQ(stats.programs_compiled, 2);
}

TEST_P(MarksTest, StaticSizesGetAProgramEach) {
  const Stats stats = Run({30, 40, 50, 30}, [](const torch::Tensor& x) { lazuli::mark_static(x, 0); });
  EXPECT_EQ(stats.programs_compiled, 3);
  EXPECT_EQ(stats.dynamic_programs, 0);
  EXPECT_EQ(Run({30, 40, 50, 30}, [](const torch::Tensor& x) { lazuli::mark_static(x); }).programs_compiled, 3);
}

TEST_P(MarksTest, AnEqualSizeWaitsForASecond) {
  const Stats stats = Run({20, 40, 50}, MarkRows);
  EXPECT_EQ(stats.programs_compiled, 2);
  EXPECT_EQ(stats.dynamic_programs, 1);
}

TEST_P(MarksTest, OffMeansOff) { EXPECT_EQ(Run({30, 40, 50}, MarkRows, options().dynamic("0")).programs_compiled, 3); }

TEST_P(MarksTest, InTheBackground) {
  const Stats stats = Run(
      {30, 40, 50},
      [](const torch::Tensor& x) {
        lazuli::mark_dynamic(x, 0);
        lazuli::wait_for_compiles();
      },
      options().async(true));
  EXPECT_EQ(stats.programs_compiled, 1);
  EXPECT_EQ(stats.dynamic_programs, 1);
}

TEST_P(MarksTest, AllDataWithTheOption) {
  const Stats stats = Run({30, 40, 50}, Nothing, options().dynamic("1"));
  EXPECT_EQ(stats.programs_compiled, 1);
  EXPECT_EQ(stats.dynamic_programs, 1);
}

TEST_P(MarksTest, TrainingWithTheOptionCompilesOncePerPlace) {
  const auto train = [&](const Options& options, const std::vector<int64_t>& batches) {
    lazuli::reset();
    const DeviceMode mode(options);
    torch::manual_seed(3);
    torch::nn::Sequential model(torch::nn::Linear(12, 40), torch::nn::GELU(), torch::nn::LayerNorm(torch::nn::LayerNormOptions({40})),
                                torch::nn::Linear(40, 5));
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-2));
    std::vector<double> losses;
    for (const int64_t batch : batches) {
      optimizer.zero_grad();
      auto loss = torch::cross_entropy_loss(model->forward(torch::randn({batch, 12})), torch::randint(0, 5, {batch}));
      loss.backward();
      optimizer.step();
      losses.push_back(loss.item<double>());
    }
    return std::make_pair(losses, lazuli::stats());
  };
  const std::vector<int64_t> batches = {32, 24, 48, 16, 28};
  const auto [expected, fixed] = train(options().dynamic("0"), batches);
  const auto [losses, open] = train(options().dynamic("1"), batches);
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-4) << i;
  EXPECT_LT(open.programs_compiled, fixed.programs_compiled);
  // As many as without a change.
  EXPECT_EQ(open.programs_compiled, train(options().dynamic("0"), std::vector<int64_t>(5, 32)).second.programs_compiled);
}

TEST_P(MarksTest, TheLogSaysWhatTheMarkDid) {
  const LogFile log;
  Run({30, 40}, MarkRows, options().logs("dynamic").log_file(log.path()));
  EXPECT_THAT(log.text(), HasSubstr("s0 = 30 for size of input 0 of op 0 aten::add.Tensor at index 0, from the start"));
}

TEST_P(MarksTest, BadMarksSayWhatIsWrong) {
  const torch::Tensor x = torch::zeros({4, 12});
  EXPECT_THAT(ErrorOf([&] { lazuli::mark_dynamic(x, 2); }), HasSubstr("no dimension 2 to mark in a tensor of 2 dimensions"));
  EXPECT_THAT(ErrorOf([&] { lazuli::mark_dynamic(x, 0, 5, 9); }), HasSubstr("size 4 of dimension 0 is outside of the range [5, 9]"));
  EXPECT_THAT(ErrorOf([&] { lazuli::mark_static(torch::Tensor()); }), HasSubstr("only sizes of strided tensors can be marked"));
  EXPECT_THAT(ErrorOf([&] { lazuli::mark_static(torch::zeros({}), 0); }), HasSubstr("no dimension 0"));
}

LAZULI_FOR_EACH_BACKEND(MarksTest);

}  // namespace
}  // namespace lazuli::testing
