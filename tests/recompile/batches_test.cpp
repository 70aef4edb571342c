// Small kernels that do not depend on each other run together: what an optimizer does to each parameter, clipping to each gradient.

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <sstream>

#include "tests/support/log_file.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

constexpr int kParameters = 24;
constexpr int kSteps = 8;

class BatchesTest : public ::testing::Test {
 protected:
  void SetUp() override { lazuli::reset(); }
  void TearDown() override { at::set_num_threads(threads_); }

  static std::vector<torch::Tensor> Parameters() {
    torch::manual_seed(3);
    std::vector<torch::Tensor> parameters;
    for (int i = 0; i < kParameters; ++i) {
      parameters.push_back(torch::randn({1 + 7 * i * i * i}).requires_grad_());
      parameters.back().mutable_grad() = torch::randn_like(parameters.back());
    }
    return parameters;
  }

  // What the log says of batches.
  static std::string BatchesIn(const LogFile& log) {
    std::istringstream lines(log.text());
    std::string batches;
    for (std::string line; std::getline(lines, line);) {
      if (line.find("Batch of trace") != std::string::npos) batches += line + "\n";
    }
    return batches;
  }

  // The parameters after some steps; `log`: of the mode they run in, null for eager.
  template <class MakeOptimizer>
  std::vector<torch::Tensor> Step(const MakeOptimizer& make, double clip, const LogFile* log) {
    std::optional<DeviceMode> mode;
    if (log != nullptr) mode.emplace(Options().logs("fusion").log_file(log->path()));
    const auto parameters = Parameters();
    auto optimizer = make(parameters);
    for (int i = 0; i < kSteps; ++i) {
      if (clip > 0) torch::nn::utils::clip_grad_norm_(parameters, clip);
      optimizer.step();
      if (log == nullptr) continue;
      lazuli::sync();
      if (i == kSteps / 2) warm_programs_ = lazuli::stats().programs_compiled;
    }
    std::vector<torch::Tensor> values;
    for (const auto& parameter : parameters) values.push_back(parameter.detach());
    return values;
  }

  // Expects eager's values, and that the last program that was compiled runs the kernels of all parameters together.
  template <class MakeOptimizer>
  void Expect(const MakeOptimizer& make, double clip) {
    const auto eager = Step(make, clip, nullptr);
    for (const int threads : {1, 2, 8}) {
      SCOPED_TRACE(threads);
      lazuli::reset();
      at::set_num_threads(threads);
      const LogFile log;
      const auto lazy = Step(make, clip, &log);
      for (int i = 0; i < kParameters; ++i) {
        EXPECT_TRUE(torch::allclose(eager[i], lazy[i], 1e-5, 1e-6)) << "parameter " << i;
      }
      const std::string all = "Batch of trace #[0-9]+: " + std::to_string(kParameters) + " times aten::";
      EXPECT_THAT(BatchesIn(log), ::testing::ContainsRegex(all + "(mul_|add_|lerp_)"));
      if (clip > 0) {
        EXPECT_THAT(BatchesIn(log), ::testing::ContainsRegex(all + "norm"));
      }
      const Stats stats = lazuli::stats();
      EXPECT_EQ(stats.programs_compiled, warm_programs_);
      EXPECT_EQ(stats.compile_failures, 0);
      EXPECT_GE(stats.kernel_launches, kParameters * (kSteps - 2));
      EXPECT_GE(stats.cache_hits, kSteps - 3);
    }
  }

 protected:
  int64_t warm_programs_ = 0;  // Compiled in the first half of the steps.

 private:
  const int threads_ = at::get_num_threads();
};

TEST_F(BatchesTest, AdamW) {
  Expect([](const auto& parameters) { return torch::optim::AdamW(parameters, torch::optim::AdamWOptions(0.01)); }, 0);
}

TEST_F(BatchesTest, MomentumSgd) {
  Expect([](const auto& parameters) { return torch::optim::SGD(parameters, torch::optim::SGDOptions(0.01).momentum(0.9)); }, 0);
}

TEST_F(BatchesTest, ClippedAdamW) {
  Expect([](const auto& parameters) { return torch::optim::AdamW(parameters, torch::optim::AdamWOptions(0.01)); }, 1);
}

