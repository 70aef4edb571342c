// Programs with tensors on a GPU, compared with eager mode, with what was compiled and what was not. All are skipped without a GPU.
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include "tests/support/gpu_modes.h"

namespace lazuli::testing {
namespace {

class GpuTest : public OnGpuTest {
 protected:
  // Runs `program` eagerly and three times in a mode, each from the same seed; results agree in device, layout and values.
  static void ExpectSameAsEager(const Program& program, const Options& options = {}) {
    torch::manual_seed(5);
    const Tensors eager = program();
    for (int run = 0; run < 3; ++run) {
      Tensors lazy;
      {
        DeviceMode mode(options);
        torch::manual_seed(5);
        lazy = program();
        lazuli::sync();
      }
      ASSERT_EQ(eager.size(), lazy.size());
      for (size_t i = 0; i < eager.size(); ++i) {
        EXPECT_EQ(eager[i].device(), lazy[i].device());
        EXPECT_EQ(eager[i].strides(), lazy[i].strides());
        ExpectSame(eager[i].detach().cpu(), lazy[i].detach().cpu(), /*exact=*/false, "result " + std::to_string(i));
      }
    }
  }
};

TEST_F(GpuTest, ChainIsOneKernel) {
  const auto x = torch::randn({1000, 33}, OnGpu());
  const StatsDelta stats;
  ExpectSameAsEager([&] { return Tensors{((x * 2 + 1).relu() - x) * x}; });
  EXPECT_EQ(stats.of(&Stats::kernels_compiled), 1);
  EXPECT_EQ(stats.of(&Stats::kernel_launches), 3);
  EXPECT_EQ(stats.of(&Stats::aten_calls), 0);
  EXPECT_EQ(stats.of(&Stats::compile_failures), 0);
}

TEST_F(GpuTest, ResultsAreOnTheGpuBeforeTheyAreComputed) {
  const auto x = torch::randn({5}, OnGpu());
  DeviceMode mode;
  const auto y = x + 1;
  EXPECT_EQ(y.device(), x.device());
  EXPECT_TRUE(y.is_cuda());
  EXPECT_TRUE(torch::equal(y.cpu(), x.cpu() + 1));
}

TEST_F(GpuTest, RowsAreOneKernel) {
  const auto x = torch::randn({64, 500}, OnGpu());
  const StatsDelta stats;
  ExpectSameAsEager([&] { return Tensors{torch::softmax(x * 0.5, -1) * 2, torch::log_softmax(x, 0)}; });
  EXPECT_GE(stats.of(&Stats::kernel_launches), 6);
  EXPECT_EQ(stats.of(&Stats::compile_failures), 0);
}

TEST_F(GpuTest, BiasGradientsComeWithWhatTheySum) {
  for (const auto dtype : {torch::kFloat, torch::kBFloat16}) {
    const auto grad = torch::rand({3000, 520}, OnGpu(dtype)), x = torch::randn({3000, 520}, OnGpu(dtype));
    const StatsDelta stats;
    ExpectSameAsEager([&] {
      const auto passed = at::threshold_backward(grad, x, 0);
      return Tensors{passed, passed.sum(0)};
    });
    EXPECT_EQ(stats.of(&Stats::kernel_launches), 3) << "one kernel in each run, though two functions";
    EXPECT_EQ(stats.of(&Stats::aten_calls), 0);
  }
}

// Norms with what is around them, and their gradients, in every type.
TEST_F(GpuTest, NormsAreKernels) {
  for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
    torch::manual_seed(3);
    const auto x = torch::randn({64, 96}, OnGpu(dtype)), w = torch::rand({96}, OnGpu(dtype)), b = torch::randn({96}, OnGpu(dtype)),
               image = torch::randn({4, 16, 5, 7}, OnGpu(dtype)), scale = torch::rand({16}, OnGpu(dtype));
    const auto with_gradients = [](const torch::Tensor& y, const Tensors& inputs) {
      Tensors results = torch::autograd::grad({y}, inputs, {torch::ones_like(y) * 0.5});
      results.push_back(y.detach());
      return results;
    };
    const std::vector<Program> programs = {[&] {
                                             const auto a = x.detach().requires_grad_(), c = w.detach().requires_grad_(),
                                                        d = b.detach().requires_grad_();
                                             return with_gradients(torch::layer_norm(a + 1, {96}, c, d) * a, {a, c, d});
                                           },
                                           [&] {
                                             const auto a = x.detach().requires_grad_(), c = w.detach().requires_grad_();
                                             return with_gradients(torch::rms_norm(a + 1, {96}, c, 1e-6) * a, {a, c});
                                           },
                                           [&] {
                                             const auto a = image.detach().requires_grad_(), c = scale.detach().requires_grad_();
                                             return with_gradients(torch::group_norm(a, 4, c) * a, {a, c});
                                           }};
    for (const Program& program : programs) ExpectSameAsEager(program);  // Some operators are observed.
    const StatsDelta stats;
    for (const Program& program : programs) ExpectSameAsEager(program);
    EXPECT_GT(stats.of(&Stats::kernel_launches), 0) << dtype;
    EXPECT_EQ(stats.of(&Stats::aten_calls), 0) << dtype;
    EXPECT_EQ(stats.of(&Stats::compile_failures), 0) << dtype;
  }
}

// The gradient of the logits' slice is written over the logits, by kernels that have a row to a warp, to a block, and to several blocks.
TEST_F(GpuTest, GradientsOfSlicedLogits) {
  for (const auto& [batch, time, classes] :
       {std::tuple(4, 33, 24), std::tuple(3, 17, 1000), std::tuple(2, 9, 4999), std::tuple(1, 4, 70001)}) {
    for (const auto dtype : {torch::kFloat, torch::kBFloat16}) {
      torch::manual_seed(batch);
      const auto x = torch::randn({batch, time, 16}, OnGpu(dtype)), w = torch::randn({16, classes}, OnGpu(dtype));
      const auto targets = torch::randint(classes, {batch * (time - 1)}, OnGpu(torch::kLong));
      const StatsDelta stats;
      ExpectSameAsEager([&] {
        const auto a = x.detach().requires_grad_(), b = w.detach().requires_grad_();
        const auto logits = a.matmul(b).slice(1, 0, -1).reshape({-1, w.size(1)}).to(torch::kFloat);
        torch::nn::functional::cross_entropy(logits, targets).backward();
        return Tensors{a.grad().to(torch::kFloat), b.grad().to(torch::kFloat)};
      });
      EXPECT_GT(stats.of(&Stats::kernel_launches), 0);
      EXPECT_EQ(stats.of(&Stats::compile_failures), 0);
    }
  }
}

TEST_F(GpuTest, TrainsAsEagerDoes) {
  const StatsDelta stats;
  ExpectSameAsEager([&] {
    torch::nn::Sequential model(torch::nn::Linear(20, 64), torch::nn::GELU(), torch::nn::LayerNorm(torch::nn::LayerNormOptions({64})),
                                torch::nn::Linear(64, 4));
    model->to(torch::kCUDA);
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3));
    const auto x = torch::randn({32, 20}, OnGpu());
    const auto target = torch::randint(4, {32}, OnGpu(torch::kLong));
    torch::Tensor loss;
    for (int step = 0; step < 6; ++step) {
      optimizer.zero_grad();
      loss = torch::nn::functional::cross_entropy(model->forward(x), target);
      loss.backward();
      optimizer.step();
    }
    Tensors results = {loss};
    for (const auto& p : model->parameters()) results.push_back(p);
    return results;
  });
  EXPECT_GT(stats.of(&Stats::kernel_launches), 0);
  EXPECT_EQ(stats.of(&Stats::compile_failures), 0);
}

