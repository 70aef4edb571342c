// The LSTM of oneDNN, which looks at the grad mode to decide what it computes.

#include <torch/torch.h>

#include "tests/support/same_as_eager.h"
#include "tests/support/test_device.h"

namespace lazuli::testing {
namespace {

namespace nn = torch::nn;

class RecurrentTest : public BackendTest {};

nn::LSTM TwoLayers() { return nn::LSTM(nn::LSTMOptions(6, 8).num_layers(2).bidirectional(true).batch_first(true)); }

Tensors AllOf(const std::tuple<torch::Tensor, std::tuple<torch::Tensor, torch::Tensor>>& results) {
  return {std::get<0>(results) * 2, std::get<0>(std::get<1>(results)), std::get<1>(std::get<1>(results))};
}

// Recorded with its shapes inferred, so that nothing cuts or runs eagerly, not even the first time.
TEST_P(RecurrentTest, InferenceIsRecorded) {
  LAZULI_CPU_ONLY("oneDNN");
  auto lstm = TwoLayers();
  const auto run = [&lstm] {
    const torch::NoGradGuard no_grad;
    return AllOf(lstm(torch::linspace(-1, 1, 3 * 5 * 6).view({3, 5, 6}) + 0.5));
  };
  ExpectSameAsEager(run);
  lazuli::reset();
  const DeviceMode mode(Options().backend(GetParam()));
  const auto results = run();
  lazuli::sync();
  EXPECT_EQ(lazuli::stats().eager_fallbacks.count("aten::mkldnn_rnn_layer"), 0u);
  EXPECT_EQ(lazuli::stats().eager_uncut.count("aten::mkldnn_rnn_layer"), 0u);
  EXPECT_EQ(lazuli::stats().traces, 1);
}

// How large packed sequences are depends on the numbers that are the lengths.
TEST_P(RecurrentTest, PackedSequencesOfManyLengths) {
  LAZULI_CPU_ONLY("lengths are on the CPU");
  ExpectSameAsEager([] {
    auto lstm = nn::LSTM(nn::LSTMOptions(6, 8).batch_first(true));
    Tensors all;
    for (const auto& lengths : {std::vector<int64_t>{5, 4, 2}, std::vector<int64_t>{5, 1, 1}, std::vector<int64_t>{3, 3, 3}}) {
      const auto x = torch::linspace(-1, 1, 3 * 5 * 6).view({3, 5, 6}) * 2;
      const auto packed = nn::utils::rnn::pack_padded_sequence(x, torch::tensor(lengths), /*batch_first=*/true);
      const auto output = std::get<0>(lstm->forward_with_packed_input(packed));
      const auto [padded, sizes] = nn::utils::rnn::pad_packed_sequence(output, /*batch_first=*/true);
      padded.sum().backward();
      all.push_back(padded.detach());
      all.push_back(sizes);
    }
    for (const auto& parameter : lstm->parameters()) all.push_back(parameter.grad());
    return all;
  });
}

// The same layer with and without grad mode, by turns: with it, it has the workspace that backward needs, and runs eagerly.
TEST_P(RecurrentTest, GradModeCounts) {
  ExpectSameAsEager([] {
    auto lstm = nn::LSTM(nn::LSTMOptions(6, 8));
    const auto x = torch::linspace(-1, 1, 5 * 2 * 6).view({5, 2, 6});
    Tensors all;
    for (int i = 0; i < 4; ++i) {
      const at::AutoGradMode grad_mode(i % 2 == 0);
      for (auto& result : AllOf(lstm(x + i))) all.push_back(result.detach());
    }
    return all;
  });
}

TEST_P(RecurrentTest, BackwardFindsItsWorkspace) {
  ExpectSameAsEager([] {
    auto lstm = TwoLayers();
    const auto results = AllOf(lstm(torch::linspace(-1, 1, 3 * 5 * 6).view({3, 5, 6}) + 0.5));
    (results[0].square().sum() + results[1].sum()).backward();
    Tensors grads;
    for (const auto& parameter : lstm->parameters()) grads.push_back(parameter.grad() * 1);
    return grads;
  });
}

LAZULI_FOR_EACH_BACKEND(RecurrentTest);

}  // namespace
}  // namespace lazuli::testing
