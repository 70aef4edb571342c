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
