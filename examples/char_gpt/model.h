// A GPT over characters, written with torch::nn.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace char_gpt {

struct ModelConfig {
  int64_t vocabulary = 0;
  int64_t block = 0;
  int64_t layers = 0;
  int64_t dim = 0;
  int64_t heads = 0;
  double dropout = 0;
};

// Causal self-attention over [batch, time, dim].
class AttentionImpl : public torch::nn::Module {
 public:
  explicit AttentionImpl(const ModelConfig& config);
  torch::Tensor forward(const torch::Tensor& x);

 private:
  int64_t heads_;
  double dropout_p_;
  torch::nn::Linear qkv_{nullptr}, project_{nullptr};
  torch::nn::Dropout dropout_{nullptr};
};
TORCH_MODULE(Attention);

// A pre-norm transformer block.
class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const ModelConfig& config);
  torch::Tensor forward(torch::Tensor x);

 private:
  torch::nn::LayerNorm norm1_{nullptr}, norm2_{nullptr};
  Attention attention_{nullptr};
  torch::nn::Sequential mlp_{nullptr};
};
TORCH_MODULE(Block);

// Logits [batch, time, vocabulary] for tokens [batch, time], time <= block.
class CharGptImpl : public torch::nn::Module {
 public:
  explicit CharGptImpl(const ModelConfig& config);
  torch::Tensor forward(const torch::Tensor& tokens);

 private:
  torch::nn::Embedding token_embedding_{nullptr}, position_embedding_{nullptr};
  torch::nn::Dropout dropout_{nullptr};
  torch::nn::Sequential blocks_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear head_{nullptr};
};
TORCH_MODULE(CharGpt);

}  // namespace char_gpt
