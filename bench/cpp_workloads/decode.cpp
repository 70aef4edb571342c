// Text from a GPT, one token at a time.
#include "gpt.h"
#include "workload.h"

namespace workloads {
namespace {

constexpr int64_t kNewTokens = 32;

// Continues ids [1, time] by the likeliest tokens, which are read one by one, as a program does that looks for the end of a text. Returns
// the last logits.
torch::Tensor Generate(Gpt& model, torch::Tensor ids, std::vector<KeyValueCache>& caches) {
  const torch::NoGradGuard no_grad;
  torch::Tensor logits;
  int64_t position = 0;
  for (int64_t i = 0; i < kNewTokens; ++i) {
    logits = model(ids, position, &caches).select(1, -1);
    position += ids.size(1);
    const int64_t token = logits.argmax(-1).item<int64_t>();
    ids = torch::full({1, 1}, token, ids.options());
  }
  return logits;
}

// Each step continues a text of another length, from 8 to 38 tokens.
template <bool kPreallocated>
Step Decode(torch::Device device) {
  const GptConfig config = GptConfig::For(device);
  Gpt model(config);
  model->to(device);
  model->eval();
  std::vector<torch::Tensor> texts;
  for (int64_t i = 0; i < 16; ++i)
    texts.push_back(torch::randint(0, config.vocabulary, {1, 8 + 2 * (i * 7 % 16)}, torch::TensorOptions(torch::kLong).device(device)));
  auto next = std::make_shared<size_t>(0);
  return [=]() mutable {
    std::vector<KeyValueCache> caches(static_cast<size_t>(config.layers));
    if (kPreallocated) {
      for (auto& cache : caches) cache = KeyValueCache(config, 1, device);
    }
    return Generate(model, texts[(*next)++ % texts.size()], caches);
  };
}

}  // namespace

std::vector<Workload> DecodeWorkloads() {
  return {
      {"decode_cat", "32 tokens from that GPT after texts of 16 lengths, batch 1; the cache of keys and values grows by cat", Decode<false>,
       16, 16},
      {"decode_slice", "the same with a preallocated cache that is written in slices", Decode<true>, 16, 16},
  };
}

}  // namespace workloads