TEST_F(GpuTest, CopiesBetweenDevicesKeepOrder) {
  ExpectSameAsEager([] {
    auto host = torch::arange(10, torch::kFloat);
    auto device = (host * 2).to(torch::kCUDA) + 1;
    host.add_(1);
    auto back = device.cpu() * 3;
    auto filled = torch::empty({10}, OnGpu());
    filled.copy_(host);
    host.mul_(2);
    device.copy_(filled * 2);
    return Tensors{host, device, back, filled};
  });
}

TEST_F(GpuTest, NumbersOnTheCpuMeetTensorsOnTheGpu) {
  const auto x = torch::randn({7}, OnGpu());
  ExpectSameAsEager([&] {
    const auto two = torch::tensor(2.0) * 1.5;
    return Tensors{x * two, x + torch::tensor(3), torch::where(x > 0, x, torch::tensor(0.5f))};
  });
}

// One trace has both; what fills the memory of one is not read by the other.
TEST_F(GpuTest, MemoryIsFilledOnEachDevice) {
  const auto x = torch::randn({40}, OnGpu()), y = torch::randn({40});
  const StatsDelta stats;
  ExpectSameAsEager([&] {
    return Tensors{torch::ones_like(x) - x, torch::ones_like(y) - y, torch::zeros({40}) + y, torch::zeros({40}, OnGpu()) + x};
  });
  EXPECT_EQ(stats.of(&Stats::compile_failures), 0);
  EXPECT_GT(stats.of(&Stats::kernel_launches), 0);
}

