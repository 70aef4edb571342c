// Random numbers that the trace draws: eager's, bit for bit, and its generator's state after them.
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/torch.h>

#include "tests/support/gpu_modes.h"

namespace lazuli::testing {
namespace {

class GpuRandomTest : public OnGpuTest {
 protected:
  // Runs `program` eagerly, and then in a mode until its numbers come from programs, each time from the same seed.
  static void ExpectSameBits(const Program& program, const std::string& what, int64_t eager_draws = 0) {
    torch::manual_seed(5);
    const Tensors expected = program();
    DeviceMode mode;
    for (int run = 0; run < 5; ++run) {
      const StatsDelta stats;
      torch::manual_seed(5);
      const Tensors results = program();
      lazuli::sync();
      ASSERT_EQ(results.size(), expected.size());
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_TRUE(torch::equal(results[i], expected[i])) << what << ", run " << run << ", result " << i;
        EXPECT_EQ(results[i].strides(), expected[i].strides()) << what << ", result " << i;
      }
      if (run < 4) continue;
      EXPECT_EQ(stats.of(&Stats::eager_replays), 0) << what;
      EXPECT_GT(stats.of(&Stats::kernel_launches), 0) << what;
      EXPECT_EQ(EagerDraws(stats), eager_draws) << what;
    }
  }

