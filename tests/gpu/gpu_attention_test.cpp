// Attention by each of LibTorch's kernels, over sequences whose length changes: what it returns is known beforehand, so that nothing is
// cut. Skipped without a GPU.
#include <ATen/Context.h>
#include <torch/torch.h>

#include "tests/support/gpu_modes.h"

namespace lazuli::testing {
namespace {

enum class Kernel { kFlash, kCudnn, kEfficient };

class GpuAttentionTest : public GpuModesTest {
 protected:
  static void Allow(Kernel kernel) {
    at::globalContext().setSDPUseFlash(kernel == Kernel::kFlash);
    at::globalContext().setSDPUseCuDNN(kernel == Kernel::kCudnn);
    at::globalContext().setSDPUseMemEfficient(kernel == Kernel::kEfficient);
  }
  void TearDown() override {
    at::globalContext().setSDPUseFlash(true);
    at::globalContext().setSDPUseCuDNN(true);
    at::globalContext().setSDPUseMemEfficient(true);
    at::globalContext().setSDPUseMath(true);
  }

  static torch::Tensor Attend(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v, bool causal) {
    return at::scaled_dot_product_attention(q, k, v, {}, 0.0, causal);
  }

  // Whether this GPU's LibTorch has the kernel for heads like these.
  static bool Runs(Kernel kernel, const torch::Tensor& heads) {
    Allow(kernel);
    at::globalContext().setSDPUseMath(false);
    try {
      Attend(heads, heads, heads, true);
      return true;
    } catch (const c10::Error&) {
      return false;
    }
  }

  // Runs `program` for one length until all is known of it, and then for others, where nothing may be looked at any more.
  static void ExpectForetold(const std::function<Tensors(int64_t length)>& program, const std::string& what) {
    lazuli::reset();
    for (int run = 0; run < 2; ++run) ExpectSameAsEager([&] { return program(24); }, "default");
    const StatsDelta stats;
    for (const int64_t length : {25, 26, 27, 40, 41, 64}) ExpectSameAsEager([&] { return program(length); }, "default");
    EXPECT_EQ(stats.of(&Stats::observations), 0) << what;
    for (const char* kernel : {"flash", "cudnn", "efficient"}) {
      const std::string name = std::string("aten::_scaled_dot_product_") + kernel + "_attention";
      EXPECT_EQ(stats.fallbacks(name), 0) << what;
      EXPECT_EQ(stats.fallbacks(name + "_backward"), 0) << what;
    }
    EXPECT_EQ(stats.of(&Stats::compile_failures), 0) << what;
  }
};

TEST_F(GpuAttentionTest, LengthsThatChange) {
  int kernels = 0;
  for (const Kernel kernel : {Kernel::kFlash, Kernel::kCudnn, Kernel::kEfficient}) {
    for (const auto dtype : {torch::kBFloat16, torch::kHalf, torch::kFloat}) {
      if (dtype == torch::kFloat && kernel != Kernel::kEfficient) continue;
      if (!Runs(kernel, torch::randn({2, 4, 24, 64}, OnGpu(dtype)))) continue;
      ++kernels;
      const auto packed = torch::randn({2, 64, 3, 4, 64}, OnGpu(dtype)), weight = torch::randn({2, 4, 64, 64}, OnGpu(dtype));
      const std::string what = std::to_string(static_cast<int>(kernel)) + " " + c10::toString(dtype);
      ExpectForetold(
          [&](int64_t length) {
            const torch::NoGradGuard no_grad;
            const auto qkv = packed.narrow(1, 0, length).permute({2, 0, 3, 1, 4}) * 1;
            return Tensors{Attend(qkv[0], qkv[1], qkv[2], true), Attend(qkv[0].contiguous(), qkv[1], qkv[2], false)};
          },
          what);
      ExpectForetold(
          [&](int64_t length) {
            const auto qkv = packed.narrow(1, 0, length).detach().clone().requires_grad_();
            const auto heads = qkv.permute({2, 0, 3, 1, 4});
            const auto loss = (Attend(heads[0], heads[1], heads[2], true) * weight.narrow(2, 0, length)).sum();
            return Tensors{torch::autograd::grad({loss}, {qkv})[0]};
          },
          what + " with gradients");
    }
  }
  EXPECT_GE(kernels, 5);  // Flash and memory-efficient attention of all dtypes.
}

// With dropout numbers are drawn at once, and so is what is attended to; gradients are recorded.
TEST_F(GpuAttentionTest, GradientsWithDropout) {
  int kernels = 0;
  for (const Kernel kernel : {Kernel::kFlash, Kernel::kCudnn, Kernel::kEfficient}) {
    if (!Runs(kernel, torch::randn({2, 4, 24, 64}, OnGpu(torch::kBFloat16)))) continue;
    ++kernels;
    lazuli::reset();
    const auto packed = torch::randn({2, 32, 3, 4, 64}, OnGpu(torch::kBFloat16)),
               weight = torch::randn({2, 4, 32, 64}, OnGpu(torch::kBFloat16));
    const Program program = [&] {
      torch::manual_seed(5);
      const auto qkv = packed.detach().clone().requires_grad_();
      torch::Tensor x = qkv;
      for (int layer = 0; layer < 2; ++layer) {
        const auto heads = (x * 2).permute({2, 0, 3, 1, 4});
        const auto y = at::scaled_dot_product_attention(heads[0], heads[1], heads[2], {}, 0.25, true);
        x = x + y.permute({0, 2, 1, 3}).unsqueeze(2);
      }
      const auto loss = (x * weight.permute({0, 2, 1, 3}).unsqueeze(2)).sum();
      return Tensors{torch::autograd::grad({loss}, {qkv})[0], torch::rand({3}, OnGpu(torch::kFloat))};
    };
    for (const std::string mode : {"default", "reduce-overhead"}) {
      ExpectSameAsEager(program, mode);
      const StatsDelta stats;
      ExpectSameAsEager(program, mode);
      int64_t forward = 0, backward = 0;
      for (const char* name : {"flash", "cudnn", "efficient"}) {
        const std::string attention = std::string("aten::_scaled_dot_product_") + name + "_attention";
        forward += stats.fallbacks(attention);
        backward += stats.fallbacks(attention + "_backward");
      }
      EXPECT_EQ(forward, 2 * 4) << static_cast<int>(kernel);
      EXPECT_EQ(backward, 0) << static_cast<int>(kernel);
    }
  }
  EXPECT_GE(kernels, 2);
}

// A cache of keys that grows, and one query.
TEST_F(GpuAttentionTest, Decoding) {
  for (const Kernel kernel : {Kernel::kFlash, Kernel::kCudnn}) {
    Allow(kernel);
    const auto cache = torch::randn({2, 8, 64, 64}, OnGpu(torch::kBFloat16)), q = torch::randn({2, 8, 1, 64}, OnGpu(torch::kBFloat16));
    const auto few = torch::randn({2, 2, 64, 64}, OnGpu(torch::kBFloat16));
    for (const auto& keys : {cache, few}) {
      ExpectForetold(
          [&](int64_t length) {
            const torch::NoGradGuard no_grad;
            const auto k = torch::cat({keys.narrow(2, 0, length - 1), keys.narrow(2, 63, 1)}, 2);
            return Tensors{at::scaled_dot_product_attention(q * 2, k, k + 1, {}, 0.0, false, std::nullopt, /*enable_gqa=*/true)};
          },
          std::to_string(static_cast<int>(kernel)) + (keys.size(1) == 2 ? " shared" : ""));
    }
  }
}

}  // namespace
}  // namespace lazuli::testing
