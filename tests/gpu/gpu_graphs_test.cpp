// CUDA graphs of programs (mode reduce-overhead). All are skipped without a GPU.
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "runtime/cuda_graph.h"
#include "runtime/device.h"
#include "tests/support/gpu_modes.h"

namespace lazuli::testing {
namespace {

class GpuGraphsTest : public OnGpuTest {
 protected:
  static Options Graphs() { return Options().mode("reduce-overhead"); }
  // What `step` returns in so many rounds, all kept, eagerly or in a mode that is cut after each round.
  template <class Step>
  static Tensors Rounds(int rounds, bool lazily, const Step& step) {
    Tensors all;
    torch::manual_seed(3);
    for (int round = 0; round < rounds; ++round) {
      if (!lazily) {
        all.push_back(step(round));
        continue;
      }
      DeviceMode mode(Graphs());
      all.push_back(step(round));
      lazuli::sync();
    }
    return all;
  }
  static void ExpectEqual(const Tensors& eager, const Tensors& lazy) {
    ASSERT_EQ(eager.size(), lazy.size());
    for (size_t i = 0; i < eager.size(); ++i) {
      ExpectSame(eager[i].detach().cpu(), lazy[i].detach().cpu(), /*exact=*/false, "round " + std::to_string(i));
    }
  }
};

// Row kernels that cannot be one: five launches.
torch::Tensor Rows(const torch::Tensor& x) {
  return torch::softmax(torch::softmax(torch::softmax(torch::softmax(torch::softmax(x, 0), 1), 0), 1), 0);
}

TEST_F(GpuGraphsTest, OneGraphServesOperandsThatMove) {
  const auto x = torch::randn({64, 128}, OnGpu());
  const StatsDelta stats;
  Tensors kept;
  const auto step = [&](int round) {
    kept.push_back(torch::full({64, 128}, round, OnGpu()));
    return Rows(x + kept.back());
  };
  const Tensors eager = Rounds(8, false, step);
  const Tensors lazy = Rounds(8, true, step);
  ExpectEqual(eager, lazy);
  EXPECT_EQ(stats.of(&Stats::cudagraph_captures), 1);
  EXPECT_GE(stats.of(&Stats::cudagraph_launches), 6);
  EXPECT_EQ(stats.of(&Stats::cudagraph_failures), 0);
}

TEST_F(GpuGraphsTest, ResultsThatAreKeptStayWhatTheyWere) {
  const auto w = torch::randn({128, 128}, OnGpu());
  const auto x = torch::randn({32, 128}, OnGpu());
  const StatsDelta stats;
  const auto step = [&](int round) {
    auto h = x;
    for (int layer = 0; layer < 4; ++layer) h = torch::tanh(torch::matmul(h, w) * 0.1) * (round + 1);
    return h;
  };
  const Tensors eager = Rounds(10, false, step);
  ExpectEqual(eager, Rounds(10, true, step));
  EXPECT_GE(stats.of(&Stats::cudagraph_launches), 1);
  EXPECT_EQ(stats.of(&Stats::cudagraph_failures), 0);
}

TEST_F(GpuGraphsTest, NumbersAndOffsetsMayDiffer) {
  const auto data = torch::randn({10, 64, 128}, OnGpu());
  const StatsDelta stats;
  const auto step = [&](int round) { return Rows(data[round] * (0.5 + round)); };
  const Tensors eager = Rounds(10, false, step);
  ExpectEqual(eager, Rounds(10, true, step));
  EXPECT_EQ(stats.of(&Stats::cudagraph_captures), 1);
  EXPECT_GE(stats.of(&Stats::cudagraph_launches), 8);
}

TEST_F(GpuGraphsTest, EachSizeHasItsOwn) {
  const auto data = torch::randn({90, 128}, OnGpu());
  const StatsDelta stats;
  const auto step = [&](int round) { return Rows(data.narrow(0, 0, 20 + round % 3 * 30)); };
  const Tensors eager = Rounds(18, false, step);
  ExpectEqual(eager, Rounds(18, true, step));
  EXPECT_GE(stats.of(&Stats::cudagraph_captures), 2);
  EXPECT_GE(stats.of(&Stats::cudagraph_launches), 6);
}

// The loss of each of so many steps, read at once, eagerly or in a mode with `options`; then what `finish` adds of the model.
template <class Optimizer, class Finish>
Tensors Losses(int steps, const std::optional<Options>& options, const Optimizer& make_optimizer, const Finish& finish) {
  torch::manual_seed(7);
  torch::nn::Sequential model(torch::nn::Linear(64, 128), torch::nn::GELU(), torch::nn::LayerNorm(torch::nn::LayerNormOptions({128})),
                              torch::nn::Linear(128, 10));
  model->to(torch::kCUDA);
  auto optimizer = make_optimizer(model->parameters());
  Tensors losses;
  std::optional<DeviceMode> mode;
  if (options.has_value()) mode.emplace(*options);
  for (int step = 0; step < steps; ++step) {
    const auto x = torch::randn({32, 64}, torch::kCUDA);
    const auto target = torch::randint(10, {32}, torch::TensorOptions(torch::kLong).device(torch::kCUDA));
    optimizer.zero_grad();
    const auto loss = torch::nn::functional::cross_entropy(model->forward(x), target);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.detach().cpu());
  }
  finish(model, &losses);
  return losses;
}

TEST_F(GpuGraphsTest, Trains) {
  const auto train = [](const std::optional<Options>& options) {
    return Losses(
        12, options, [](const Tensors& all) { return torch::optim::AdamW(all, torch::optim::AdamWOptions(1e-3)); },
        [](torch::nn::Sequential& model, Tensors* losses) {
          for (const auto& p : model->parameters()) losses->push_back(p.detach().cpu());
        });
  };
  const StatsDelta stats;
  const Tensors eager = train(std::nullopt);
  ExpectEqual(eager, train(Graphs()));
  EXPECT_GE(stats.of(&Stats::cudagraph_launches), 4);
  EXPECT_EQ(stats.of(&Stats::cudagraph_failures), 0);
}

// Which way a trial tries, and for how long, goes by the clock, which other processes on the machine disturb: again from the start, a few
// times, until `run` says that it has seen what there is to see.
template <class Run>
bool IsSeen(const Run& run) {
  constexpr int kAttempts = 5;
  for (int attempt = 0; attempt < kAttempts && !::testing::Test::HasFailure(); ++attempt) {
    if (run()) return true;
    lazuli::reset();
  }
  return false;
}

// A loop that waits for a result of each round tries both ways, and goes on with the faster one; values do not depend on it.
TEST_F(GpuGraphsTest, HeadStartsHaveATrialAgainstGraphs) {
  const auto train = [](const std::optional<Options>& options) {
    return Losses(
        90, options, [](const Tensors& all) { return torch::optim::SGD(all, torch::optim::SGDOptions(1e-2)); },
        [](torch::nn::Sequential&, Tensors*) {});
  };
  const Tensors eager = train(std::nullopt);
  EXPECT_TRUE(IsSeen([&] {
    const StatsDelta stats;
    ExpectEqual(eager, train(Graphs().head_start("1")));
    EXPECT_EQ(stats.of(&Stats::cudagraph_failures), 0);
    EXPECT_LE(stats.of(&Stats::cudagraphs_dropped), 2);
    return stats.of(&Stats::head_starts) >= 6 && stats.of(&Stats::cudagraph_launches) >= 12;
  })) << "the trial's own";
}

// What comes of `step` in so many rounds, each looked at when it is there, eagerly or with graphs and head starts.
template <class Step>
Tensors RoundsLookedAt(int rounds, bool lazily, const Options& options, Step step) {
  torch::manual_seed(11);
  std::optional<DeviceMode> mode;
  if (lazily) mode.emplace(options);
  Tensors all;
  for (int round = 0; round < rounds; ++round) all.push_back(step(round).detach().cpu());
  return all;
}

// While the trial has its 18 head starts, several graphs a round are launched, of programs with enough steps for several parts: so many
// more than rounds. A thread that launches may be woken too late for some.
template <class Step>
void ExpectPartsAsEagerly(const Options& options, const Step& make_step, int more_graphs = 12) {
  constexpr int kRounds = 90;
  const Tensors eager = RoundsLookedAt(kRounds, false, options, make_step());
  int64_t head_starts = 0, launches = 0;
  EXPECT_TRUE(IsSeen([&] {
    const StatsDelta stats;
    const Tensors lazy = RoundsLookedAt(kRounds, true, options, make_step());
    ExpectSame(eager, lazy, /*exact=*/false, "rounds");
    EXPECT_EQ(stats.of(&Stats::cudagraph_failures), 0);
    head_starts = stats.of(&Stats::head_starts);
    launches = stats.of(&Stats::cudagraph_launches);
    return head_starts >= 6 && launches >= kRounds + more_graphs;
  })) << head_starts
      << " head starts, " << launches << " launches of graphs";
}

TEST_F(GpuGraphsTest, PartsOfADeepNetworkRunAhead) {
  for (const char* thread : {"0", "1"}) {
    lazuli::reset();  // The trial's outcome, too.
    ExpectPartsAsEagerly(Graphs().head_start("1").launch_thread(thread), [] {
      torch::manual_seed(5);
      constexpr int kLayers = 40;
      const auto w = torch::randn({kLayers, 64, 64}, OnGpu(torch::kDouble)) * 0.1;
      return [w](int round) {
        auto h = torch::full({32, 64}, 0.01 * round, OnGpu(torch::kDouble));
        for (int layer = 0; layer < kLayers; ++layer) h = h + torch::softmax(torch::matmul(h, w[layer]), -1).cumsum(-1);
        return h * (round + 1);
      };
    });
  }
}

// What attention's kernels make is LibTorch's, and read by parts that come later. Where addresses change now and then, some parts are
// captured anew after others, and fewer rounds have graphs.
TEST_F(GpuGraphsTest, PartsReadWhatLibraryCallsOfOthersMade) {
  for (const bool moves : {false, true}) {
    lazuli::reset();  // The trial's outcome, too.
    const auto make_step = [moves] {
      torch::manual_seed(6);
      const auto w = (torch::randn({64, 192}, OnGpu(torch::kHalf)) * 0.1).requires_grad_();
      return [moves, w, held = Tensors()](int round) mutable {
        if (moves && round % 5 == 3) held.push_back(torch::ones({2, 32, 64}, OnGpu(torch::kHalf)));
        auto h = torch::full({2, 32, 64}, 0.01 * (1 + round % 3), OnGpu(torch::kHalf));
        for (int layer = 0; layer < 4; ++layer) {
          const auto parts = torch::matmul(h, w).view({2, 32, 3, 2, 32}).permute({2, 0, 3, 1, 4}).unbind(0);
          h = h + at::scaled_dot_product_attention(parts[0], parts[1], parts[2]).transpose(1, 2).reshape({2, 32, 64});
        }
        const auto loss = h.to(torch::kFloat).square().mean();
        w.mutable_grad() = torch::Tensor();
        loss.backward();
        return loss.detach() + w.grad().to(torch::kFloat).abs().sum();
      };
    };
    ExpectPartsAsEagerly(Graphs().head_start("1"), make_step, /*more_graphs=*/moves ? -70 : 12);
  }
}

TEST_F(GpuGraphsTest, PartsTrainWithDropout) {
  ExpectPartsAsEagerly(Graphs().head_start("1"), [] {
    torch::manual_seed(7);
    torch::nn::Sequential model;
    for (int layer = 0; layer < 6; ++layer) {
      model->push_back(torch::nn::Linear(64, 64));
      model->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({64})));
      model->push_back(torch::nn::Dropout(0.1));
    }
    model->to(torch::kCUDA);
    auto optimizer = std::make_shared<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(1e-2).momentum(0.9));
    return [model, optimizer](int /*round*/) mutable {
      const auto x = torch::randn({32, 64}, OnGpu());
      optimizer->zero_grad();
      const auto loss = model->forward(x).square().mean();
      loss.backward();
      optimizer->step();
      return loss;
    };
  });
}

