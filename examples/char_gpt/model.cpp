#include "model.h"

namespace char_gpt {

namespace nn = torch::nn;

AttentionImpl::AttentionImpl(const ModelConfig& config) : heads_(config.heads), dropout_p_(config.dropout) {
  qkv_ = register_module("qkv", nn::Linear(config.dim, 3 * config.dim));
  project_ = register_module("project", nn::Linear(config.dim, config.dim));
  dropout_ = register_module("dropout", nn::Dropout(config.dropout));
}

torch::Tensor AttentionImpl::forward(const torch::Tensor& x) {
  const int64_t batch = x.size(0), time = x.size(1), dim = x.size(2);
  const auto qkv = qkv_(x).view({batch, time, 3, heads_, dim / heads_}).permute({2, 0, 3, 1, 4});
  auto y = torch::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], /*attn_mask=*/{}, is_training() ? dropout_p_ : 0.0,
                                               /*is_causal=*/true);
  y = y.transpose(1, 2).reshape({batch, time, dim});
  return dropout_(project_(y));
}

BlockImpl::BlockImpl(const ModelConfig& config) {
  norm1_ = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({config.dim})));
  attention_ = register_module("attention", Attention(config));
  norm2_ = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({config.dim})));
  mlp_ = register_module("mlp", nn::Sequential(nn::Linear(config.dim, 4 * config.dim), nn::GELU(), nn::Linear(4 * config.dim, config.dim),
                                               nn::Dropout(config.dropout)));
}

torch::Tensor BlockImpl::forward(torch::Tensor x) {
  x = x + attention_(norm1_(x));
  return x + mlp_->forward(norm2_(x));
}

CharGptImpl::CharGptImpl(const ModelConfig& config) {
  token_embedding_ = register_module("token_embedding", nn::Embedding(config.vocabulary, config.dim));
  position_embedding_ = register_module("position_embedding", nn::Embedding(config.block, config.dim));
  dropout_ = register_module("dropout", nn::Dropout(config.dropout));
  nn::Sequential blocks;
  for (int64_t i = 0; i < config.layers; ++i) blocks->push_back(Block(config));
  blocks_ = register_module("blocks", blocks);
  norm_ = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({config.dim})));
  head_ = register_module("head", nn::Linear(config.dim, config.vocabulary));
  torch::NoGradGuard no_grad;
  for (auto& item : named_parameters()) {
    if (item.value().dim() == 2) item.value().normal_(0.0, 0.02);
    if (item.key().find("bias") != std::string::npos) item.value().zero_();
  }
}

torch::Tensor CharGptImpl::forward(const torch::Tensor& tokens) {
  const auto positions = torch::arange(tokens.size(1), tokens.options());
  auto x = dropout_(token_embedding_(tokens) + position_embedding_(positions));
  x = blocks_->forward(x);
  return head_(norm_(x));
}

}  // namespace char_gpt