TEST_F(GpuTest, PinnedMemoryIsPinned) {
  DeviceMode mode;
  EXPECT_TRUE(torch::empty({100}, torch::TensorOptions().pinned_memory(true)).is_pinned());
}

TEST_F(GpuTest, AnotherStreamSeesWhatWasRecorded) {
  const c10::impl::VirtualGuardImpl gpu(c10::kCUDA);
  const auto x = torch::ones({1 << 20}, OnGpu());
  ExpectSameAsEager([&] {
    auto y = x;
    for (int i = 0; i < 20; ++i) y = y * 1.25 + 1;
    const c10::Stream other = gpu.getStreamFromGlobalPool(x.device());
    gpu.synchronizeStream(gpu.getStream(x.device()));
    torch::Tensor z;
    {
      const c10::StreamGuard guard(other);
      z = y * 2;
    }
    gpu.synchronizeStream(other);
    return Tensors{y, z};
  });
}

TEST_F(GpuTest, SizesBecomeSymbols) {
  const StatsDelta stats;
  DeviceMode mode;
  for (const int64_t rows : {8, 12, 20, 33, 70}) {
    const auto x = torch::randn({rows, 40}, OnGpu());
    const auto y = (torch::softmax(x, -1) * 2).sum(0);
    const auto got = y.cpu();
    const EagerScope eager;
    ExpectSame((torch::softmax(x.cpu(), -1) * 2).sum(0), got, /*exact=*/false, "rows " + std::to_string(rows));
  }
  EXPECT_EQ(stats.of(&Stats::dynamic_programs), 1);
}

TEST_F(GpuTest, TooLittleMemoryIsTheProgramsError) {
  DeviceMode mode;
  EXPECT_THROW(
      {
        const auto x = torch::ones({1LL << 42}, OnGpu(torch::kByte));
        lazuli::sync();
      },
      c10::Error);
  EXPECT_EQ((torch::ones({3}, OnGpu()) + 1).sum().item<float>(), 6);
}

TEST_F(GpuTest, DeterministicAlgorithmsAreAtens) {
  const auto index = torch::randint(10, {1000}, OnGpu(torch::kLong));
  const auto x = torch::randn({1000, 8}, OnGpu());
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  const StatsDelta stats;
  ExpectSameAsEager([&] { return Tensors{torch::zeros({10, 8}, OnGpu()).index_add(0, index, x) * 2}; });
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
  EXPECT_EQ(stats.fallbacks("aten::index_add"), 3);
}

