// CUDA graphs that the program captures itself. All are skipped without a GPU.
#include <torch/torch.h>

#include "runtime/cuda_graph.h"
#include "runtime/device.h"
#include "tests/support/gpu_modes.h"

namespace lazuli::testing {
namespace {

class GpuCapturesTest : public OnGpuTest {
 protected:
  // As a program does it: what `work` launches, on a stream of its own, is only captured.
  static std::unique_ptr<runtime::CudaGraph> Capture(const std::function<void()>& work) {
    const auto pool = runtime::CudaGraph::PoolOf(runtime::CurrentStream(torch::Device(torch::kCUDA, 0)));
    EXPECT_TRUE(pool.ok()) << pool.status();
    auto graph = runtime::CudaGraph::Capture(*pool, work);
    EXPECT_TRUE(graph.ok()) << graph.status();
    return *std::move(graph);
  }

  // What `program` returns, eagerly and in the mode.
  template <class Program>
  static void ExpectSameAsEagerly(const Program& program) {
    const Tensors eager = program();
    Tensors lazy;
    {
      const DeviceMode mode{Options()};
      lazy = program();
    }
    ASSERT_EQ(eager.size(), lazy.size());
    for (size_t i = 0; i < eager.size(); ++i) {
      ExpectSame(eager[i].detach().cpu(), lazy[i].detach().cpu(), /*exact=*/true, "result " + std::to_string(i));
    }
  }
};

TEST_F(GpuCapturesTest, WhatCameBeforeIsNoPartOfTheGraph) {
  ExpectSameAsEagerly([] {
    auto counter = torch::zeros({100}, OnGpu());
    counter.add_(1);  // Pending where the capture begins.
    torch::Tensor out;
    const auto graph = Capture([&] { out = counter * 2; });
    Tensors all;
    for (int i = 0; i < 3; ++i) {
      graph->Launch();
      all.push_back(out.clone());
      all.push_back(counter.clone());
    }
    return all;
  });
}

TEST_F(GpuCapturesTest, ReplaysReadAndWriteMemoryUnseen) {
  ExpectSameAsEagerly([] {
    const auto input = torch::zeros({1000}, OnGpu()), weight = torch::ones({1000}, OnGpu());
    torch::Tensor out;
    const auto graph = Capture([&] {
      out = (input * weight).relu();
      weight.sub_(out * 0.1);
    });
    Tensors all;
    for (int i = 0; i < 4; ++i) {
      input.copy_(torch::arange(1000, OnGpu()) * (i + 1));
      const auto before = weight + 1;
      graph->Launch();
      all.push_back(before);
      all.push_back(out * 2);
      all.push_back(weight[3] + 0);
    }
    return all;
  });
}

TEST_F(GpuCapturesTest, ListsOfTensorsAreCapturedAsOne) {
  ExpectSameAsEagerly([] {
    const Tensors weights{torch::ones({10}, OnGpu()), torch::ones({20}, OnGpu())};
    const auto graph = Capture([&] {
      at::_foreach_add_(weights, 1);
      at::_foreach_mul_(weights, weights);
    });
    at::_foreach_add_(weights, 3);
    graph->Launch();
    at::_foreach_sub_(weights, 1);
    graph->Launch();
    return weights;
  });
}

TEST_F(GpuCapturesTest, GradientsInAGraph) {
  ExpectSameAsEagerly([] {
    const auto x = torch::ones({8, 16}, OnGpu());
    auto w = torch::full({16, 4}, 0.5, OnGpu()).requires_grad_();
    w.mutable_grad() = torch::zeros_like(w);
    const auto step = [&] { (x.mm(w)).pow(2).mean().backward(); };
    step();
    const auto graph = Capture([&] {
      w.grad().zero_();
      step();
    });
    const torch::NoGradGuard no_grad;
    Tensors all;
    for (int i = 0; i < 3; ++i) {
      x.fill_(i);
      graph->Launch();
      w.sub_(w.grad(), 0.01);
      all.push_back(w.clone());
      all.push_back(w.grad() * 2);
    }
    return all;
  });
}

// LibTorch tells a graph where its random numbers begin by writing to memory of the generator's before each replay.
TEST_F(GpuCapturesTest, RandomNumbersGoOn) {
  ExpectSameAsEagerly([] {
    torch::manual_seed(4);
    const auto x = torch::ones({1000}, OnGpu());
    torch::Tensor drawn, dropped;
    const auto graph = Capture([&] {
      drawn = torch::rand({1000}, OnGpu());
      dropped = torch::dropout(x, 0.3, true);
    });
    Tensors all;
    for (int i = 0; i < 3; ++i) {
      if (i == 2) torch::manual_seed(9);
      graph->Launch();
      all.push_back(drawn.clone());
      all.push_back(dropped * 2);
      all.push_back(torch::dropout(x * 3, 0.4, true));
    }
    return all;
  });
}

TEST_F(GpuCapturesTest, DropoutAlone) {
  ExpectSameAsEagerly([] {
    torch::manual_seed(4);
    const auto x = torch::ones({1000}, OnGpu());
    torch::Tensor dropped;
    const auto graph = Capture([&] { dropped = torch::dropout(torch::dropout(x, 0.3, true), 0.2, true); });
    Tensors all;
    for (int i = 0; i < 4; ++i) {
      if (i == 3) torch::manual_seed(9);
      graph->Launch();
      all.push_back(dropped.clone());
      x.copy_(torch::dropout(x, 0.1, true));
    }
    return all;
  });
}

TEST_F(GpuCapturesTest, OtherMemoryIsRecordedAsBefore) {
  const DeviceMode mode{Options()};
  const auto x = torch::ones({64}, OnGpu());
  torch::Tensor out;
  const auto graph = Capture([&] { out = x + 1; });
  const StatsDelta delta;
  const auto y = torch::ones({64}, OnGpu()) * 3;
  EXPECT_EQ(delta.of(&Stats::ops_recorded), 0);
  lazuli::sync();
  EXPECT_EQ(delta.of(&Stats::ops_recorded), 2);
  const auto z = x * 3;
  EXPECT_EQ(delta.of(&Stats::ops_recorded), 2);
  EXPECT_EQ(delta.of(&Stats::traces), 1) << "it ran when it was called";
  EXPECT_EQ(z.sum().item<float>(), 192);
}

}  // namespace
}  // namespace lazuli::testing
