// Kernels of long traces are compiled when these come for the first time, in the background, so that a loop has them in its second round.
#include <torch/torch.h>

#include "tests/support/gpu_modes.h"

namespace lazuli::testing {
namespace {

class GpuForeseenTest : public OnGpuTest {
 protected:
  static Options InBackground() { return Options().disk_cache(false).async(true); }

  static Tensors LongStep(const torch::Tensor& x) {
    torch::Tensor y = x;
    for (int i = 0; i < 40; ++i) y = y * 1.01 + 0.5;
    return {y, torch::softmax(y, -1)};
  }
  // Runs it to its end, and waits for what it has compiled.
  static Tensors RunLongStep(const torch::Tensor& x) {
    Tensors results = LongStep(x);
    lazuli::sync();
    lazuli::wait_for_compiles();
    return results;
  }
};

TEST_F(GpuForeseenTest, KernelsAreThereWhenTheTraceComesAgain) {
  const auto x = torch::randn({64, 100}, OnGpu());
  const DeviceMode mode(InBackground());
  const StatsDelta first;
  RunLongStep(x);
  EXPECT_GE(first.of(&Stats::kernels_compiled), 1);
  EXPECT_EQ(first.of(&Stats::programs_compiled), 0);
  const StatsDelta second;
  RunLongStep(x);
  EXPECT_EQ(second.of(&Stats::kernels_compiled), 0);
  EXPECT_GE(second.of(&Stats::kernel_cache_hits), 1);
  EXPECT_EQ(second.of(&Stats::programs_compiled), 1);
  const StatsDelta third;
  const Tensors lazy = RunLongStep(x), eager = [&] {
    const EagerScope scope;
    return LongStep(x);
  }();
  EXPECT_GE(third.of(&Stats::kernel_launches), 1);
  for (size_t i = 0; i < eager.size(); ++i) ExpectSame(eager[i], lazy[i], /*exact=*/false, "result " + std::to_string(i));
}

TEST_F(GpuForeseenTest, ShortTracesAreNot) {
  const auto x = torch::randn({64, 100}, OnGpu());
  const DeviceMode mode(InBackground());
  const StatsDelta first;
  const auto y = x * 2 + 1;
  lazuli::sync();
  lazuli::wait_for_compiles();
  EXPECT_EQ(first.of(&Stats::kernels_compiled), 0);
}

// A program whose traces never come again does not compile for ever.
TEST_F(GpuForeseenTest, InVainOnlyAFewTimes) {
  const auto x = torch::randn({64, 100}, OnGpu());
  const DeviceMode mode(InBackground().dynamic("0"));
  int compiled = 0;
  for (int more = 0; more < 8; ++more) {
    const StatsDelta one;
    torch::Tensor y = x;
    for (int i = 0; i < 40 + more; ++i) y = y * 1.01 + 0.5;
    lazuli::sync();
    lazuli::wait_for_compiles();
    compiled += one.of(&Stats::kernels_compiled) > 0 ? 1 : 0;
  }
  EXPECT_EQ(compiled, 3);
}

}  // namespace
}  // namespace lazuli::testing
