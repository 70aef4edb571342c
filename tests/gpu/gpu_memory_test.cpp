// How much of a GPU's memory programs hold at their peak, beside eager mode.
#include <c10/core/CachingDeviceAllocator.h>
#include <dlfcn.h>
#include <torch/torch.h>

#include "tests/support/gpu_modes.h"

namespace lazuli::testing {
namespace {

namespace F = torch::nn::functional;

class GpuMemoryTest : public OnGpuTest {
 protected:
  // The most bytes of tensors that exist at a time while `step` runs, more than before it.
  static int64_t PeakOf(const std::function<void()>& step) {
    c10::DeviceAllocator* const allocator = c10::getDeviceAllocator(c10::kCUDA);
    torch::cuda::synchronize();
    allocator->resetPeakStats(0);
    const int64_t before = Bytes(*allocator).current;
    step();
    torch::cuda::synchronize();
    return Bytes(*allocator).peak - before;
  }

  static int64_t Current() { return Bytes(*c10::getDeviceAllocator(c10::kCUDA)).current; }

  // `step` compiled takes at most `share` of eager's memory, and nothing falls back.
  static void ExpectPeak(const std::function<void()>& step, double share) {
    step();
    const int64_t eager = PeakOf(step);
    DeviceMode mode;
    const auto compiled_step = [&] {
      step();
      lazuli::sync();
    };
    for (int warm_up = 0; warm_up < 6; ++warm_up) compiled_step();
    const StatsDelta stats;
    const int64_t compiled = PeakOf(compiled_step);
    EXPECT_LE(static_cast<double>(compiled), share * static_cast<double>(eager));
    EXPECT_GE(stats.of(&Stats::cache_hits), 1);
    EXPECT_EQ(stats.of(&Stats::eager_replays), 0);
  }

 private:
  static c10::CachingAllocator::Stat Bytes(c10::DeviceAllocator& allocator) { return allocator.getDeviceStats(0).allocated_bytes[0]; }
};

torch::nn::Sequential Deep(int64_t layers, int64_t width) {
  torch::nn::Sequential net;
  for (int64_t i = 0; i < layers; ++i) {
    net->push_back(torch::nn::Linear(width, width));
    net->push_back(torch::nn::GELU());
  }
  net->to(torch::Device(torch::kCUDA));
  return net;
}

std::function<void()> Training(const torch::nn::Sequential& net, const std::function<torch::Tensor()>& loss) {
  const auto adam = std::make_shared<torch::optim::Adam>(net->parameters(), torch::optim::AdamOptions(1e-4));
  return [=] {
    adam->zero_grad();
    loss().backward();
    adam->step();
  };
}

TEST_F(GpuMemoryTest, TrainingADeepNetworkTakesNoMoreThanEagerMode) {
  torch::manual_seed(3);
  auto net = Deep(8, 512);
  const auto x = torch::randn({8192, 512}, OnGpu());
  ExpectPeak(Training(net, [=]() mutable { return net->forward(x).square().mean(); }), 1.0);
}

// What LibTorch keeps for cuBLAS for each thread: the program's, autograd's and ours take turns, so that one of them holds some afterwards.
TEST_F(GpuMemoryTest, ProductsOfSeveralThreads) {
  auto* const clear = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "_ZN2at4cuda21clearCublasWorkspacesEv"));
  if (clear == nullptr) GTEST_SKIP() << "of another LibTorch";
  torch::manual_seed(3);
  auto net = Deep(3, 64);
  const auto x = torch::randn({32, 64}, OnGpu());
  const auto step = Training(net, [=]() mutable { return net->forward(x).square().mean(); });
  DeviceMode mode;
  step();
  lazuli::sync();
  clear();
  const int64_t before = Current();
  for (int i = 0; i < 12; ++i) {
    step();
    lazuli::sync();
  }
  constexpr int64_t kMost = int64_t{32} << 20, kElse = int64_t{2} << 20;
  EXPECT_LE(Current() - before, kMost + kElse);
}

// Products whose results come and go, and kernels' that do when those are gone.
TEST_F(GpuMemoryTest, ResidualConvolutions) {
  torch::manual_seed(3);
  torch::nn::Sequential net;
  for (int i = 0; i < 6; ++i) {
    net->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(32, 32, 3).padding(1)));
    net->push_back(torch::nn::Tanh());
  }
  net->to(torch::Device(torch::kCUDA));
  const auto x = torch::randn({16, 32, 64, 64}, OnGpu());
  ExpectPeak(Training(net, [=]() mutable { return (net->forward(x) * x).mean(); }), 1.05);
}

TEST_F(GpuMemoryTest, ASoftmaxesGradientTakesTheMemoryOfWhatItIsMadeOf) {
  torch::manual_seed(3);
  const auto x = torch::randn({4096, 64}, OnGpu()).requires_grad_(), w = torch::randn({64, 8192}, OnGpu()).requires_grad_(),
             v = torch::randn({8192, 16}, OnGpu());
  ExpectPeak([=] { torch::softmax(x.matmul(w), -1).matmul(v).sum().backward(); }, 0.85);
}

TEST_F(GpuMemoryTest, LogitsAreKeptInTheirOwnType) {
  torch::manual_seed(3);
  const auto x = torch::randn({1024, 64}, OnGpu(torch::kBFloat16)), w = torch::randn({64, 32000}, OnGpu(torch::kBFloat16)).requires_grad_();
  const auto target = torch::randint(0, 32000, {1024}, OnGpu(torch::kLong));
  ExpectPeak([=] { F::cross_entropy(x.matmul(w).view({4, 256, -1}).to(torch::kFloat).view({1024, -1}), target).backward(); }, 0.35);
}

}  // namespace
}  // namespace lazuli::testing
