// Attention by each of LibTorch's kernels, over sequences whose length changes: what it returns is known beforehand, so that nothing is
// cut. Skipped without a GPU.
#include <ATen/Context.h>
#include <torch/torch.h>

#include <limits>

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
  static void AllowAll() {
    at::globalContext().setSDPUseFlash(true);
    at::globalContext().setSDPUseCuDNN(true);
    at::globalContext().setSDPUseMemEfficient(true);
    at::globalContext().setSDPUseMath(true);
  }
  void TearDown() override { AllowAll(); }

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

// Where LibTorch prefers cuDNN, which makes a plan for each length. Forward and backward pass may be traces of their own.
TEST_F(GpuAttentionTest, NewLengthsNeedNoPlan) {
  const auto packed = torch::randn({2, 96, 3, 4, 64}, OnGpu(torch::kBFloat16)),
             weight = torch::randn({2, 4, 96, 64}, OnGpu(torch::kBFloat16));
  const auto some = packed[0].permute({1, 2, 0, 3}).unsqueeze(1);
  constexpr int64_t kCudnn = 3;  // at::SDPBackend::cudnn_attention.
  if (at::_fused_sdp_choice(some[0], some[1], some[2], {}, 0.0, true) != kCudnn) GTEST_SKIP() << "LibTorch prefers another kernel";
  for (const bool causal : {true, false}) {
    for (const bool split : {false, true}) {
      lazuli::reset();
      const auto program = [&](int64_t length) {
        const auto qkv = packed.narrow(1, 0, length).detach().clone().requires_grad_();
        const auto heads = (qkv * 1).permute({2, 0, 3, 1, 4});
        // More keys than queries, where all queries see all of them.
        const auto y = Attend(causal ? heads[0] : heads[0].narrow(2, 0, length - 3), heads[1], heads[2], causal);
        const auto loss = (y * weight.narrow(2, 0, y.size(2))).sum();
        if (split) loss.item<float>();
        return Tensors{y, torch::autograd::grad({loss}, {qkv})[0]};
      };
      for (const int64_t length : {24, 25}) ExpectSameAsEager([&] { return program(length); }, "default");
      lazuli::wait_for_compiles();
      const StatsDelta stats;
      for (const int64_t length : {26, 27, 40, 41, 64, 96}) ExpectSameAsEager([&] { return program(length); }, "default");
      EXPECT_EQ(stats.of(&Stats::flash_attentions), 6 * 4 * 2) << causal << split;
      EXPECT_EQ(stats.of(&Stats::eager_replays), 0);
      EXPECT_EQ(stats.of(&Stats::cache_misses), 0);
    }
  }
}

// Numbers are taken when a call is recorded, and drawn when it runs: of the same generator's as eagerly, and so is what is drawn later.
TEST_F(GpuAttentionTest, Dropout) {
  int kernels = 0;
  for (const Kernel kernel : {Kernel::kFlash, Kernel::kCudnn, Kernel::kEfficient}) {
    if (!Runs(kernel, torch::randn({2, 4, 24, 64}, OnGpu(torch::kBFloat16)))) continue;
    ++kernels;
    lazuli::reset();
    const auto packed = torch::randn({2, 32, 3, 4, 64}, OnGpu(torch::kBFloat16)),
               weight = torch::randn({2, 4, 32, 64}, OnGpu(torch::kBFloat16));
    const auto program = [&](int64_t length) {
      torch::manual_seed(5);
      const auto qkv = packed.narrow(1, 0, length).detach().clone().requires_grad_();
      torch::Tensor x = qkv;
      for (int layer = 0; layer < 2; ++layer) {
        const auto heads = (x * 2).permute({2, 0, 3, 1, 4});
        const auto y = at::scaled_dot_product_attention(heads[0], heads[1], heads[2], {}, 0.25, true);
        x = x + y.permute({0, 2, 1, 3}).unsqueeze(2);
      }
      const auto loss = (x * weight.narrow(2, 0, length).permute({0, 2, 1, 3}).unsqueeze(2)).sum();
      return Tensors{torch::autograd::grad({loss}, {qkv})[0], torch::rand({3}, OnGpu(torch::kFloat))};
    };
    for (const std::string mode : {"default", "reduce-overhead"}) {
      // A call that is counted and one that is looked at, after which all is known, for other lengths, too.
      ExpectSameAsEager([&] { return program(32); }, mode);
      const StatsDelta stats;
      for (const int64_t length : {32, 24, 17, 31}) ExpectSameAsEager([&] { return program(length); }, mode);
      SCOPED_TRACE(std::to_string(static_cast<int>(kernel)) + " " + mode);
      for (const char* which : {"flash", "cudnn", "efficient"}) {
        const std::string attention = std::string("_scaled_dot_product_") + which + "_attention";
        for (const std::string& called : {"aten::" + attention, "aten::" + attention + "_backward", "lazuli::" + attention + "_dropout"}) {
          EXPECT_EQ(stats.fallbacks(called), 0) << called;
        }
      }
      EXPECT_EQ(stats.of(&Stats::observations), 0);
      EXPECT_GE(stats.of(&Stats::cache_hits), 4);
    }
  }
  EXPECT_GE(kernels, 2);
}