TEST_F(GpuTest, RandomNumbersAreEagers) {
  ExpectSameAsEager([] {
    const auto x = torch::ones({1000}, OnGpu());
    return Tensors{torch::dropout(x * 2, 0.5, true), torch::rand({10}, OnGpu()), torch::randn_like(x) + x};
  });
}

TEST_F(GpuTest, OutArgumentsThatFitAreWrittenWithoutACut) {
  const StatsDelta stats;
  ExpectSameAsEager([] {
    const auto x = torch::randn({20, 7}, OnGpu());
    auto largest = torch::zeros({20, 7}, OnGpu());
    for (int step = 0; step < 3; ++step) torch::maximum_out(largest, largest, x * step);
    return Tensors{largest + 1};
  });
  EXPECT_EQ(stats.fallbacks("aten::maximum.out"), 0);
  DeviceMode mode;
  auto on_cpu = torch::zeros({20, 7});
  const auto x = torch::randn({20, 7}, OnGpu());
  EXPECT_THROW(torch::maximum_out(on_cpu, x, x), c10::Error);
}

TEST_F(GpuTest, DropoutDrawsEagersMaskWithoutACut) {
  const StatsDelta stats;
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kHalf}) {
    for (const double p : {0.1, 0.5, 0.9}) {
      ExpectSameAsEager([&] {
        const auto x = torch::ones({33, 70}, OnGpu(dtype)).requires_grad_();
        auto y = torch::dropout(x * 2, p, true) + 1;
        y = torch::dropout(y.t(), p, true);
        y = torch::dropout(y.slice(0, 1, 34), p, true);
        y = torch::dropout(y.unsqueeze(0).expand({3, 33, 33}), p, true);
        y.sum().backward();
        return Tensors{y, x.grad(), torch::rand({3}, OnGpu())};
      });
    }
  }
  EXPECT_EQ(stats.fallbacks("aten::native_dropout"), 0);
  EXPECT_EQ(stats.of(&Stats::compile_failures), 0);
}

// What is drawn depends on how ATen's kernel goes through memory: in vectors of as many elements as alignment, number and layout allow, in
// several turns where there are more than threads. The generator is left as eager mode leaves it.
TEST_F(GpuTest, DropoutMasksOfAllLayouts) {
  using Make = std::function<torch::Tensor(torch::TensorOptions)>;
  const std::vector<std::pair<const char*, Make>> layouts = {
      {"a number", [](auto options) { return torch::ones({}, options); }},
      {"odd",
       [](auto options) {
         return torch::ones({7, 33}, options);
       }},
      {"of twos",
       [](auto options) {
         return torch::ones({35, 2}, options);
       }},
      {"of fours",
       [](auto options) {
         return torch::ones({33, 4}, options);
       }},
      {"several turns",
       [](auto options) {
         return torch::ones({3, 1024, 1024}, options);
       }},
      {"several odd turns",
       [](auto options) {
         return torch::ones({1023, 1025}, options);
       }},
      {"from the second element on", [](auto options) { return torch::ones({1025}, options).slice(0, 1); }},
      {"from the fifth row on",
       [](auto options) {
         return torch::ones({68, 4}, options).slice(0, 5, 65);
       }},
      {"transposed",
       [](auto options) {
         return torch::ones({48, 64}, options).t();
       }},
      {"permuted, odd",
       [](auto options) {
         return torch::ones({3, 5, 7}, options).permute({2, 0, 1});
       }},
      {"channels last",
       [](auto options) {
         return torch::ones({2, 8, 5, 6}, options).contiguous(torch::MemoryFormat::ChannelsLast);
       }},
      {"every other", [](auto options) { return torch::ones({4096}, options).slice(0, 0, 4096, 2); }},
      {"with gaps",
       [](auto options) {
         return torch::ones({64, 50}, options).slice(1, 3, 40);
       }},
      {"transposed, with gaps",
       [](auto options) {
         return torch::ones({64, 50}, options).slice(1, 3, 40).t();
       }},
      {"broadcast", [](auto options) {
         return torch::ones({1, 64}, options).expand({16, 64});
       }}};
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kHalf}) {
    for (const auto& [name, make] : layouts) {
      SCOPED_TRACE(name);
      lazuli::reset();
      const auto x = make(OnGpu(dtype));
      const Program program = [&, make = &make] {
        const auto [y, mask] = torch::native_dropout(x, 0.3, true);
        const auto [z, made] = torch::native_dropout((*make)(OnGpu(dtype)) * 3, 0.8, true);
        return Tensors{y, mask, z, made, torch::rand({3}, OnGpu())};
      };
      ExpectSameAsEager(program);  // Shapes that are not known beforehand are by now.
      const StatsDelta stats;
      ExpectSameAsEager(program);
      EXPECT_GE(stats.of(&Stats::kernel_launches), 3);
      EXPECT_EQ(stats.of(&Stats::aten_calls), 0) << "masks are drawn by kernels";
      EXPECT_EQ(stats.of(&Stats::compile_failures), 0);
      EXPECT_EQ(stats.fallbacks("aten::native_dropout") + stats.fallbacks("lazuli::_dropout_mask"), 0);
    }
  }
}

