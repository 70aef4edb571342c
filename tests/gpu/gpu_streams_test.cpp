// What waits for a GPU's work comes after what was recorded before it. All are skipped without a GPU.
#include <c10/core/StreamGuard.h>
#include <torch/torch.h>

#include "runtime/cuda_driver.h"
#include "runtime/device.h"
#include "tests/gpu/program/cuda_calls.h"
#include "tests/support/gpu_modes.h"

namespace lazuli::testing {
namespace {

class GpuStreamsTest : public OnGpuTest {
 protected:
  static torch::Tensor Ones() { return torch::ones({1000}, torch::TensorOptions().device(torch::kCUDA)); }
  static const torch::Device& Gpu() {
    static const torch::Device gpu(torch::kCUDA, 0);
    return gpu;
  }
  static void* HandleOf(const c10::Stream& stream) { return runtime::HandleOf(stream); }

  // What is pending when `wait` is called is launched by then, for `cause`.
  static void ExpectLaunchedBy(const std::function<void()>& wait, const std::string& cause) {
    const DeviceMode mode{Options()};
    for (int i = 0; i < 4; ++i) {
      const auto x = Ones() * i;
      const StatsDelta delta;
      wait();
      EXPECT_EQ(delta.of(&Stats::traces), 1) << cause << " " << i;
      EXPECT_EQ(delta.cuts(cause), 1) << cause << " " << i;
      EXPECT_EQ(x[7].item<float>(), static_cast<float>(i));
      const StatsDelta nothing;
      wait();
      EXPECT_EQ(nothing.of(&Stats::traces), 0) << cause << " with nothing pending";
    }
  }
};

TEST_F(GpuStreamsTest, WaitingForADeviceLaunches) {
  ExpectLaunchedBy([] { torch::cuda::synchronize(); }, "synchronize");
  ExpectLaunchedBy([] { EXPECT_EQ(WaitForDevice(), 0); }, "synchronize");
}

TEST_F(GpuStreamsTest, WhatComesAfterAStreamsWorkLaunches) {
  void* const stream = HandleOf(runtime::CurrentStream(Gpu()));
  ExpectLaunchedBy([=] { EXPECT_EQ(WaitForStream(stream), 0); }, "synchronize");
  ExpectLaunchedBy([] { runtime::CurrentStream(Gpu()).synchronize(); }, "synchronize");
  ExpectLaunchedBy([] { runtime::CurrentStream(Gpu()).query(); }, "query");
  ExpectLaunchedBy([=] { EXPECT_EQ(RecordEvent(stream), 0); }, "event");
  ExpectLaunchedBy([=] { QueryStream(stream); }, "query");
  ExpectLaunchedBy(
      [=] {
        EXPECT_EQ(CallFromStream(
                      stream, [](void*) {}, nullptr),
                  0);
      },
      "host_function");
  torch::cuda::synchronize();
}

TEST_F(GpuStreamsTest, OtherStreamsAndProcessorsWait) {
  const c10::Stream other = runtime::NewStream(Gpu());
  const DeviceMode mode{Options()};
  const auto x = Ones() * 3;
  const StatsDelta delta;
  EXPECT_EQ(WaitForStream(HandleOf(other)), 0);
  EXPECT_EQ(RecordEvent(HandleOf(other)), 0);
  EXPECT_EQ(delta.of(&Stats::traces), 0);
  torch::cuda::synchronize();
  EXPECT_EQ(delta.of(&Stats::traces), 1);
  const auto on_cpu = torch::ones({10}) * 2;
  torch::cuda::synchronize();
  EXPECT_EQ(delta.of(&Stats::traces), 1);
  EXPECT_EQ((x.cpu() + on_cpu[0]).sum().item<float>(), 5000);
}

// What a program orders by events and then uses on another stream.
TEST_F(GpuStreamsTest, EventsOrderStreams) {
  const c10::Stream side = runtime::NewStream(Gpu());
  const auto program = [&] {
    Tensors all;
    for (int i = 0; i < 20; ++i) {
      auto x = torch::full({1 << 20}, static_cast<float>(i), torch::TensorOptions().device(torch::kCUDA));
      for (int k = 0; k < 10; ++k) x = x * 2 + 1;
      runtime::OrderStreams(runtime::CurrentStream(Gpu()), side);
      torch::Tensor on_side;
      {
        const c10::StreamGuard guard(side);
        on_side = x.sum() / 4;
      }
      runtime::OrderStreams(side, runtime::CurrentStream(Gpu()));
      all.push_back(on_side + x[5]);
    }
    return all;
  };
  const Tensors eager = program();
  const DeviceMode mode{Options()};
  ExpectSame(eager, program(), /*exact=*/false, "two streams");
}

// Full graphs forbid waiting, not events.
TEST_F(GpuStreamsTest, FullGraphs) {
  const DeviceMode mode{Options()};
  const auto x = Ones() * 3;
  {
    const FullGraph full;
    EXPECT_THROW(torch::cuda::synchronize(), c10::Error);
    EXPECT_EQ(RecordEvent(HandleOf(runtime::CurrentStream(Gpu()))), 0);
  }
  EXPECT_EQ(x[0].item<float>(), 3);
}

}  // namespace
}  // namespace lazuli::testing