// Rows that come and go: as many kernels, of other sizes each time.
TEST_F(BatchesTest, SizesThatChange) {
  const auto program = [](int64_t rows) {
    const auto x = torch::arange(rows * 96, torch::kFloat).view({rows, 96}) / 100;
    std::vector<torch::Tensor> results;
    for (int i = 0; i < 6; ++i) results.push_back((x.slice(1, i * 16, i * 16 + 16) * (i + 1)).sum(i % 2));
    return results;
  };
  const std::vector<int64_t> rows = {64, 65, 300, 2000, 700};
  std::vector<std::vector<torch::Tensor>> eager;
  for (const int64_t n : rows) eager.push_back(program(n));
  const LogFile log;
  const DeviceMode mode(Options().logs("fusion").log_file(log.path()));
  for (size_t k = 0; k < rows.size(); ++k) {
    const auto lazy = program(rows[k]);
    lazuli::sync();
    if (k == 2) warm_programs_ = lazuli::stats().programs_compiled;
    for (size_t i = 0; i < lazy.size(); ++i) EXPECT_TRUE(torch::allclose(eager[k][i], lazy[i], 1e-5, 1e-3)) << rows[k] << " rows, " << i;
  }
  EXPECT_THAT(BatchesIn(log), ::testing::HasSubstr("Batch of trace #"));
  EXPECT_GE(lazuli::stats().dynamic_programs, 1);
  EXPECT_EQ(lazuli::stats().programs_compiled, warm_programs_);
}

// A product and the kernel on its rows run together, too, but are no batch: the log has a line of another kind.
TEST_F(BatchesTest, ProductWithAKernel) {
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "this CPU has no AVX2";
  const auto x = torch::randn({256, 64}), weight = torch::randn({128, 64}), bias = torch::randn({128});
  const auto eager = torch::gelu(torch::linear(x, weight, bias));
  const LogFile log;
  const DeviceMode mode(Options().logs("fusion").log_file(log.path()));
  torch::Tensor lazy;
  for (int i = 0; i < 3; ++i) {
    lazy = torch::gelu(torch::linear(x, weight, bias));
    lazuli::sync();
  }
  EXPECT_THAT(log.text(), ::testing::HasSubstr("Fused rows of trace #"));
  EXPECT_EQ(BatchesIn(log), "");
  EXPECT_EQ(lazuli::stats().compile_failures, 0);
  EXPECT_EQ(lazuli::stats().programs_compiled, 1);
  EXPECT_TRUE(torch::allclose(eager, lazy, 1e-4, 1e-5));
}

// A bad index takes with it what depends on it, and nothing else.
TEST_F(BatchesTest, FailureBeforeABatch) {
  const LogFile log;
  const DeviceMode mode(Options().logs("fusion").log_file(log.path()));
  const auto table = torch::ones({10, 8});
  for (const int64_t index : {3, 11, 4}) {
    const auto indices = torch::full({5}, index, torch::kLong);
    std::vector<torch::Tensor> good, bad;
    std::vector<torch::Tensor> sums;
    for (int i = 0; i < 4; ++i) sums.push_back(torch::full({16 + i}, 1.0));
    const auto rows = torch::index_select(table, 0, indices);
    const auto product = torch::mm(rows, rows.t());
    for (int i = 0; i < 4; ++i) {
      sums[i].mul_(2);
      bad.push_back(product.slice(0, i, i + 2) * 2);
    }
    if (index < 10) {
      lazuli::sync();
      for (const auto& tensor : bad) EXPECT_EQ(tensor[0][0].item<float>(), 16);
    } else {
      EXPECT_ANY_THROW(lazuli::sync());
      for (const auto& tensor : bad) EXPECT_ANY_THROW(tensor[0][0].item<float>());
    }
    for (const auto& sum : sums) EXPECT_EQ(sum[0].item<float>(), 2);
  }
  EXPECT_THAT(BatchesIn(log), ::testing::HasSubstr("4 times aten::full+aten::mul_.Tensor"));
}

}  // namespace
}  // namespace lazuli::testing
