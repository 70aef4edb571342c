#include "gpt.h"

#include <ATen/autocast_mode.h>

#include "workload.h"

namespace workloads {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

GptConfig GptConfig::For(torch::Device device) {
  GptConfig config;
  if (device.is_cuda()) config.vocabulary = 50304, config.max_time = 1024, config.width = 768, config.heads = 12, config.layers = 12;
  return config;
}

KeyValueCache::KeyValueCache(const GptConfig& config, int64_t batch, torch::Device device) : preallocated_(true) {
  keys_ = torch::zeros({batch, config.heads, config.max_time, config.width / config.heads}, device);
  values_ = torch::zeros_like(keys_);
}

void KeyValueCache::Append(torch::Tensor& keys, torch::Tensor& values) {
  if (preallocated_) {
    const int64_t added = keys.size(2);
    keys_.narrow(2, time_, added).copy_(keys);
    values_.narrow(2, time_, added).copy_(values);
    time_ += added;
    keys = keys_.narrow(2, 0, time_), values = values_.narrow(2, 0, time_);
    return;
  }
  if (keys_.defined()) keys = torch::cat({keys_, keys}, 2), values = torch::cat({values_, values}, 2);
  keys_ = keys, values_ = values;
}

DecoderLayerImpl::DecoderLayerImpl(int64_t width, int64_t heads, double dropout) : heads_(heads) {
  attention_norm_ = register_module("attention_norm", nn::LayerNorm(nn::LayerNormOptions({width})));
  to_qkv_ = register_module("to_qkv", nn::Linear(width, 3 * width));
  from_heads_ = register_module("from_heads", nn::Linear(width, width));
  dropout_ = register_module("dropout", nn::Dropout(dropout));
  mlp_ = register_module("mlp", nn::Sequential(nn::LayerNorm(nn::LayerNormOptions({width})), nn::Linear(width, 4 * width),
                                               nn::GELU(nn::GELUOptions().approximate("tanh")), nn::Linear(4 * width, width)));
}

torch::Tensor DecoderLayerImpl::forward(torch::Tensor x, KeyValueCache* cache) {
  const int64_t batch = x.size(0), time = x.size(1), width = x.size(2);
  const auto qkv = to_qkv_(attention_norm_(x)).view({batch, time, 3, heads_, width / heads_}).permute({2, 0, 3, 1, 4}).unbind(0);
  auto keys = qkv[1], values = qkv[2];
  if (cache != nullptr) cache->Append(keys, values);
  const auto mixed = torch::scaled_dot_product_attention(qkv[0], keys, values, /*attn_mask=*/{}, /*dropout_p=*/0, /*is_causal=*/time > 1);
  x = x + dropout_(from_heads_(mixed.transpose(1, 2).reshape({batch, time, width})));
  return x + dropout_(mlp_->forward(x));
}

GptImpl::GptImpl(const GptConfig& config) {
  tokens_ = register_module("tokens", nn::Embedding(config.vocabulary, config.width));
  positions_ = register_module("positions", nn::Embedding(config.max_time, config.width));
  dropout_ = register_module("dropout", nn::Dropout(config.dropout));
  for (int64_t i = 0; i < config.layers; ++i) layers_->push_back(DecoderLayer(config.width, config.heads, config.dropout));
  register_module("layers", layers_);
  norm_ = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({config.width})));
  head_ = register_module("head", nn::Linear(nn::LinearOptions(config.width, config.vocabulary).bias(false)));
}

torch::Tensor GptImpl::forward(const torch::Tensor& ids, int64_t position, std::vector<KeyValueCache>* caches) {
  auto x = dropout_(tokens_(ids) + positions_(torch::arange(position, position + ids.size(1), ids.options())));
  for (size_t i = 0; i < layers_->size(); ++i) {
    x = layers_->at<DecoderLayerImpl>(i).forward(x, caches == nullptr ? nullptr : &(*caches)[i]);
  }
  return head_(norm_(x));
}

torch::Tensor NextTokenLoss(Gpt& model, const torch::Tensor& ids) {
  const auto logits = model(ids).slice(1, 0, -1);
  return F::cross_entropy(logits.reshape({-1, logits.size(2)}), ids.slice(1, 1).reshape(-1));
}