  static int64_t EagerDraws(const StatsDelta& stats) {
    int64_t draws = 0;
    for (const char* op : {"aten::uniform_", "aten::normal_"}) draws += stats.fallbacks(op) + stats.uncut(op);
    return draws;
  }
};

// Fewer elements than threads, as many, and several turns of all threads.
TEST_F(GpuRandomTest, EveryKernelsNumbers) {
  for (const auto dtype : {torch::kFloat, torch::kHalf, torch::kBFloat16}) {
    for (const int64_t elements : {1, 7, 1000, 270336, 270337, 1000003, 1048576, 1048577, 5000003}) {
      const auto options = OnGpu(dtype);
      ExpectSameBits(
          [&] {
            const auto a = torch::rand({elements}, options), b = torch::randn({elements}, options);
            const auto c = torch::rand_like(a) - a, d = torch::randn_like(b);
            return Tensors{a * 2, b * 2, c, d, torch::rand({3}, options) + 1};
          },
          std::string(c10::toString(dtype)) + " " + std::to_string(elements));
    }
  }
}

// Numbers come in the order of memory.
TEST_F(GpuRandomTest, Layouts) {
  const auto image = torch::ones({2, 3, 40, 50}, OnGpu()).contiguous(torch::MemoryFormat::ChannelsLast);
  const auto matrix = torch::ones({70, 90}, OnGpu()).t();
  ExpectSameBits(
      [&] {
        const auto a = torch::rand_like(image), b = torch::randn_like(matrix), c = torch::rand_like(image.slice(3, 1, 20));
        return Tensors{a + image, b + matrix, c * 3, torch::randn({4, 5, 6}, OnGpu()).permute({2, 0, 1}) * 2};
      },
      "layouts", /*eager_draws=*/1);
}

// Among draws that run at once, dropout, and a generator that is set.
TEST_F(GpuRandomTest, ComeInProgramOrder) {
  const auto x = torch::ones({300, 40}, OnGpu());
  ExpectSameBits(
      [&] {
        const auto a = torch::rand_like(x), b = torch::dropout(x * a, 0.4, true), c = torch::randint(100, {50}, OnGpu(torch::kLong));
        const auto d = torch::randn({20}, OnGpu(torch::kDouble)), e = torch::randn_like(x) + a;
        torch::manual_seed(9);
        auto written = torch::rand({40}, OnGpu());
        written.mul_(2);
        const auto f = written + 1;
        written.uniform_();
        return Tensors{a + 1, b, c, d, e, f, written, torch::rand({7}, OnGpu())};
      },
      "program order", /*eager_draws=*/2);
}

TEST_F(GpuRandomTest, SizesThatChange) {
  DeviceMode mode;
  for (int run = 0; run < 12; ++run) {
    const int64_t rows = 100 + 700 * (run % 6);
    const auto program = [&] { return torch::randn({rows, 300}, OnGpu()).exp() + torch::rand({rows, 1}, OnGpu()); };
    torch::manual_seed(run);
    const auto result = program();
    lazuli::sync();
    torch::manual_seed(run);
    const EagerScope eager;
    EXPECT_TRUE(torch::allclose(result, program(), 1e-6, 1e-6)) << rows;
  }
}

// The numbers of a seed, of which there is a program, do not depend on the run that drew them.
TEST_F(GpuRandomTest, AndItsSeedThatChanges) {
  const auto program = [] { return Tensors{torch::randn({700, 300}, OnGpu()).exp(), torch::rand({1 << 21}, OnGpu()) + 1}; };
  DeviceMode mode;
  for (int run = 0; run < 8; ++run) {
    const StatsDelta stats;
    torch::manual_seed(run);
    const auto results = program();
    lazuli::sync();
    if (run > 4) EXPECT_EQ(EagerDraws(stats), 0);
    if (run > 4) EXPECT_EQ(stats.of(&Stats::eager_replays), 0);
    torch::manual_seed(run);
    const EagerScope eager;
    const auto expected = program();
    EXPECT_TRUE(torch::allclose(results[0], expected[0], 1e-6, 1e-6));
    EXPECT_TRUE(torch::equal(results[1], expected[1]));
  }
}

// ATen's kernel draws many, before the kernel that uses them.
TEST_F(GpuRandomTest, ManyAreDrawnWhenTheyAreUsed) {
  const auto image = torch::ones({4, 3, 512, 512}, OnGpu());
  const auto last = image.contiguous(torch::MemoryFormat::ChannelsLast);
  ExpectSameBits(
      [&] {
        const auto a = torch::rand_like(image), b = torch::randn_like(last), c = torch::rand_like(image.slice(2, 1, 500));
        return Tensors{a + image, b * last, c * 3, torch::randn({1 << 11, 1 << 10}, OnGpu(torch::kHalf)).t() * 2};
      },
      "many", /*eager_draws=*/1);

  const auto weight = torch::eye(1 << 11, OnGpu()) * 0.5;
  torch::mm(weight, weight);  // cuBLAS's workspace is there.
  c10::DeviceAllocator* const allocator = c10::getDeviceAllocator(c10::kCUDA);
  DeviceMode mode;
  for (int run = 0; run < 6; ++run) {
    torch::cuda::synchronize();
    allocator->resetPeakStats(0);
    const int64_t before = allocator->getDeviceStats(0).allocated_bytes[0].current;
    auto x = torch::zeros({1 << 11, 1 << 11}, OnGpu());
    for (int i = 0; i < 6; ++i) x = torch::mm(x, weight) + torch::rand({1 << 11, 1 << 11}, OnGpu());
    EXPECT_NEAR(x.mean().item<float>(), 0.984, 0.01);
    const int64_t peak = allocator->getDeviceStats(0).allocated_bytes[0].peak - before;
    if (run == 5) EXPECT_LE(peak, 6 * (int64_t{1} << 24) + (1 << 20));
  }
}

// Numbers that only go into a sum are never stored.
TEST_F(GpuRandomTest, AreNotStoredWhereOneKernelUsesThem) {
  constexpr int64_t kElements = int64_t{1} << 20;
  const auto step = [&] { return (torch::randn({kElements}, OnGpu()) * 0.2 - 0.02).exp().sub_(1).clamp_min(0).mean(); };
  c10::DeviceAllocator* const allocator = c10::getDeviceAllocator(c10::kCUDA);
  torch::manual_seed(3);
  const auto expected = step().item<float>();
  DeviceMode mode;
  for (int run = 0; run < 6; ++run) {
    torch::cuda::synchronize();
    allocator->resetPeakStats(0);
    const int64_t before = allocator->getDeviceStats(0).allocated_bytes[0].current;
    torch::manual_seed(3);
    EXPECT_NEAR(step().item<float>(), expected, 1e-6f);
    if (run == 5) EXPECT_LT(allocator->getDeviceStats(0).allocated_bytes[0].peak - before, kElements);
  }
}

}  // namespace
}  // namespace lazuli::testing
