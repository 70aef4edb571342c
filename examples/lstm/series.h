// A noisy sum of sines, cut into sequences of different lengths and put into batches of like lengths.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace lstm {

// Sequences of one bucket: the past, padded at its end with zeros, and the future to forecast.
struct Batch {
  torch::Tensor past;     // [batch, time, 1]
  torch::Tensor lengths;  // [batch] of Long, at least 1 and at most time.
  torch::Tensor future;   // [batch, horizon, 1]
};

class Series {
 public:
  // `length` values drawn with LibTorch's generator.
  explicit Series(int64_t length);

  // `count` sequences at random places whose pasts have from `shortest` to `longest` values. Those whose lengths round up to the same
  // multiple of `width` share batches of `batch`; sequences that fill no batch are left out. Batches come in random order.
  std::vector<Batch> Sequences(int64_t count, int64_t shortest, int64_t longest, int64_t width, int64_t batch, int64_t horizon) const;

 private:
  torch::Tensor values_;
};

}  // namespace lstm