namespace {

torch::Tensor Ids(int64_t batch, int64_t time, torch::Device device) {
  return torch::randint(0, GptConfig().vocabulary, {batch, time}, torch::TensorOptions(torch::kLong).device(device));
}

// Autocasts to bfloat16 on a GPU while it lives.
class Autocast {
 public:
  explicit Autocast(torch::Device device) : device_(device.type()), before_(at::autocast::is_autocast_enabled(device_)) {
    at::autocast::set_autocast_enabled(device_, device.is_cuda());
    if (device.is_cuda()) at::autocast::set_autocast_dtype(device_, torch::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, before_);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  torch::DeviceType device_;
  bool before_;
};

Step TrainOneBatch(const GptConfig& config, torch::Device device) {
  Gpt model(config);
  model->to(device);
  const auto ids = device.is_cuda() ? Ids(8, 1024, device) : Ids(2, 128, device);
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-4));
  return Trainer(std::move(optimizer), [=]() mutable {
    const Autocast autocast(device);
    return NextTokenLoss(model, ids);
  });
}

Step GptTrain(torch::Device device) { return TrainOneBatch(GptConfig::For(device), device); }

Step GptDropoutTrain(torch::Device device) {
  GptConfig config = GptConfig::For(device);
  config.dropout = 0.1;
  return TrainOneBatch(config, device);
}

Step GptForward(torch::Device device) {
  Gpt model(GptConfig::For(device));
  model->to(device, device.is_cuda() ? torch::kBFloat16 : torch::kFloat);
  model->eval();
  const auto ids = Ids(1, 64, device);
  return [=]() mutable {
    const torch::NoGradGuard no_grad;
    return model(ids);
  };
}

Step VarlenTrain(torch::Device device) {
  GptConfig config;
  config.max_time = 512;
  Gpt model(config);
  model->to(device);
  std::vector<torch::Tensor> batches;
  for (int64_t i = 0; i < 64; ++i) batches.push_back(Ids(4, 12 + 4 * (i * 11 % 29), device));
  auto next = std::make_shared<size_t>(0);
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-4));
  const Step train = Trainer(std::move(optimizer), [=]() mutable { return NextTokenLoss(model, batches[(*next)++ % batches.size()]); });
  return [=] {
    torch::Tensor loss;
    for (size_t i = 0; i < batches.size(); ++i) loss = train();
    return loss;
  };
}

// One pre-norm block in bfloat16, over 4 texts of 128 tokens.
struct HalfBlock {
  DecoderLayer layer{256, 4};
  torch::Tensor x;

  explicit HalfBlock(torch::Device device) : x(torch::randn({4, 128, 256}, device).to(torch::kBFloat16)) {
    layer->to(device, torch::kBFloat16);
  }
};

Step BlockForward(torch::Device device) {
  HalfBlock block(device);
  block.layer->eval();
  return [=]() mutable {
    const torch::NoGradGuard no_grad;
    return block.layer(block.x);
  };
}

Step BlockTrain(torch::Device device) {
  HalfBlock block(device);
  torch::optim::AdamW optimizer(block.layer->parameters(), torch::optim::AdamWOptions(1e-4));
  return Trainer(std::move(optimizer), [=]() mutable { return block.layer(block.x).to(torch::kFloat).square().mean(); });
}

}  // namespace

std::vector<Workload> GptWorkloads() {
  return {
      {"gpt_train", "training step of a GPT of 4 layers of 256, batch 2x128, AdamW (GPT-2, 8x1024, autocast to bfloat16)", GptTrain, 4, 10},
      {"gpt_dropout_train", "the same with a dropout of 0.1 wherever a residual is added", GptDropoutTrain, 4, 10},
      {"gpt_forward", "forward pass of the same GPT over 1x64 tokens, without grad (GPT-2, bfloat16)", GptForward, 5, 20},
      {"varlen_train", "64 training steps of the same GPT on batches of 4 of 29 lengths from 12 to 124", VarlenTrain, 1, 2},
      {"bf16_block", "forward pass of a transformer block of 256 in bfloat16, 4x128 tokens, without grad", BlockForward, 5, 20},
      {"bf16_block_train", "training step of that block, AdamW", BlockTrain, 5, 20},
  };
}

}  // namespace workloads
