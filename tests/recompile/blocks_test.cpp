// Programs whose traces never come back the same: they are recorded in blocks, which do.

#include <gmock/gmock.h>

#include <random>

#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

using torch::Tensor;

// A recursive network over binary trees: a cell for each inner node, an embedding for each leaf.
struct TreeNet {
  Tensor leaves = torch::randn({10, 12}), left = torch::randn({12, 24}) * 0.3, right = torch::randn({12, 24}) * 0.3;
  Tensor bias = torch::randn({24}) * 0.1;

  // A tree of `size` leaves, split anywhere.
  Tensor Encode(std::mt19937* random, int size) const {
    if (size == 1) return torch::tanh(leaves.select(0, static_cast<int64_t>((*random)() % 10)).unsqueeze(0) * 1.5);
    const int first = 1 + static_cast<int>((*random)() % static_cast<unsigned>(size - 1));
    const Tensor a = Encode(random, first), b = Encode(random, size - first);
    const Tensor sums = torch::mm(a, left) + torch::mm(b, right) + bias;
    return torch::sigmoid(sums.narrow(1, 0, 12)) * torch::tanh(sums.narrow(1, 12, 12)) + (a + b) * 0.5;
  }
  float Score(int tree) const {
    std::mt19937 random(static_cast<unsigned>(tree));
    const int size = 6 + static_cast<int>(random() % 12);
    return Encode(&random, size).sum().item<float>();
  }
};

class BlocksTest : public BackendTest {};

TEST_P(BlocksTest, RecursionOverTreesSettles) {
  const torch::NoGradGuard no_grad;
  const TreeNet net;
  constexpr int kTrees = 300, kWarmUp = 200;
  std::vector<float> expected;
  for (int tree = 0; tree < kTrees; ++tree) expected.push_back(net.Score(tree));
  const lazuli::DeviceMode mode(options());
  for (int tree = 0; tree < kWarmUp; ++tree) EXPECT_NEAR(net.Score(tree), expected[static_cast<size_t>(tree)], exact() ? 0 : 1e-3) << tree;
  const StatsDelta late;
  for (int tree = kWarmUp; tree < kTrees; ++tree) {
    EXPECT_NEAR(net.Score(tree), expected[static_cast<size_t>(tree)], exact() ? 0 : 1e-3) << tree;
  }
  EXPECT_GT(lazuli::stats().cuts["block"], 0);
  // Nearly every block is known: there are new ones, of rare combinations of neighbours, ever more seldom.
  const int64_t blocks = late.of(&Stats::traces);
  EXPECT_GT(blocks, 10 * (kTrees - kWarmUp));
  EXPECT_LE(late.of(&Stats::programs_compiled) * 25, blocks);
  EXPECT_LE(late.of(&Stats::eager_replays) * 25, blocks);
}

TEST_P(BlocksTest, TracesThatComeBackStayWhole) {
  const lazuli::DeviceMode mode(options());
  const auto step = [](int variant) {
    Tensor x = torch::ones({5});
    for (int i = 0; i < 12 + variant; ++i) x = x * 1.25 - 0.5;
    return x.sum().item<float>();
  };
  for (int i = 0; i < 60; ++i) step(i * 7 % 5);
  EXPECT_EQ(lazuli::stats().cuts.count("block"), 0U);
  EXPECT_EQ(lazuli::stats().programs_compiled, 5);
}

TEST_P(BlocksTest, BlocksAreNoGraphBreaks) {
  const lazuli::DeviceMode mode(options());
  for (int length = 20; length < 60; ++length) {
    Tensor x = torch::ones({5});
    std::mt19937 random(static_cast<unsigned>(length));
    {
      const lazuli::FullGraph full;
      for (int i = 0; i < length; ++i) x = i < 4 || random() % 3 == 0 ? torch::tanh(x) : x * 1.25 - 0.5;
    }
    x.sum().item<float>();
  }
  EXPECT_GT(lazuli::stats().cuts["block"], 0);
}

LAZULI_FOR_EACH_BACKEND(BlocksTest);

}  // namespace
}  // namespace lazuli::testing
