#include "series.h"

#include <map>

namespace lstm {
namespace {

struct Sequence {
  torch::Tensor past, future;
};

Batch Collate(const std::vector<Sequence>& sequences, int64_t time) {
  std::vector<torch::Tensor> past, future;
  std::vector<int64_t> lengths;
  for (const Sequence& sequence : sequences) {
    const int64_t length = sequence.past.size(0);
    lengths.push_back(length);
    past.push_back(torch::constant_pad_nd(sequence.past, {0, time - length}));
    future.push_back(sequence.future);
  }
  return {torch::stack(past).unsqueeze(-1), torch::tensor(lengths), torch::stack(future).unsqueeze(-1)};
}

}  // namespace

Series::Series(int64_t length) {
  const auto time = torch::arange(length, torch::kFloat);
  values_ = torch::zeros({length});
  for (const double period : {11.0, 25.0, 60.0}) {
    const auto phase = torch::rand({1}) * 6.2832;
    values_ += torch::sin(time * (6.2832 / period) + phase) * (0.5 + 0.5 * torch::rand({1}));
  }
  values_ += 0.05 * torch::randn({length});
}

std::vector<Batch> Series::Sequences(int64_t count, int64_t shortest, int64_t longest, int64_t width, int64_t batch,
                                     int64_t horizon) const {
  const auto starts = torch::randint(values_.size(0) - longest - horizon, {count}, torch::kLong);
  const auto lengths = torch::randint(shortest, longest + 1, {count}, torch::kLong);
  std::map<int64_t, std::vector<Sequence>> buckets;
  std::vector<Batch> batches;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t start = starts[i].item<int64_t>(), length = lengths[i].item<int64_t>();
    const int64_t time = (length + width - 1) / width * width;
    auto& bucket = buckets[time];
    bucket.push_back({values_.narrow(0, start, length), values_.narrow(0, start + length, horizon)});
    if (static_cast<int64_t>(bucket.size()) < batch) continue;
    batches.push_back(Collate(bucket, time));
    bucket.clear();
  }
  return batches;
}

}  // namespace lstm