// LibTorch lets nobody else draw numbers while one thread captures, not even a thread that records nothing, and a stream has one capture at
// a time.
TEST_F(GpuGraphsTest, ThreadsCaptureAndDraw) {
  constexpr int kThreads = 4, kRounds = 12;
  const StatsDelta stats;
  std::array<std::string, kThreads + 1> errors;
  std::atomic<int> at_work{kThreads};
  const auto work = [&](int t) {
    const auto x = torch::arange(64 * (t + 1), OnGpu()).reshape({-1, 16});
    const auto weights = torch::ones({64}, OnGpu());
    for (int round = 0; round < kRounds; ++round) {
      const auto eager = Rows(x * (round + 1));
      const DeviceMode mode(Graphs());
      const auto rows = Rows(x * (round + 1));
      const auto kept = torch::dropout(torch::ones({64 * (t + 1)}, OnGpu()), 0.5, true);
      const auto drawn = torch::multinomial(weights, 8);
      lazuli::sync();
      if (!torch::allclose(rows, eager)) errors[t] += " rows of round " + std::to_string(round);
      const auto valid = kept.eq(0).logical_or(kept.eq(2)).all().logical_and(drawn.ge(0).logical_and(drawn.lt(64)).all());
      if (!valid.item<bool>()) errors[t] += " numbers of round " + std::to_string(round);
    }
  };
  const auto draw_eagerly = [&] {
    while (at_work.load() > 0) {
      const auto drawn = torch::rand({1000}, OnGpu());
      if (!drawn.ge(0).all().item<bool>()) errors[kThreads] += " a number";
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t <= kThreads; ++t) {
    threads.emplace_back([&, t] {
      try {
        t < kThreads ? work(t) : draw_eagerly();
      } catch (const std::exception& error) {
        errors[t] += error.what();
      }
      --at_work;
    });
  }
  for (auto& thread : threads) thread.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_GE(stats.of(&Stats::cudagraph_captures), 1);
  EXPECT_EQ(stats.of(&Stats::cudagraph_failures), 0);
}

TEST_F(GpuGraphsTest, ConvolutionsAndNorms) {
  const auto run = [](bool lazily) {
    torch::manual_seed(8);
    torch::nn::Sequential model(torch::nn::Conv2d(3, 16, 3), torch::nn::BatchNorm2d(16), torch::nn::ReLU(), torch::nn::Conv2d(16, 16, 3),
                                torch::nn::BatchNorm2d(16), torch::nn::ReLU(), torch::nn::AdaptiveAvgPool2d(1), torch::nn::Flatten(),
                                torch::nn::Linear(16, 10));
    model->to(torch::kCUDA);
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    const auto x = torch::randn({8, 3, 16, 16}, OnGpu());
    const auto target = torch::randint(10, {8}, OnGpu(torch::kLong));
    Tensors losses;
    std::optional<DeviceMode> mode;
    if (lazily) mode.emplace(Graphs());
    for (int step = 0; step < 8; ++step) {
      optimizer.zero_grad();
      const auto loss = torch::nn::functional::cross_entropy(model->forward(x), target);
      loss.backward();
      optimizer.step();
      losses.push_back(loss.detach().cpu());
    }
    return losses;
  };
  const StatsDelta stats;
  const Tensors eager = run(false);
  const Tensors lazy = run(true);
  ASSERT_EQ(eager.size(), lazy.size());
  // cuDNN's sums have no fixed order, and eight steps of training add to it.
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(torch::allclose(eager[i], lazy[i], 1e-2, 1e-3)) << eager[i] << lazy[i];
  EXPECT_GE(stats.of(&Stats::cudagraph_launches), 1);
}

TEST_F(GpuGraphsTest, OtherStreamsHaveTheirOwn) {
  const auto x = torch::randn({64, 128}, OnGpu());
  const auto step = [&](int round) {
    if (round % 2 == 0) return Rows(x + 1);
    const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
    const c10::Stream before = guard.getStream(x.device());
    const c10::Stream side = guard.getNewStream(x.device());
    runtime::OrderStreams(before, side);
    torch::Tensor result;
    {
      const c10::StreamGuard on_side(side);
      result = Rows(x + 1);
      lazuli::sync();
    }
    runtime::OrderStreams(side, before);
    return result;
  };
  const StatsDelta stats;
  const Tensors eager = Rounds(8, false, [&](int) { return Rows(x + 1); });
  ExpectEqual(eager, Rounds(8, true, step));
  EXPECT_GE(stats.of(&Stats::cudagraph_launches), 2);
}

TEST_F(GpuGraphsTest, WhatCannotBeCapturedLeavesLibTorchWell) {
  const auto x = torch::randn({1000}, OnGpu());
  const c10::Stream stream = runtime::CurrentStream(x.device());
  const auto pool = runtime::CudaGraph::PoolOf(stream);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const auto synchronizes = runtime::CudaGraph::Capture(*pool, [&] { runtime::CurrentStream(x.device()).synchronize(); });
  EXPECT_EQ(synchronizes.status().code(), absl::StatusCode::kFailedPrecondition);
  const auto throws = runtime::CudaGraph::Capture(*pool, [&] {
    const auto y = x + 1;
    TORCH_CHECK(false, "as expected");
  });
  EXPECT_EQ(throws.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(throws.status().message()).find("as expected"), std::string::npos);
  // A graph can be captured, and memory is given out and taken back as ever.
  torch::Tensor y = torch::zeros({1000}, OnGpu());
  auto graph = runtime::CudaGraph::Capture(*pool, [&] { y.add_(x * 2); });
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(torch::equal(y, torch::zeros_like(y)));
  (*graph)->Launch();
  (*graph)->Launch();
  EXPECT_TRUE(torch::allclose(y, x * 4));
  const void* freed = nullptr;
  {
    const auto temporary = torch::empty({1 << 20}, OnGpu());
    freed = temporary.data_ptr();
  }
  EXPECT_EQ(torch::empty({1 << 20}, OnGpu()).data_ptr(), freed);
}

TEST_F(GpuGraphsTest, SmallProgramsHaveNone) {
  const auto x = torch::randn({64, 128}, OnGpu());
  const StatsDelta stats;
  const auto step = [&](int) { return torch::softmax(x, 0) + 1; };
  const Tensors eager = Rounds(4, false, step);
  ExpectEqual(eager, Rounds(4, true, step));
  EXPECT_EQ(stats.of(&Stats::cudagraph_captures), 0);
  EXPECT_EQ(stats.of(&Stats::cudagraph_failures), 0);
}

}  // namespace
}  // namespace lazuli::testing