// Of calls that draw one after the other, in one trace and over several, and of a state that is put back.
TEST_F(GpuAttentionTest, DropoutDrawsAsEagerDoes) {
  const auto heads = torch::randn({3, 2, 4, 40, 64}, OnGpu(torch::kBFloat16));
  const auto attend = [&](double p) { return at::scaled_dot_product_attention(heads[0] * 2, heads[1], heads[2], {}, p, false); };
  const Program program = [&] {
    torch::manual_seed(11);
    const auto first = attend(0.5), second = attend(0.25);
    auto generator = at::globalContext().defaultGenerator(heads.device());
    const auto state = generator.get_state();
    const auto noise = torch::randn({5}, OnGpu(torch::kFloat));
    const auto third = attend(0.5);
    generator.set_state(state);
    const auto noise_again = torch::randn({5}, OnGpu(torch::kFloat));
    const auto fourth = torch::dropout(attend(0.5), 0.5, true);
    return Tensors{first, second, noise, third, noise_again, fourth, torch::rand({3}, OnGpu(torch::kFloat))};
  };
  const Tensors eager = program();
  EXPECT_TRUE(torch::equal(eager[2], eager[4]));
  EXPECT_FALSE(torch::equal(eager[0], eager[3])) << "they draw other numbers";
  for (const bool async : {false, true}) {
    for (int run = 0; run < 5; ++run) {
      Tensors lazy;
      {
        const DeviceMode mode(Options().disk_cache(false).async(async));
        lazy = program();
        lazuli::sync();
      }
      for (size_t i = 0; i < eager.size(); ++i) {
        EXPECT_TRUE(torch::equal(eager[i], lazy[i])) << "result " << i << ", run " << run << (async ? ", in the background" : "");
      }
    }
  }
}

// softmax(q k^T / 8 + ...) v by hand, of halves. Eager rounds scores and weights to halves, a kernel does not.
class GpuAttentionByHandTest : public GpuAttentionTest {
 protected:
  using Change = std::function<torch::Tensor(torch::Tensor scores)>;

  // Of numbers that `type` holds, computed as `as`.
  static Tensors Attention(int64_t queries, int64_t keys, const Change& change, torch::Dtype type, torch::Dtype as, bool float_softmax,
                           bool grad) {
    torch::manual_seed(3);
    const auto rows = [&](int64_t count) { return torch::randn({4, count, 8 * 64}, OnGpu(type)).to(as).requires_grad_(grad); };
    const auto x = rows(queries), y = rows(keys), z = rows(keys);
    const auto heads = [](const torch::Tensor& t) { return t.view({4, -1, 8, 64}).transpose(1, 2); };
    auto scores = change(torch::matmul(heads(x), heads(y).transpose(-2, -1)) / 8);
    const auto weights = float_softmax ? scores.to(torch::kFloat).softmax(-1).to(as) : scores.softmax(-1);
    const auto result = torch::matmul(weights, heads(z)).transpose(1, 2).reshape({4, queries, -1});
    Tensors results = {result.detach()};
    if (!grad) return results;
    for (const auto& g : torch::autograd::grad({(result * result.detach().cos()).sum()}, {x, y, z})) results.push_back(g);
    return results;
  }

  static double ErrorOf(const torch::Tensor& result, const torch::Tensor& exact) {
    return (result.to(torch::kDouble) - exact).abs().max().item<double>();
  }

  // Four runs in a mode, no further from the truth than eager by more than a last rounding.
  static void ExpectAsGoodAsEager(const std::function<Tensors(torch::Dtype as)>& program, torch::Dtype type, const std::string& mode) {
    const Tensors exact = program(torch::kDouble), eager = program(type);
    for (int run = 0; run < 4; ++run) {
      Tensors lazy;
      {
        const DeviceMode device_mode(Options().mode(mode).disk_cache(false));
        lazy = program(type);
        lazuli::sync();
      }
      ASSERT_EQ(lazy.size(), exact.size());
      for (size_t i = 0; i < exact.size(); ++i) {
        const double rounding = (type == torch::kHalf ? 0x1p-11 : 0x1p-8) * exact[i].abs().max().item<double>();
        EXPECT_LE(ErrorOf(lazy[i], exact[i]), 1.5 * ErrorOf(eager[i], exact[i]) + rounding) << mode << ", run " << run << ", result " << i;
        EXPECT_EQ(lazy[i].strides(), eager[i].strides());
      }
    }
  }

