// Weights of convolutions that stay the same are packed once, and any change of them is seen.

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <functional>
#include <utility>

#include "lazuli/lazuli.h"

namespace lazuli::testing {
namespace {

// Runs of a program that see the same weights before it uses them packed.
constexpr int kBefore = 3;

torch::Tensor Images(int64_t batch, int64_t channels, int64_t size = 9) {
  return torch::randn({batch, channels, size, size}).to(at::MemoryFormat::ChannelsLast);
}

torch::Tensor Weight(int64_t out, int64_t in, int64_t size = 3) {
  return torch::randn({out, in, size, size}).to(at::MemoryFormat::ChannelsLast);
}

class PackedWeightsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::globalContext().hasMKLDNN()) GTEST_SKIP() << "a LibTorch without oneDNN";
    torch::manual_seed(1);
    lazuli::reset();
  }

  static Options options() { return Options().async(false).disk_cache(false).dynamic("0").pack_weights(true); }

  // `step` gives what it gives eagerly.
  static void Expect(const std::function<torch::Tensor()>& step, const char* what = "") {
    const torch::Tensor result = step().clone();
    const EagerScope eager;
    const torch::Tensor expected = step();
    EXPECT_EQ(result.strides(), expected.strides()) << what;
    EXPECT_TRUE(torch::allclose(result, expected, 1e-4, 1e-4)) << what << ": off by " << (result - expected).abs().max().item<float>();
  }

  const torch::NoGradGuard no_grad_;
};

TEST_F(PackedWeightsTest, OnceForManyRuns) {
  const auto x = Images(2, 32), w = Weight(48, 32), b = torch::randn({48});
  const lazuli::DeviceMode mode(options());
  for (int i = 0; i < 8; ++i) Expect([&] { return torch::conv2d(x, w, b, 1, 1).relu(); });
  const Stats stats = lazuli::stats();
  EXPECT_EQ(stats.weights_packed, 1);
  EXPECT_EQ(stats.packed_weight_calls, 8 - kBefore);
  EXPECT_EQ(stats.packed_weight_bytes, static_cast<int64_t>(w.nbytes()));
}

TEST_F(PackedWeightsTest, OfAllKindsOfConvolutions) {
  const auto x = Images(2, 64, 12);
  const auto dense = Weight(64, 64), one_pixel = Weight(128, 64, 1), grouped = Weight(96, 32), each = Weight(512, 1, 3);
  const auto plain = torch::randn({64, 64, 3, 3});
  const std::pair<const char*, std::function<torch::Tensor()>> steps[] = {
      {"strides", [&] { return torch::conv2d(x, dense, {}, 2, 1) + 1; }},
      {"dilation", [&] { return torch::conv2d(x, dense, {}, 1, 2, 2) + 1; }},
      {"one pixel", [&] { return torch::conv2d(x, one_pixel) + 1; }},
      {"groups", [&] { return torch::conv2d(x, grouped, {}, 1, 1, 1, 2) + 1; }},
      {"a group for each channel", [&] { return torch::conv2d(x, each, {}, 1, 1, 1, 64) + 1; }},
      {"contiguous weights", [&] { return torch::conv2d(x, plain, {}, 1, 1) + 1; }},
  };
  for (const auto& [what, step] : steps) {
    lazuli::reset();
    const lazuli::DeviceMode mode(options());
    for (int i = 0; i < kBefore + 2; ++i) Expect(step, what);
    EXPECT_EQ(lazuli::stats().packed_weight_calls, 2) << what;
  }
}

TEST_F(PackedWeightsTest, AnyChangeIsSeen) {
  const auto x = Images(2, 32);
  auto w = Weight(48, 32);
  const lazuli::DeviceMode mode(options());
  const std::pair<const char*, std::function<void()>> changes[] = {
      {"in place", [&] { w.mul_(2); }},
      {"past the version counter", [&] { w.detach().data().add_(1); }},
      {"one element", [&] { w.data()[3][5][1][2] = 100; }},
      {"through a pointer", [&] { w.mutable_data_ptr<float>()[77] += 50; }},
      {"eagerly",
       [&] {
         const EagerScope eager;
         w.neg_();
       }},
      {"another tensor", [&] { w = Weight(48, 32); }},
  };
  int64_t packed = 0;
  for (const auto& [what, change] : changes) {
    // Long enough for weights to be looked at again after a change.
    for (int i = 0; i < 80; ++i) Expect([&] { return torch::conv2d(x, w, {}, 1, 1).relu(); }, what);
    EXPECT_EQ(lazuli::stats().weights_packed, ++packed) << "before " << what;
    change();
    Expect([&] { return torch::conv2d(x, w, {}, 1, 1).relu(); }, what);
  }
}

TEST_F(PackedWeightsTest, NotInTraining) {
  const auto x = Images(2, 32);
  auto w = Weight(48, 32).requires_grad_();
  const lazuli::DeviceMode mode(options());
  const at::AutoGradMode grad(true);
  for (int i = 0; i < 30; ++i) {
    const auto loss = torch::conv2d(x, w, {}, 1, 1).relu().mean();
    loss.backward();
    const torch::NoGradGuard no_grad;
    w.sub_(w.grad(), 0.1);
    w.mutable_grad().reset();
  }
  EXPECT_EQ(lazuli::stats().weights_packed, 0);
}

TEST_F(PackedWeightsTest, OneCopyForAllPrograms) {
  const auto few = Images(2, 32), many = Images(5, 32), w = Weight(48, 32);
  const lazuli::DeviceMode mode(options());
  for (int i = 0; i < 8; ++i) {
    for (const auto& x : {few, many}) Expect([&] { return torch::conv2d(x, w, {}, 1, 1).relu(); });
  }
  EXPECT_EQ(lazuli::stats().weights_packed, 1);
  EXPECT_EQ(lazuli::stats().packed_weight_calls, 8 - kBefore);
}

TEST_F(PackedWeightsTest, GoneWithTheWeights) {
  const auto x = Images(2, 32);
  const lazuli::DeviceMode mode(options());
  auto w = Weight(48, 32);
  for (int i = 0; i < 5; ++i) Expect([&] { return torch::conv2d(x, w, {}, 1, 1).relu(); });
  EXPECT_GT(lazuli::stats().packed_weight_bytes, 0);
  w = torch::Tensor();
  const auto other = Weight(64, 32);
  for (int i = 0; i < 2; ++i) Expect([&] { return torch::conv2d(x, other, {}, 1, 1).relu(); });
  EXPECT_EQ(lazuli::stats().packed_weight_bytes, 0);
}

TEST_F(PackedWeightsTest, NotWhereItIsOfNoUse) {
  const auto last = Images(2, 32), w = Weight(48, 32);
  const auto first = torch::randn({2, 32, 9, 9});
  const std::pair<const torch::Tensor*, Options> cases[] = {{&first, options()},
                                                            {&last, options().pack_weights(false)},
                                                            {&last, options().precision("strict")},
                                                            {&last, options().backend("aten")}};
  for (const auto& [x, given] : cases) {
    const lazuli::DeviceMode mode(given);
    for (int i = 0; i < 6; ++i) Expect([&, x = x] { return torch::conv2d(*x, w, {}, 1, 1).relu(); });
  }
  EXPECT_EQ(lazuli::stats().weights_packed, 0);
}

}  // namespace
}  // namespace lazuli::testing