// One program for all numbers of rows, whatever takes turns at them.
TEST_F(GpuTest, DropoutOfSizesThatChange) {
  const auto w = torch::full({768}, 0.5, OnGpu());
  const StatsDelta stats;
  for (const int64_t rows : {3, 40, 17, 900, 2500, 64, 7, 1801}) {
    const auto x = torch::ones({rows, 768}, OnGpu());
    ExpectSameAsEager([&] { return Tensors{torch::dropout(torch::gelu(x * w), 0.25, true) + x, torch::rand({3}, OnGpu())}; });
  }
  EXPECT_GE(stats.of(&Stats::dynamic_programs), 1);
  EXPECT_LE(stats.of(&Stats::programs_compiled), 4);
  EXPECT_EQ(stats.of(&Stats::compile_failures), 0);
  EXPECT_EQ(stats.of(&Stats::recompile_limit_hits), 0);
}

// Numbers that are taken for a step are no constants of its program.
TEST_F(GpuTest, DropoutDrawsAnewInEveryStep) {
  for (const std::string mode : {"default", "reduce-overhead", "max-autotune-no-cudagraphs"}) {
    const auto steps = [] {
      torch::manual_seed(11);
      const auto x = torch::ones({96, 128}, OnGpu());
      auto w = torch::full({128}, 0.5, OnGpu()).requires_grad_();
      Tensors losses;
      for (int step = 0; step < 8; ++step) {
        auto hidden = torch::dropout(torch::gelu(x * w), 0.25, true);
        hidden = torch::dropout(hidden + x, 0.5, true);
        const auto loss = hidden.square().mean();
        loss.backward();
        {
          const torch::NoGradGuard no_grad;
          w.sub_(w.grad(), 0.1);
        }
        w.mutable_grad() = torch::Tensor();
        losses.push_back(loss.detach().clone());
        lazuli::sync();
      }
      return losses;
    };
    const Tensors eager = steps();
    const StatsDelta stats;
    Tensors lazy;
    {
      const DeviceMode device_mode(Options().mode(mode));
      lazy = steps();
    }
    for (size_t i = 0; i < eager.size(); ++i)
      ExpectSame(eager[i].cpu(), lazy[i].cpu(), /*exact=*/false, mode + ", step " + std::to_string(i));
    EXPECT_LE(stats.of(&Stats::programs_compiled), 3) << mode;
    EXPECT_GE(stats.of(&Stats::cache_hits), 4);
    EXPECT_EQ(stats.of(&Stats::cudagraph_failures), 0);
    lazuli::reset();
  }
}

}  // namespace
}  // namespace lazuli::testing
