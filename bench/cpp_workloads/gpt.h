// A GPT, written with torch::nn.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace workloads {

struct GptConfig {
  int64_t vocabulary = 4096;
  int64_t max_time = 256;
  int64_t width = 256;
  int64_t heads = 4;
  int64_t layers = 4;
  double dropout = 0;

  // The one above; on a GPU GPT-2's, of 124 million parameters.
  static GptConfig For(torch::Device device);
};

// Keys and values of the tokens so far, [batch, heads, time, width / heads] each, by one of two ways that programs have: each token's
// are appended by cat, or written into a part of memory for `max_time` tokens.
class KeyValueCache {
 public:
  KeyValueCache() = default;
  KeyValueCache(const GptConfig& config, int64_t batch, torch::Device device);

  // Adds the keys and values of new tokens. Both become those of all tokens so far.
  void Append(torch::Tensor& keys, torch::Tensor& values);

 private:
  torch::Tensor keys_, values_;
  int64_t time_ = 0;
  bool preallocated_ = false;
};

// A pre-norm transformer block over [batch, time, width], causal.
class DecoderLayerImpl : public torch::nn::Module {
 public:
  DecoderLayerImpl(int64_t width, int64_t heads, double dropout = 0);
  // `cache` may be null. With one, x follows the tokens in it: the first tokens of a text, or one more.
  torch::Tensor forward(torch::Tensor x, KeyValueCache* cache = nullptr);

 private:
  int64_t heads_;
  torch::nn::LayerNorm attention_norm_{nullptr};
  torch::nn::Linear to_qkv_{nullptr}, from_heads_{nullptr};
  torch::nn::Sequential mlp_{nullptr};
  torch::nn::Dropout dropout_{nullptr};
};
TORCH_MODULE(DecoderLayer);

class GptImpl : public torch::nn::Module {
 public:
  explicit GptImpl(const GptConfig& config);
  // Logits [batch, time, vocabulary] of ids [batch, time], the first of which is at `position`. `caches` is empty, or has one for each
  // layer.
  torch::Tensor forward(const torch::Tensor& ids, int64_t position = 0, std::vector<KeyValueCache>* caches = nullptr);

 private:
  torch::nn::Embedding tokens_{nullptr}, positions_{nullptr};
  torch::nn::Dropout dropout_{nullptr};
  torch::nn::ModuleList layers_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear head_{nullptr};
};
TORCH_MODULE(Gpt);

// Mean loss of predicting each token of ids [batch, time] from those before it.
torch::Tensor NextTokenLoss(Gpt& model, const torch::Tensor& ids);

}  // namespace workloads
