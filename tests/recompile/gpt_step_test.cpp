// What a training step of a small GPT runs: everything but matrix products, attention and the embeddings' gradients is kernels.
#include <torch/torch.h>

#include "tests/support/same_as_eager.h"

namespace lazuli::testing {
namespace {

namespace F = torch::nn::functional;
using torch::Tensor;

constexpr int64_t kBatch = 2, kTime = 8, kWidth = 16, kHeads = 2, kWords = 32;

struct Gpt {
  Gpt() {
    for (Tensor* parameter : Parameters()) parameter->requires_grad_();
  }
  std::vector<Tensor*> Parameters() { return {&words, &places, &qkv, &out, &gain, &bias}; }

  Tensor Loss(const Tensor& tokens, const Tensor& targets) const {
    const Tensor x = torch::embedding(words, tokens) + torch::embedding(places, torch::arange(kTime));
    const auto parts = F::linear(torch::layer_norm(x, {kWidth}, gain, bias), qkv).view({kBatch, kTime, 3, kHeads, -1}).unbind(2);
    const auto head = [&](int i) { return parts[i].transpose(1, 2); };
    const Tensor mixed = at::scaled_dot_product_attention(head(0), head(1), head(2), {}, 0, true).transpose(1, 2).reshape(x.sizes());
    const Tensor y = torch::layer_norm(x + F::linear(mixed, out), {kWidth}, gain, bias);
    return torch::cross_entropy_loss(F::linear(y, words).view({-1, kWords}), targets.reshape(-1));
  }

  // Returns the loss.
  Tensor Step(const Tensor& tokens, const Tensor& targets) {
    const Tensor loss = Loss(tokens, targets);
    loss.backward();
    const torch::NoGradGuard no_grad;
    for (Tensor* parameter : Parameters()) {
      parameter->sub_(parameter->grad(), 0.1);
      parameter->mutable_grad() = Tensor();
    }
    return loss.detach();
  }

  Tensor words = torch::randn({kWords, kWidth}), places = torch::randn({kTime, kWidth}), qkv = torch::randn({3 * kWidth, kWidth}) * 0.2,
         out = torch::randn({kWidth, kWidth}) * 0.2, gain = torch::ones({kWidth}), bias = torch::zeros({kWidth});
};

class GptStepTest : public BackendTest {};

TEST_P(GptStepTest, SameAsEager) {
  ExpectSameAsEager([]() -> Tensors {
    Gpt gpt;
    const Tensor tokens = torch::randint(0, kWords, {kBatch, kTime + 1});
    Tensors seen;
    for (int step = 0; step < 3; ++step) seen.push_back(gpt.Step(tokens.slice(1, 0, kTime), tokens.slice(1, 1)));
    for (Tensor* parameter : gpt.Parameters()) seen.push_back(parameter->detach());
    return seen;
  });
}

TEST_P(GptStepTest, CallsOfAten) {
  if (exact()) GTEST_SKIP() << "every operator is a call";
  const lazuli::DeviceMode mode(options());
  Gpt gpt;
  const Tensor tokens = torch::randint(0, kWords, {kBatch, kTime + 1});
  const auto step = [&] {
    gpt.Step(tokens.slice(1, 0, kTime), tokens.slice(1, 1));
    lazuli::sync();
  };
  for (int i = 0; i < 3; ++i) step();
  const StatsDelta delta;
  step();
  // Forward: three products and attention. Backward: two for each product, attention, and the stack that gathers its gradients.
  EXPECT_EQ(delta.of(&Stats::aten_calls), 4 + 6 + 2);
  EXPECT_EQ(delta.of(&Stats::cache_misses), 0);
  EXPECT_GT(delta.of(&Stats::kernel_launches), 0);
}

LAZULI_FOR_EACH_BACKEND(GptStepTest);

}  // namespace
}  // namespace lazuli::testing
