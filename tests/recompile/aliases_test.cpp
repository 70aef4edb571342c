// Inputs that are one tensor in one round and several in the next: no program for each pattern.

#include <random>

#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

class AliasesTest : public BackendTest {};

TEST_P(AliasesTest, AListDrawnWithReplacementHasOneProgramForAllPatterns) {
  std::vector<torch::Tensor> buffer;
  for (int i = 0; i < 12; ++i) buffer.push_back(torch::arange(4, torch::kFloat).reshape({1, 4}) + 0.25f * static_cast<float>(i));
  const auto rows = torch::arange(48, torch::kFloat).reshape({12, 4}) * 0.125;
  std::mt19937 random(3);
  const DeviceMode mode(options());
  const StatsDelta delta;
  for (int round = 0; round < 40; ++round) {
    std::vector<torch::Tensor> now, next;
    std::vector<size_t> drawn;
    for (int k = 0; k < 8; ++k) drawn.push_back(random() % 11);
    // Some states are the next states of others; views of one storage as well as tensors of their own.
    for (const size_t i : drawn) {
      now.push_back(buffer[i]);
      next.push_back(round % 2 == 0 ? buffer[i + 1] : rows[static_cast<int64_t>(i) + 1].unsqueeze(0));
    }
    const auto got = (torch::cat(now) * 2 + torch::cat(next)).sum(0);
    auto want = std::vector<float>(4);
    for (size_t column = 0; column < 4; ++column) {
      for (const size_t i : drawn) {
        const auto c = static_cast<float>(column), index = static_cast<float>(i);
        want[column] += 2 * (c + 0.25f * index) + (round % 2 == 0 ? c + 0.25f * (index + 1) : 0.125f * (4 * (index + 1) + c));
      }
    }
    for (int64_t column = 0; column < 4; ++column) EXPECT_FLOAT_EQ(got[column].item<float>(), want[static_cast<size_t>(column)]);
  }
  // For each of the two kinds of lists: the first pattern, and all others. Reading four numbers cuts four times.
  EXPECT_LE(delta.of(&Stats::programs_compiled), 4 + 4);
  EXPECT_EQ(delta.of(&Stats::recompile_limit_hits), 0);
}

// What a shuffled data loader does with the rows of one tensor.
TEST_P(AliasesTest, RowsInAnyOrderHaveOneProgram) {
  const auto rows = torch::arange(36, torch::kFloat).reshape({9, 4}), labels = torch::arange(9);
  std::mt19937 random(7);
  const DeviceMode mode(options());
  const StatsDelta delta;
  for (int round = 0; round < 30; ++round) {
    std::vector<torch::Tensor> batch, targets;
    float want = 0;
    for (int64_t k = 0; k < 5; ++k) {
      // The row at offset 0 is at each place, and at times at none.
      const auto row = round % 6 == k ? 0 : 1 + static_cast<int64_t>(random() % 8);
      batch.push_back(rows[row]);
      targets.push_back(labels[row]);
      want += 2 * static_cast<float>(4 * row + 3) * static_cast<float>(row);
    }
    const auto got = ((torch::stack(batch) * 2).select(1, 3) * torch::stack(targets)).sum();
    EXPECT_FLOAT_EQ(got.item<float>(), want);
  }
  EXPECT_LE(delta.of(&Stats::programs_compiled), 3);
  EXPECT_EQ(delta.of(&Stats::recompile_limit_hits), 0);
  EXPECT_GE(delta.of(&Stats::cache_hits), 25);
}

// Windows of several tensors, some of which begin where their tensor does.
TEST_P(AliasesTest, WindowsOfTensorsMayBeginAnywhere) {
  std::vector<torch::Tensor> series;
  for (int i = 0; i < 6; ++i) series.push_back(torch::arange(16, torch::kFloat) + 100.0f * static_cast<float>(i));
  const auto weights = torch::full({8}, 2.0f);
  std::mt19937 random(11);
  const DeviceMode mode(options());
  const StatsDelta delta;
  for (int round = 0; round < 40; ++round) {
    std::vector<torch::Tensor> windows;
    float want = 0;
    for (int k = 0; k < 4; ++k) {
      const size_t which = (static_cast<size_t>(k) + random() % 2 * 4) % 6;
      const auto begin = static_cast<int64_t>(random() % 2) * 3;
      windows.push_back(series[which].narrow(0, begin, 8));
      want += 2 * (100.0f * static_cast<float>(which) + static_cast<float>(begin + 7));
    }
    EXPECT_FLOAT_EQ((torch::stack(windows) * weights).select(1, 7).sum().item<float>(), want);
  }
  // At the start of all, of some, and twice the same tensor.
  EXPECT_LE(delta.of(&Stats::programs_compiled), 4);
  EXPECT_EQ(delta.of(&Stats::recompile_limit_hits), 0);
  EXPECT_GE(delta.of(&Stats::cache_hits), 34);
}

TEST_P(AliasesTest, ATensorThatIsWrittenIsNoChance) {
  std::mt19937 random(5);
  const DeviceMode mode(options());
  for (int round = 0; round < 20; ++round) {
    std::vector<torch::Tensor> buffer;
    for (int i = 0; i < 3; ++i) buffer.push_back(torch::full({4}, i + 1));
    lazuli::sync();
    const size_t a = random() % 3, b = random() % 3, c = random() % 3;
    const auto before = torch::stack({buffer[a], buffer[b]});
    buffer[c].add_(10);
    const auto after = torch::stack({buffer[a], buffer[b]});
    const auto value = [&](size_t i, bool written) { return static_cast<float>(i + 1) + (written && i == c ? 10 : 0); };
    EXPECT_EQ(before[0][0].item<float>(), value(a, false));
    EXPECT_EQ(before[1][3].item<float>(), value(b, false));
    EXPECT_EQ(after[0][1].item<float>(), value(a, true));
    EXPECT_EQ(after[1][2].item<float>(), value(b, true));
  }
}

// What is the same in every round keeps the program that knows it.
TEST_P(AliasesTest, ASteadyPatternIsCompiledAsItIs) {
  const auto x = torch::arange(8, torch::kFloat);
  const DeviceMode mode(options());
  for (int round = 0; round < 6; ++round) {
    const StatsDelta delta;
    const auto y = (torch::stack({x, x * 2, x}) * x).sum();
    EXPECT_EQ(y.item<float>(), 4 * 140);
    if (round >= 2) {
      EXPECT_EQ(delta.of(&Stats::predicted_hits), delta.of(&Stats::traces));
      EXPECT_EQ(delta.of(&Stats::programs_compiled), 0);
    }
  }
}

LAZULI_FOR_EACH_BACKEND(AliasesTest);

}  // namespace
}  // namespace lazuli::testing
