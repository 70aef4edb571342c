// LAZULI_VERIFY: programs compared with their operators.

#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <torch/library.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "codegen/ir/trace.h"
#include "tests/support/log_file.h"
#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

using ::testing::HasSubstr;

// An operator that is not a function: each call adds a number larger by one. The program's call and the replay's differ, so verification
// has something to find.
int64_t calls = 0;
torch::Tensor Counting(const torch::Tensor& x) { return x + static_cast<double>(calls++); }

TORCH_LIBRARY(lazuli_verify_test, m) { m.def("counting(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(lazuli_verify_test, CPU, m) { m.impl("counting", &Counting); }
TORCH_LIBRARY_IMPL(lazuli_verify_test, Meta, m) {
  m.impl("counting", [](const torch::Tensor& x) { return torch::empty_like(x); });
}

torch::Tensor CallCounting(const torch::Tensor& x) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("lazuli_verify_test::counting", "").typed<torch::Tensor(const torch::Tensor&)>();
  return op.call(x);
}

class VerifyTest : public BackendTest {
 protected:
  void SetUp() override {
    {
      const lazuli::DeviceMode mode;
      for (int call = 0; call < 2; ++call) CallCounting(torch::ones({1}));  // It is recorded after these.
    }
    BackendTest::SetUp();
    calls = 0;
    dir_ = std::filesystem::path(::testing::TempDir()) / ("lazuli_verify_" + std::to_string(getpid()));
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  Options verifying(int64_t runs) const { return options().verify(runs).log_file(log_.path()).dump_dir(dir_.string()); }

  LogFile log_;
  std::filesystem::path dir_;
};

TEST_P(VerifyTest, TheFirstRunsOfEachProgramAreCompared) {
  const lazuli::DeviceMode mode(verifying(2));
  const auto x = torch::linspace(-2, 2, 100), running = torch::zeros({100});
  for (int i = 0; i < 5; ++i) {
    running.add_((x * i).tanh());
    const auto y = (x.exp() + running).softmax(0);
    EXPECT_NEAR(y.sum().item<double>(), 1, 1e-5);
  }
  const Stats stats = lazuli::stats();
  // The first step's program, which starts after something else, runs once; the other one four times.
  EXPECT_EQ(stats.programs_compiled, 2);
  EXPECT_EQ(stats.verify_runs, 3);
  EXPECT_EQ(stats.verify_mismatches, 0);
  EXPECT_EQ(log_.text(), "");
}

// Doubles that were floats are as near as floats are: printing a tensor converts it.
TEST_P(VerifyTest, WhatWasRoundedBeforeIsNoNearerAfterwards) {
  const lazuli::DeviceMode mode(verifying(3));
  for (const auto type : {torch::kFloat, torch::kBFloat16}) {
    const auto x = torch::linspace(-2, 2, 1000, type) + 0.1;
    const auto wide = (x.exp().softmax(0) * 100).to(torch::kDouble) + 1;
    EXPECT_NEAR(wide.sum().item<double>(), 1100, type == torch::kFloat ? 1e-3 : 1);
  }
  EXPECT_GE(lazuli::stats().verify_runs, 2);
  EXPECT_EQ(lazuli::stats().verify_mismatches, 0);
  EXPECT_EQ(log_.text(), "");
}

// Memory that is only allocated holds whatever was there, and nobody's values differ.
TEST_P(VerifyTest, AllocatedMemoryHasNoValues) {
  const lazuli::DeviceMode mode(verifying(8));
  // Each allocation holds something else than the last one did.
  for (int i = 0; i < 8; ++i) {
    std::vector<torch::Tensor> before;
    for (int k = 0; k < 8; ++k) before.push_back(torch::full({64}, 1.0 + i * 8 + k).mul_(3));
    lazuli::sync();
    before.clear();
    const auto x = torch::ones({64}) * 2, y = torch::empty_like(x), z = torch::empty({64}).fill_(4);
    EXPECT_EQ(x.data_ptr<float>()[0], 2);  // Cuts, while the others are pending.
    std::fill_n(y.data_ptr<float>(), 64, 5.0F);
    EXPECT_EQ((y + z).sum().item<float>(), 64 * 9);
  }
  EXPECT_GE(lazuli::stats().verify_runs, 4);
  EXPECT_EQ(lazuli::stats().verify_mismatches, 0);
  EXPECT_EQ(log_.text(), "");
}

TEST_P(VerifyTest, OffByDefault) {
  const lazuli::DeviceMode mode(options());
  EXPECT_EQ((torch::ones({3}) * 2).sum().item<float>(), 6);
  EXPECT_EQ(lazuli::stats().verify_runs, 0);
}

TEST_P(VerifyTest, ChangesNoResult) {
  // Reads and writes its inputs, draws random numbers, keeps a view.
  const auto program = [] {
    torch::manual_seed(5);
    auto weight = torch::randn({8, 8});
    torch::Tensor row;
    for (int i = 0; i < 4; ++i) {
      weight.mul_(0.5).add_(torch::dropout(weight, 0.5, true));
      row = weight[1];
      row.add_(1);
    }
    return Tensors{weight, row};
  };
  ExpectSameAsEager(program, verifying(1000));
  EXPECT_GT(lazuli::stats().verify_runs, 0);
  EXPECT_EQ(lazuli::stats().verify_mismatches, 0);
}

TEST_P(VerifyTest, ADifferenceIsLoudAndCanBeReproduced) {
  const lazuli::DeviceMode mode(verifying(100));
  const auto x = torch::ones({4});
  for (int i = 0; i < 3; ++i) {
    const int64_t before = calls;
    const auto y = CallCounting(x * 3) * 2;
    // What the program computed stands.
    EXPECT_EQ(y.sum().item<float>(), 4 * 2 * (3 + before));
  }
  const Stats stats = lazuli::stats();
  EXPECT_EQ(stats.verify_runs, 3);
  EXPECT_EQ(stats.verify_mismatches, 3);
  const std::string text = log_.text();
  EXPECT_THAT(text, HasSubstr("[lazuli] VERIFY: the program of trace #"));
  EXPECT_THAT(text, ::testing::ContainsRegex("op [0-9]+ aten::(mul.Tensor|sum), storage %[0-9]+, element 0: expected [0-9]+, got [0-9]+"));
  EXPECT_THAT(text, HasSubstr("[lazuli]     kernel: "));
  const std::string marker = "reproduce: lazuli-trace bisect ";
  const size_t at = text.find(marker);
  ASSERT_NE(at, std::string::npos);
  const std::string path = text.substr(at + marker.size(), text.find('\n', at) - at - marker.size());
  std::ifstream file(path);
  const auto trace = codegen::ParseTrace({std::istreambuf_iterator<char>(file), {}});
  ASSERT_TRUE(trace.ok()) << path << ": " << trace.status();
  EXPECT_THAT(codegen::PrintTrace(*trace), HasSubstr("lazuli_verify_test::counting"));
  EXPECT_THAT(lazuli::explain(), HasSubstr("verified: "));
}

LAZULI_FOR_EACH_BACKEND(VerifyTest);

}  // namespace
}  // namespace lazuli::testing