  void ExpectFused(int64_t queries, int64_t keys, const Change& change, int64_t calls = 2) {
    ExpectCalls(queries, keys, change, true, calls);
  }
  void ExpectCalls(int64_t queries, int64_t keys, const Change& change, bool grad, int64_t calls) {
    for (const auto type : {torch::kBFloat16, torch::kHalf}) {
      for (const bool float_softmax : {false, true}) {
        for (const std::string mode : {"default", "reduce-overhead"}) {
          lazuli::reset();
          const StatsDelta stats;
          const auto program = [&](torch::Dtype as) {
            return Attention(queries, keys, change, type, as, float_softmax && as != torch::kDouble, grad);
          };
          ExpectAsGoodAsEager(program, type, mode);
          // A first run may be cut where shapes are observed; graphs are captured and then launched without another call.
          EXPECT_GE(stats.of(&Stats::fused_attentions), (mode == "default" ? 3 : 1) * calls);
          EXPECT_LE(stats.of(&Stats::fused_attentions), 4 * calls);
          EXPECT_EQ(stats.of(&Stats::unfused_attentions), 0);
        }
      }
    }
  }

  static bool HasCudnn() {
    const bool has = Runs(Kernel::kCudnn, torch::randn({2, 4, 24, 64}, OnGpu(torch::kBFloat16)));
    AllowAll();
    return has;
  }

  static torch::Tensor Later(int64_t queries, int64_t keys) { return torch::ones({queries, keys}, OnGpu(torch::kBool)).triu(1); }
  static constexpr float kHidden = -std::numeric_limits<float>::infinity();
};

TEST_F(GpuAttentionByHandTest, Plain) {
  for (const auto& [queries, keys] : {std::pair(512, 512), std::pair(300, 517)})
    ExpectFused(queries, keys, [](auto scores) { return scores; });
}

TEST_F(GpuAttentionByHandTest, Masks) {
  if (!HasCudnn()) GTEST_SKIP() << "this GPU has no cuDNN attention";
  ExpectFused(512, 512, [](auto scores) { return scores.masked_fill(Later(512, 512), kHidden); });
  ExpectFused(300, 517, [](auto scores) { return scores.masked_fill_(Later(300, 517), kHidden); });
}

// A bias may leave nothing of scores but their maximum: the kernel's gradient would need more than that.
TEST_F(GpuAttentionByHandTest, BiasesWithoutAGradient) {
  if (!HasCudnn()) GTEST_SKIP() << "this GPU has no cuDNN attention";
  // Numbers that halves hold.
  const auto bias = torch::arange(8 * 512, OnGpu(torch::kFloat)).remainder(16).sub(8).div(4).view({8, 512, 1}).expand({8, 512, 300});
  const Change biased = [&](auto scores) { return scores + bias.to(scores.scalar_type()); };
  const Change masked = [&](auto scores) { return biased(scores).masked_fill(Later(4, 300).view({4, 1, 1, 300}), kHidden); };
  for (const Change& change : {biased, masked}) {
    ExpectCalls(512, 300, change, /*grad=*/false, 1);
    ExpectCalls(512, 300, change, /*grad=*/true, 0);
  }
}

// What a query sees that sees nothing depends on the number that fills.
TEST_F(GpuAttentionByHandTest, OtherNumbersThanInfinityStayProducts) {
  ExpectFused(
      512, 512, [](auto scores) { return scores.masked_fill(Later(512, 512), -1e4); }, 0);
}

// softmax gives NaN.
TEST_F(GpuAttentionByHandTest, AQueryThatSeesNothing) {
  const auto program = [] {
    const torch::NoGradGuard guard;
    torch::manual_seed(3);
    const auto heads = torch::randn({4, 8, 512, 64}, OnGpu(torch::kBFloat16));
    const auto scores = torch::matmul(heads, heads.transpose(-2, -1)).masked_fill(Later(512, 512).logical_not(), kHidden);
    return torch::matmul(scores.softmax(-1), heads).isnan();
  };
  const auto eager = program();
  const StatsDelta stats;
  torch::Tensor lazy;
  {
    const DeviceMode mode(Options().disk_cache(false));
    lazy = program();
    lazuli::sync();
  }
  EXPECT_EQ(stats.of(&Stats::fused_attentions), 1);
  EXPECT_EQ(eager.sum().item<int64_t>(), 4 * 8 * 64);
  EXPECT_TRUE(torch::equal(lazy, eager));
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
